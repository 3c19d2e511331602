package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// soft makes a rule soft, and enforced for a share.
func soft(percent int, r limiter.Rule) limiter.Rule { r.Soft, r.Percent = true, percent; return r }

// event is a line of a log: a visitor, and the time since the line before.
type logged struct {
	after   time.Duration
	visitor int
}

// logs are logs of events of very different courses.
func logs(r *rand.Rand, lines int) map[string][]logged {
	logs := map[string][]logged{}
	for range lines {
		logs["drip"] = append(logs["drip"], logged{20*time.Second + rand.N(20*time.Second), 0})
		burst := logged{0, r.IntN(3)}
		if r.IntN(50) == 0 {
			burst.after = 30 * time.Minute
		}
		logs["burst"] = append(logs["burst"], burst)
		logs["crowd"] = append(logs["crowd"], logged{rand.N(2 * time.Second), r.IntN(200)})
		logs["heavy-tailed"] = append(logs["heavy-tailed"], logged{rand.N(3 * time.Second), int(math.Pow(r.Float64(), -1.2)) % 500})
	}
	return logs
}

// A soft rule denies nobody, and reports the denials of the rule enforced after the
// others on a copy of the log.
func TestSoftRuleReportsWhatItWouldDeny(t *testing.T) {
	r := random(t)
	for name, log := range logs(r, 3000) {
		t.Run(name, func(t *testing.T) {
			denied := softAsEnforced(t, memory.New(memory.Config{}), memory.New(memory.Config{}), log)
			require.Positive(t, denied)
		})
	}
	log := logs(r, 60)["burst"]
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		require.Positive(t, softAsEnforced(t, store, memory.New(memory.Config{}), log))
	})
}

// softAsEnforced returns the number of the denials that the soft rule has reported.
func softAsEnforced(t *testing.T, store, copied backend.Store, log []logged) (denied int) {
	clock := newClock()
	now := clock.now().Truncate(time.Second)
	onLog := func(store backend.Store, rules ...limiter.Rule) *limiter.Limiter {
		c := derivingCounter(t, store, counter.Config{Patience: patience, Skew: -1, Settle: -1, Now: func() time.Time { return now }})
		return newLimiter(t, c, limiter.Config{Rules: rules, DecideWithin: 2 * patience})
	}
	tighter := by("ip", "5/m, 12/h")
	lim := onLog(store, by("ip", "9/m, 40/h"), soft(0, tighter))
	after := onLog(copied, tighter)
	for i, line := range log {
		now = now.Add(line.after)
		visitor := ip(fmt.Sprintf("10.0.%d.%d", line.visitor>>8, line.visitor&255))
		v := allow(t, lim, visitor)
		require.NoError(t, v.Degraded)
		require.Len(t, v.All(), 2, "no states of soft rules")
		if !v.Allowed {
			require.Empty(t, v.Soft)
			continue
		}
		want := allow(t, after, visitor)
		require.Len(t, v.Soft, 1)
		require.Equal(t, !want.Allowed, v.Soft[0].Denied, "line %d: %v", i, v.Soft)
		require.Equal(t, "ip", v.Soft[0].Kind)
		if v.Soft[0].Denied {
			denied++
			require.Equal(t, want.Limit, v.Soft[0].Limit)
		}
	}
	t.Logf("%d of %d denied", denied, len(log))
	return denied
}

// A soft rule reports the limit with the least room, or the one that denies for longest.
func TestSoftRuleReportsOneLimit(t *testing.T) {
	for limits, want := range map[string][]string{
		"9/m, 3/h": {"3/h 2", "3/h 1", "3/h 0", "3/h 0"},
		"2/m, 9/h": {"2/m 1", "2/m 0", "2/m 0", "2/m 0"},
		"2/m, 2/h": {"2/m 1", "2/m 0", "2/h 0", "2/h 0"},
	} {
		lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{soft(0, by("ip", limits))}})
		var got []string
		for range want {
			v := allow(t, lim, ip("192.0.2.1")).Soft[0]
			got = append(got, fmt.Sprint(v.Limit, " ", v.Remaining))
		}
		require.Equal(t, want, got, limits)
	}
}

// An event may have soft rules alone: its calls are admitted, and counted.
func TestSoftRuleAlone(t *testing.T) {
	var seen []limiter.Decision
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{soft(0, by("ip", "2/h")), soft(0, by("user", "9/h"))}, Observe: func(d limiter.Decision) { seen = append(seen, d) }})
	for i := range 5 {
		v := allow(t, lim, ip("192.0.2.1"))
		require.Equal(t, limiter.OutcomeAdmitted, v.Outcome())
		require.Empty(t, v.All())
		require.Empty(t, v.Rule())
		require.Positive(t, v.Soft[0].ResetAfter)
		require.Equal(t, []limiter.SoftVerdict{
			{Kind: "ip", Denied: i >= 2, Limit: counter.Limit{Max: 2, Per: time.Hour}, Remaining: max(0, int64(1-i)), RetryAfter: v.Soft[0].RetryAfter, ResetAfter: v.Soft[0].ResetAfter},
			{Ask: -1, Kind: "user", Denied: true, RetryAfter: counter.Never},
		}, v.Soft)
		require.Equal(t, v.Soft, seen[i].Soft)
	}
	v := try.To(lim.Wait(ctx, "signup", ip("192.0.2.1")))(t)
	require.NoError(t, lim.Refund(ctx, &v))
	require.EqualValues(t, 5, counted(t, c, "ip:192.0.2.1"))
}

// Percent enforces for a stable share of the features, on the counts of the enforced
// key: a raise loses no hit, and neither does the enforced rule afterwards.
func TestPercentKeepsTheCounts(t *testing.T) {
	for name, rules := range map[string][]limiter.Rule{"alone": nil, "beside a rule": {by("ip", "9/h")}} {
		t.Run(name, func(t *testing.T) {
			tighter := by("ip", "3/h")
			lim := onMemory(t, append(rules, soft(0, tighter))...)
			for range 2 {
				require.True(t, allow(t, lim, ip("192.0.2.1")).Allowed)
			}
			require.NoError(t, lim.Replace(append(rules, soft(100, tighter))...))
			require.True(t, allow(t, lim, ip("192.0.2.1")).Allowed)
			v := allow(t, lim, ip("192.0.2.1"))
			require.Equal(t, []any{limiter.OutcomeOverLimit, tighter.Limits[0]}, []any{v.Outcome(), v.Limit})
			require.Empty(t, v.Soft)
			require.NoError(t, lim.Replace(tighter))
			require.False(t, allow(t, lim, ip("192.0.2.1")).Allowed)
			require.NoError(t, lim.Replace(append(rules, soft(0, tighter))...))
			require.True(t, allow(t, lim, ip("192.0.2.1")).Allowed, "soft again")
		})
	}
}

func TestPercentIsAShareOfTheFeatures(t *testing.T) {
	const features = 100_000
	ten, twenty := onMemory(t, soft(10, by("user", "0/h"))), onMemory(t, soft(20, by("user", "0/h")))
	of10, of20 := 0, 0
	var first []int
	for i := range features {
		text := fmt.Sprint("user:", i)
		if limiter.Enforced(ten, "signup", text) {
			of10++
			require.True(t, limiter.Enforced(twenty, "signup", text), "user %d: enforced at 10 percent, and not at 20", i)
			if i < 40 {
				first = append(first, i)
			}
		}
		if limiter.Enforced(twenty, "signup", text) {
			of20++
		}
	}
	t.Logf("%d and %d of %d", of10, of20, features)
	require.InDelta(t, 0.10, float64(of10)/features, 0.005)
	require.InDelta(t, 0.20, float64(of20)/features, 0.005)
	require.Equal(t, []int{3, 13, 20, 38}, first, "the choice is the same in all processes")
	for i := range 40 {
		require.Equal(t, slices.Contains(first, i), !allow(t, ten, user(fmt.Sprint(i))).Allowed)
	}
}

// While the store fails, soft rules report nothing, and deny nobody.
func TestSoftRulesOfAFailingStore(t *testing.T) {
	for _, policy := range []limiter.OnFailure{limiter.FailOpen, limiter.FailLocal} {
		store := &flakyStore{Store: memory.New(memory.Config{})}
		c := newCounter(t, store, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(policy, by("ip", "5/h")), soft(0, by("ip", "1/h"))}, Local: newCounter(t, memory.New(memory.Config{}), counter.Config{Skew: time.Hour})})
		require.Len(t, allow(t, lim, ip("192.0.2.1")).Soft, 1)
		store.broken.Store(true)
		v := allow(t, lim, ip("192.0.2.1"))
		require.True(t, v.Allowed)
		require.Error(t, v.Degraded)
		require.Empty(t, v.Soft)
		if policy == limiter.FailOpen {
			require.NoError(t, lim.Close(ctx))
		} else {
			require.ErrorContains(t, lim.Close(over), "1 hits")
		}
	}
}

// Without Soft a rule finds all admitted hits, after a Replace and in the Limiter of the
// next process. The hits can still be refunded.
func TestSoftTakenAwayKeepsTheCounts(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		rule := by("user", "3/h, 9/d")
		rule.Else, rule.ElseLimits, rule.Plans = "ip", counter.MustLimits("2/m"), []counter.Limits{counter.MustLimits("5/h")}
		rule.IfMissing = limiter.MissingShare
		clock := newClock()
		lim, _ := withClock(t, store, clock, soft(0, rule))
		of := map[string][]feature.Feature{"user": {user("ada")}, "else": {ip("192.0.2.1")}, "missing": nil, "plan": {limiter.Under(user("eva"), rule.Plans[0])}}
		kept := map[string]limiter.Verdict{}
		for name, features := range of {
			for range 6 {
				v := allow(t, lim, features...)
				require.True(t, v.Allowed)
				kept[name] = v
			}
		}
		next, _ := withClock(t, store, clock, rule)
		require.NoError(t, lim.Replace(rule))
		for name, features := range of {
			for _, l := range []*limiter.Limiter{lim, next} {
				require.False(t, peek(t, l, 0, features...).Allowed, "%s: 6 hits are over each limit", name)
			}
			v := kept[name]
			require.NoError(t, lim.Refund(ctx, &v))
		}
		for _, f := range featuresOf(user("ada"), user("eva"), ip("192.0.2.1")) {
			require.EqualValues(t, 5, countedBy(t, next, f))
		}
	})
}
