package limiter_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// midnight is the first end of a day in UTC in a bubble.
var midnight = time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)

func until(d time.Duration) { time.Sleep(time.Until(midnight.Add(d))) }

// An outage lasts over the end of a day: in no day are more than Max hits admitted, by
// their labels, and the next day has all its room.
func TestTheStoreFailsOverTheEndOfADay(t *testing.T) {
	home := ip("192.0.2.1")
	for name, test := range map[string]func(t *testing.T, s *slowStore, lim *limiter.Limiter){
		// Its own day may be full by the hits that were admitted here meanwhile.
		"an answer of the day before is not judged in the next day": func(t *testing.T, s *slowStore, lim *limiter.Limiter) {
			until(-100 * time.Millisecond)
			s.take.Store(int64(300 * time.Millisecond))
			late := make(chan limiter.Verdict)
			go func() { late <- allow(t, lim, home) }()
			synctest.Wait()
			until(-50 * time.Millisecond)
			s.broken.Store(true)
			require.Equal(t, limiter.OutcomeLocalAdmitted, allowN(t, lim, 3, home).Outcome())
			v := <-late
			require.Equal(t, limiter.OutcomeFailedClosed, v.Outcome(), v)
			require.ErrorContains(t, v.Degraded, "older than the local counter reaches back")
			requireRetry(t, v, "soon")
			until(time.Second)
			require.Equal(t, limiter.OutcomeLocalAdmitted, allowN(t, lim, 3, home).Outcome())
		},
		"an answer of the day before is counted in its own day": func(t *testing.T, s *slowStore, lim *limiter.Limiter) {
			until(-100 * time.Millisecond)
			s.take.Store(int64(300 * time.Millisecond))
			v := allowN(t, lim, 3, home)
			require.Equal(t, limiter.OutcomeAdmitted, v.Outcome())
			require.True(t, v.At().Before(midnight) && time.Now().After(midnight))
			s.broken.Store(true)
			require.Equal(t, limiter.OutcomeLocalAdmitted, allowN(t, lim, 3, home).Outcome())
			require.Equal(t, limiter.OutcomeLocalOverLimit, allow(t, lim, home).Outcome())
			s.broken.Store(false)
			require.NoError(t, lim.Refund(ctx, &v))
		},
		"what an answer of the day before has used more is of this day": func(t *testing.T, s *slowStore, lim *limiter.Limiter) {
			until(-100 * time.Millisecond)
			s.take.Store(int64(300 * time.Millisecond))
			v := allow(t, lim, home)
			require.NoError(t, lim.Settle(ctx, &v, 3))
			require.EqualValues(t, 1, v.Remaining, "of this day")
			s.broken.Store(true)
			require.Equal(t, limiter.OutcomeLocalOverLimit, allowN(t, lim, 2, home).Outcome())
			require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, lim, home).Outcome())
		},
		"a denial of the store holds until the day ends": func(t *testing.T, s *slowStore, lim *limiter.Limiter) {
			until(-time.Minute)
			allowN(t, lim, 3, home)
			require.False(t, allow(t, lim, home).Allowed)
			s.broken.Store(true)
			until(-time.Second)
			v := allow(t, lim, home)
			require.Equal(t, []any{limiter.OutcomeLocalOverLimit, true}, []any{v.Outcome(), v.RetryAfter < 2*time.Second}, "%s", v)
			until(2 * time.Second)
			require.Equal(t, limiter.OutcomeLocalAdmitted, allowN(t, lim, 3, home).Outcome())
		},
		"hits of a day are held until it ends": func(t *testing.T, s *slowStore, lim *limiter.Limiter) {
			until(-23 * time.Hour)
			s.broken.Store(true)
			require.Equal(t, limiter.OutcomeLocalAdmitted, allowN(t, lim, 2, home).Outcome())
			s.add.Store(int64(time.Hour)) // no carry is counted
			s.broken.Store(false)
			until(-time.Minute)
			require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, home).Outcome())
			require.False(t, allow(t, lim, home).Allowed)
			until(2 * time.Second)
			require.EqualValues(t, 2, lim.Stats().Pending)
			require.EqualValues(t, 2, allow(t, lim, home).Remaining, "the day before has no part in it")
		},
		"hits are carried into their own day": func(t *testing.T, s *slowStore, lim *limiter.Limiter) {
			until(-time.Minute)
			require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, home).Outcome())
			s.broken.Store(true)
			v := allowN(t, lim, 2, home)
			require.Equal(t, limiter.OutcomeLocalAdmitted, v.Outcome())
			v = allow(t, lim, home)
			require.Equal(t, []any{limiter.OutcomeLocalOverLimit, true}, []any{v.Outcome(), v.RetryAfter >= time.Minute && v.RetryAfter < time.Minute+2*time.Second}, "%s", v)
			until(time.Minute)
			require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, lim, home).Outcome())
			s.broken.Store(false)
			until(2 * time.Minute)
			require.EqualValues(t, 3, lim.Stats().Carried)
			v = allow(t, lim, home)
			require.Equal(t, []any{limiter.OutcomeAdmitted, int64(1)}, []any{v.Outcome(), v.Remaining}, "one of three was carried into this day")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, lim := newSlowStore(t, onFailure(limiter.FailLocal, by("ip", "3 per day in UTC, 9/d")))
				defer lim.Close(over)
				test(t, s, lim)
			})
		})
	}
}

// zoned are the limits of a day in the zone that the user has chosen.
func zoned(_ context.Context, c limiter.Call) counter.Limits {
	zone := map[string]string{"kiri": "Pacific/Kiritimati", "ada": "Europe/Berlin", "new": "America/New_York"}[c.Feature.Value()]
	if zone == "" {
		return nil
	}
	limits, _ := counter.ParseLimits("9/h, 2 per day in " + zone)
	return limits
}

// A rule has limits by the calendar next to limits that slide, wherever it has limits, and
// calls bring their own: on each store, and around the ends of the days in four zones.
func TestRulesByTheCalendar(t *testing.T) {
	byTicket := func(s backend.Atomic) backend.Store { return struct{ backend.Store }{s} }
	for name, store := range map[string]backend.Store{
		"memory": memory.New(memory.Config{}), "an atomic step": struct{ backend.Atomic }{memory.New(memory.Config{})}, "by ticket": byTicket(memory.New(memory.Config{})),
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 3, 28, 3, 0, 0, 0, time.UTC)
			c := derivingCounter(t, store, counter.Config{Skew: -1, Settle: -1, Patience: -1, Now: func() time.Time { return now }})
			rule := by("user", "9/h, 3 per day in UTC")
			rule.Plans, rule.LimitsOf = []counter.Limits{counter.MustLimits("2 per day in Europe/Berlin"), counter.MustLimits("5 per month from 29 in Asia/Kolkata")}, zoned
			rule.Overrides = []limiter.Override{{Value: "vip", Limits: counter.MustLimits("5 per month from 29 in Asia/Kolkata")}}
			rule.Else, rule.ElseLimits = "ip", counter.MustLimits("1 per week in Europe/Berlin, 1 per day in Europe/Berlin")
			lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{rule}})
			for _, row := range []struct {
				of   feature.Feature
				max  int
				ends string // of the period
			}{
				{user("any"), 3, "2026-03-29T00:00:00Z"},
				{user("ada"), 2, "2026-03-28T23:00:00Z"},
				{user("kiri"), 2, "2026-03-28T10:00:00Z"},
				{user("new"), 2, "2026-03-28T04:00:00Z"},
				{user("vip"), 5, "2026-03-28T18:30:00Z"}, // midnight of the 29th in Kolkata
				{ip("192.0.2.1"), 1, "2026-03-29T22:00:00Z"},
				{limiter.Under(user("own"), counter.MustLimits("4 per day in Asia/Kolkata")), 4, "2026-03-28T18:30:00Z"},
			} {
				now = time.Date(2026, 3, 28, 3, 0, 0, 0, time.UTC)
				ends := try.To(time.Parse(time.RFC3339, row.ends))(t)
				for range row.max {
					require.True(t, allow(t, lim, row.of).Allowed)
				}
				v := allow(t, lim, row.of)
				require.Equal(t, []any{false, ends.Sub(now)}, []any{v.Allowed, v.RetryAfter}, "%s", v)
				usage := usageOf(t, lim, row.of)
				i := slices.IndexFunc(usage[0].Limits, func(l limiter.LimitUsage) bool { return l.Limit == v.Limit })
				n := int64(row.max)
				require.Equal(t, limiter.LimitUsage{Limit: v.Limit, Count: counter.Count{Low: n, High: n}, RetryAfter: ends.Sub(now)}, usage[0].Limits[i])

				now = ends.Add(-1)
				require.False(t, allow(t, lim, row.of).Allowed)
				charge(t, lim, -n, row.of) // of this period alone
				require.True(t, allow(t, lim, row.of).Allowed)
				now = ends
				require.True(t, allow(t, lim, row.of).Allowed)
				v = try.To(lim.AllowUpTo(ctx, "signup", 9, row.of))(t)
				require.EqualValues(t, row.max-1, v.N(), "%s", v)
			}
		})
	}
}

// Limits by the calendar bound what limits that slide do: the field is named.
func TestLimitsByTheCalendarFitTheLadder(t *testing.T) {
	hours := try.To(tiers.Parse("1h:32d"))(t)
	for want, set := range map[string]func(r *limiter.Rule){
		`.Limits has 3 per day in UTC and 4 per day in UTC, want one limit for each window`: func(r *limiter.Rule) { r.Limits = counter.MustLimits("3 per day in UTC, 4 per day in UTC") },
		`.Plans[0]: counter: limit 1 per day in Asia/Kolkata: ladder "1h:32d" has buckets of 1h for it, and the day in Asia/Kolkata does not begin with a bucket`: func(r *limiter.Rule) {
			r.Ladder, r.Plans = hours, []counter.Limits{counter.MustLimits("1 per day in Asia/Kolkata")}
		},
		`.Overrides[0].Limits: counter: limit 1 per month in UTC: `: func(r *limiter.Rule) {
			r.Ladder, r.Overrides = tiers.Default, []limiter.Override{{Value: "vip", Limits: counter.MustLimits("1 per month in UTC")}}
		},
	} {
		rule := by("user", "1 per day in UTC")
		set(&rule)
		require.ErrorContains(t, try.Err(limiter.New(derivingCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}})), `rule "signup" by "user": Config.Rules[0]`+want)
	}
	lim := onMemory(t, by("user", "1 per day in UTC"))
	require.ErrorContains(t, try.Err(lim.Allow(ctx, "signup", limiter.Under(user("ada"), counter.MustLimits("1 per month in UTC")))), `limits of the call by "user": counter: limit 1 per month in UTC`)
	require.ErrorContains(t, try.Err(limiter.New(derivingCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("user", "1 per day in UTC"), by("user", "2/d, 2 per day in UTC")}})), `Config.Rules[1].Limits has 2 per day in UTC, but Config.Rules[0] has 1 per day in UTC, want one limit for each window`)
}

// A soft rule by the calendar counts the enforced key too, under no limit, and a credit
// gives back the hits of this period alone.
func TestSoftRulesByTheCalendar(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	c := derivingCounter(t, memory.New(memory.Config{}), counter.Config{Skew: -1, Now: func() time.Time { return now }})
	rule := by("user", "2 per day in UTC")
	rule.Soft = true
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{rule}})
	all := []limiter.SoftVerdict{}
	for range 3 {
		all = append(all, allow(t, lim, user("ada")).Soft...)
	}
	require.Len(t, all, 3)
	require.Equal(t, []any{false, false, true, 12 * time.Hour}, []any{all[0].Denied, all[1].Denied, all[2].Denied, all[2].RetryAfter})
	now = now.Add(12 * time.Hour)
	allow(t, lim, user("ada"))
	charge(t, lim, -9, user("ada"))
	now = now.Add(-time.Minute)
	rule.Percent = 100
	require.NoError(t, lim.Replace(rule))
	require.False(t, allow(t, lim, user("ada")).Allowed, "the day before keeps its three")
	now = now.Add(time.Hour)
	require.EqualValues(t, 1, allow(t, lim, user("ada")).Remaining)
}

// A rule keeps its ladder, and its counts, when the zone changes: that of the rule, of a
// call, and of a zone with days of 31 hours.
func TestAnotherZoneKeepsTheCounts(t *testing.T) {
	now := time.Date(2026, 10, 24, 22, 30, 0, 0, time.UTC) // half an hour into a day of 25 hours in Berlin
	lim := newLimiter(t, derivingCounter(t, memory.New(memory.Config{}), counter.Config{Skew: -1, Now: func() time.Time { return now }}), limiter.Config{Rules: []limiter.Rule{by("user", "9 per day in UTC")}})
	ada, before := user("ada"), lim.Rules("signup")[0]
	allowN(t, lim, 7, ada)
	now = now.Add(24 * time.Hour)
	for _, row := range []struct {
		zone string
		left int64
	}{{"Europe/Berlin", 1}, {"Asia/Kolkata", 7}, {"Antarctica/Vostok", 6}, {"America/New_York", 5}} { // the first has the seven
		require.Equal(t, row.left, allow(t, lim, limiter.Under(ada, counter.MustLimits("9 per day in "+row.zone))).Remaining, row.zone)
	}
	require.NoError(t, lim.Replace(by("user", "9 per day in Europe/Berlin")))
	after := lim.Rules("signup")[0]
	require.Equal(t, []any{before.Ladder, true}, []any{after.Ladder, after.Former == nil})
}
