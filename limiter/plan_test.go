package limiter_test

import (
	"context"
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
	"github.com/abacus-go/abacus/tiers"
)

// admitted is the number of calls that are admitted until one is denied, of at
// most 100.
func admitted(t testing.TB, lim *limiter.Limiter, features ...feature.Feature) (n int) {
	t.Helper()
	for n < 100 && allow(t, lim, features...).Allowed {
		n++
	}
	return n
}

// A change of plan keeps the usage: by the call, by a function of the call, and
// by a new Limiter with other rules. A verdict under one plan is refunded under
// another.
func TestPlansShareTheCounts(t *testing.T) {
	free, pro := counter.MustLimits("5/d"), counter.MustLimits("8/d")
	for name, with := range map[string]func(r *limiter.Rule, plan *counter.Limits) (feature func(name string) feature.Feature){
		"by the call": func(_ *limiter.Rule, plan *counter.Limits) func(string) feature.Feature {
			return func(name string) feature.Feature { return limiter.Under(user(name), *plan) }
		},
		"by a function of the call": func(r *limiter.Rule, plan *counter.Limits) func(string) feature.Feature {
			r.LimitsOf = func(_ context.Context, c limiter.Call) counter.Limits {
				if c.Event != "signup" || c.N != 1 || c.Feature.Kind() != "user" || c.Feature.Value() != "ada" || len(c.Features) != 1 {
					return counter.MustLimits("0/d")
				}
				return *plan
			}
			return user
		},
		"by a function, of plans that are listed": func(r *limiter.Rule, plan *counter.Limits) func(string) feature.Feature {
			r.Plans = []counter.Limits{pro}
			r.LimitsOf = func(context.Context, limiter.Call) counter.Limits { return *plan }
			return user
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStores(t, func(t *testing.T, store backend.Store, _ stored) {
				clock := newClock()
				rule, plan := by("user", "5/d"), counter.Limits(nil)
				feature := with(&rule, &plan)
				lim, c := withClock(t, store, clock, rule)
				first := allow(t, lim, feature("ada"))
				require.Equal(t, []any{true, free[0]}, []any{first.Allowed, first.Limit})
				require.Equal(t, 4, admitted(t, lim, feature("ada")))
				plan = pro
				v := allow(t, lim, feature("ada"))
				require.Equal(t, []any{true, pro[0], int64(2)}, []any{v.Allowed, v.Limit, v.Remaining})
				require.Equal(t, 2, admitted(t, lim, feature("ada")))
				peeked := peek(t, lim, 1, feature("ada"))
				require.Equal(t, []any{false, pro[0]}, []any{peeked.Allowed, peeked.Limit})

				require.NoError(t, lim.Refund(ctx, &first), "under the former plan")
				require.Equal(t, 1, admitted(t, lim, feature("ada")))
				plan = free
				require.Equal(t, 0, admitted(t, lim, feature("ada")))

				next := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "9/d")}, DecideWithin: patience})
				require.NoError(t, next.Refund(ctx, &v), "of the former rules")
				require.Equal(t, 2, admitted(t, next, user("ada")))
			})
		})
	}
}

// Limits of a call that the rule's ladder does not hold are the caller's mistake,
// and nothing is counted.
func TestLimitsOfACallMustFit(t *testing.T) {
	rule := by("user", "20/h")
	lim := onMemory(t, rule)
	for limits, want := range map[string]string{
		"5/7d":      `limiter: event "signup", limits of the call by "user": counter: limit 5/7d: tiers: a window of 7d is longer than any tier of ladder "1s:1h, 1m:1h, 1h:1h" is kept`,
		"1/100ms":   `limiter: event "signup", limits of the call by "user": counter: limit 1/100ms: tiers: a window of 100ms would be read in buckets of 1s: ladder "1s:1h, 1m:1h, 1h:1h" keeps no finer tier that long`,
		"9/h, 10/s": `limiter: event "signup", limits of the call by "user" has 10/s, but the ladder "1s:1h, 1m:1h, 1h:1h" of the rule has buckets of 1s for it, want at most 50ms: list the limits in Rule.Plans, or set Rule.Ladder`,
		"9/h, 8/h":  `limiter: event "signup", limits of the call by "user" has 9/h and 8/h, want one limit for each window`,
	} {
		v, err := lim.Allow(ctx, "signup", limiter.Under(user("ada"), counter.MustLimits(limits)))
		require.EqualError(t, err, want)
		require.Equal(t, limiter.Verdict{}, v)
	}
	v := allow(t, lim, limiter.Under(user("ada"), nil))
	require.EqualValues(t, 19, v.Remaining, "nothing was counted, and no limits are those of the rule")

	rule.Plans = []counter.Limits{counter.MustLimits("10/s")}
	require.True(t, allow(t, onMemory(t, rule), limiter.Under(user("ada"), counter.MustLimits("9/h, 10/s"))).Allowed)
}

// A feature that is given twice under different limits is counted once, and judged
// under all of the limits, in any order.
func TestTheSameFeatureUnderTwoLimits(t *testing.T) {
	few, many := counter.MustLimits("2/h"), counter.MustLimits("9/h, 20/d")
	rule := by("user", "5/h")
	rule.Plans, rule.OnFailure = []counter.Limits{many}, limiter.FailLocal
	for _, first := range []bool{true, false} {
		store := &flakyStore{Store: memory.New(memory.Config{})}
		c := derivingCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{rule}, Local: localCounter(t)})
		features := featuresOf(limiter.Under(user("7"), few), limiter.Under(user("7"), many), limiter.Under(user("7"), many))
		if !first {
			slices.Reverse(features)
		}
		require.Equal(t, 2, admitted(t, lim, features...))
		require.Len(t, allow(t, lim, features...).All(), 3)
		require.Equal(t, 3, admitted(t, lim, user("7")))
		store.broken.Store(true)
		require.Zero(t, admitted(t, lim, features...))
		require.NoError(t, lim.Close(ctx))
	}
}

// One rule counts a visitor who is logged in as a user, and any other visitor as
// an address.
func TestUserElseIP(t *testing.T) {
	rule := by("user", "5/h")
	rule.Else, rule.ElseLimits = "ip", counter.MustLimits("2/h")
	home := ip("192.0.2.1")
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		lim, _ := withClock(t, store, newClock(), rule)
		require.Equal(t, 5, admitted(t, lim, home, user("ada")))
		require.Equal(t, 2, admitted(t, lim, home))
		v := allow(t, lim, home, user(""))
		require.Equal(t, []any{false, "ip", counter.MustLimits("2/h")[0]}, []any{v.Allowed, v.Kind(), v.Limit})
		require.Equal(t, 1, admitted(t, lim, limiter.Under(home, counter.MustLimits("3/h"))))
		v = allow(t, lim)
		require.Equal(t, "user", v.Missing)
	})
	shared := ifMissing(limiter.MissingShare, rule)
	lim := onMemory(t, shared)
	require.Equal(t, 5, admitted(t, lim), "by the limits of the rule")
	require.Equal(t, 2, admitted(t, lim, home))
}

// Limits of a call are shared out like those of a rule while the store fails, each
// on the ladder of its rule.
func TestPlansUnderLocalRules(t *testing.T) {
	rule := onFailure(limiter.FailLocal, by("user", "4/7d"))
	rule.Else, rule.ElseLimits = "ip", counter.MustLimits("2/h")
	address := onFailure(limiter.FailLocal, ifMissing(limiter.MissingSkip, by("email", "2/m")))
	store := &flakyStore{Store: memory.New(memory.Config{})}
	c := derivingCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{rule, address}, Share: 0.5, Local: localCounter(t)})
	pro, mail := counter.MustLimits("9/7d, 8/h"), feature.Email("ada@example.org")
	require.True(t, allow(t, lim, user("ada"), mail).Allowed)
	store.broken.Store(true)
	require.Equal(t, 0, admitted(t, lim, user("ada"), mail), "half of 2 in a minute")
	require.Equal(t, 1, admitted(t, lim, user("ada")))
	require.Equal(t, 2, admitted(t, lim, limiter.Under(user("ada"), pro)), "half of 8, with the two before")
	require.Equal(t, 0, admitted(t, lim, user("ada")))
	require.Equal(t, 1, admitted(t, lim, ip("192.0.2.1"), limiter.Under(mail, counter.MustLimits("4/m"))))
	store.broken.Store(false)
	// Hits counted here are held, or counted there, or both while a carry is under way.
	for feature, want := range map[feature.Feature]int{limiter.Under(user("ada"), pro): 4, ip("192.0.2.1"): 1} {
		got := 0
		require.Eventually(t, func() bool { got += admitted(t, lim, feature); return got >= want }, patience, time.Millisecond)
		require.Equal(t, want, got, feature.Kind())
	}
	require.Equal(t, 0, admitted(t, lim, user("bob"), mail))
	require.Eventually(t, func() bool { return lim.Stats().Pending == 0 }, patience, time.Millisecond)
	require.NoError(t, lim.Close(ctx))
	require.EqualValues(t, 5, lim.Stats().Carried, "three of ada, one of the address and one of the mail")
}

// A soft rule beside fails no call that brings a plan of the enforced rule.
func TestPlanBesideASoftRule(t *testing.T) {
	pro := counter.MustLimits("3/d, 9/30d")
	rule := by("user", "1/d")
	rule.Plans = []counter.Limits{pro}
	lim := onMemory(t, rule, soft(0, by("user", "1/h")))
	for n := range 4 {
		require.Equal(t, n < 3, allow(t, lim, limiter.Under(user("7"), pro)).Allowed)
	}
	require.ErrorContains(t, lim.Replace(rule, soft(0, on("1s:1h", by("user", "1/h")))),
		`rule "signup" by "user": the Plans of the enforced rule beside the soft rule: counter: limit 3/d: tiers: a window of 1d is longer`)
}

// Each rule has the ladder of all limits that the rule may have.
func TestLadderOfARule(t *testing.T) {
	given := try.To(tiers.Parse("10s:1d"))(t)
	other := try.To(tiers.Parse("1s:1d, 1m:1d"))(t)
	plan := by("ip", "5/m")
	plan.Plans = []counter.Limits{counter.MustLimits("9/s"), counter.MustLimits("9/h")}
	elsewhere := by("user", "5/m")
	elsewhere.Else, elsewhere.ElseLimits = "ip", counter.MustLimits("1/5s, 9/d")
	own := by("ip", "5/m")
	own.Ladder = other
	for _, row := range []struct {
		rules   []limiter.Rule
		counter tiers.Ladder
		want    string
	}{
		{[]limiter.Rule{by("ip", "5/m")}, tiers.Ladder{}, "1s:1m, 10s:1m"},
		{[]limiter.Rule{by("ip", "2/s")}, tiers.Ladder{}, "50ms:1s, 1s:1s"},
		{[]limiter.Rule{by("ip", "5/m, 20/h, 100/d")}, tiers.Ladder{}, "1s:1d, 1m:1d, 1h:1d"},
		{[]limiter.Rule{by("ip", "5/m"), by("ip", "20/h"), by("user", "1/s")}, tiers.Ladder{}, "1s:1h, 1m:1h, 1h:1h"},
		{[]limiter.Rule{plan}, tiers.Ladder{}, "50ms:1s, 1s:1h, 1m:1h, 1h:1h"},
		{[]limiter.Rule{elsewhere}, tiers.Ladder{}, "50ms:5s, 1s:1d, 1m:1d, 1h:1d"},
		{[]limiter.Rule{by("ip", "5/m")}, given, "10s:1d"},
		{[]limiter.Rule{by("ip", "5/m")}, tiers.Default, "1s:1d, 1m:1d, 1h:1d"},
		{[]limiter.Rule{own}, given, "1s:1d, 1m:1d"},
		{[]limiter.Rule{own}, tiers.Ladder{}, "1s:1d, 1m:1d"},
	} {
		c := derivingCounter(t, memory.New(memory.Config{}), counter.Config{Ladder: row.counter})
		rules := newLimiter(t, c, limiter.Config{Rules: row.rules}).Rules("signup")
		require.Equal(t, row.want, rules[0].Ladder.String(), "%v", row.rules)
	}
}

// A lone 5/m is gone within three minutes, and a lone 2/s within seconds.
func TestALoneRuleIsGone(t *testing.T) {
	for limits, most := range map[string]time.Duration{"5/m": 3 * time.Minute, "2/s": 10 * time.Second} {
		t.Run(limits, func(t *testing.T) {
			onStores(t, func(t *testing.T, store backend.Store, in stored) {
				c := derivingCounter(t, store, counter.Config{Patience: patience})
				lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", limits)}, DecideWithin: patience})
				require.True(t, allow(t, lim, ip("192.0.2.1")).Allowed)
				found := in.lives()
				require.NotEmpty(t, found)
				for name, life := range found {
					require.Positive(t, life, name)
					require.LessOrEqual(t, life, most, name)
				}
			})
		})
	}
}

// A rule that gets another ladder keeps its counts by Former: three of five were
// used on the former ladder, which also judges what is counted from now on.
func TestFormerLadderOfARule(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		clock, home := newClock(), ip("192.0.2.1")
		before, _ := withClock(t, store, clock, by("ip", "5/h"))
		for range 3 {
			require.True(t, allow(t, before, home).Allowed)
		}
		rule := by("ip", "5/h, 100/7d")
		rule.Former = &counter.Config{Ladder: before.Rules("signup")[0].Ladder}
		both, _ := withClock(t, store, clock, rule)
		require.Equal(t, 1, admitted(t, both, limiter.Under(home, counter.MustLimits("4/h"))))
		require.Equal(t, 1, admitted(t, both, home))
		require.Equal(t, 0, admitted(t, before, home))
	})
}

// Callers who always want more get Per / (Per + g + Skew) of a limit, as in the
// table in docs/operating.md, g being the width of the buckets at the window's
// edge: a hit leaves the window with its bucket. The wait ends at the end of a
// bucket, so the share varies a little. The clock is virtual.
func TestShareOfMax(t *testing.T) {
	const (
		windows = 60
		within  = 0.06
	)
	for _, row := range []struct {
		limit  string
		ladder tiers.Ladder
	}{
		{"2/s", tiers.Default},
		{"2/s", tiers.For(time.Second)},
		{"50/s", tiers.Default},
		{"50/s", tiers.For(time.Second)},
		{"10/10s", tiers.Default},
		{"10/10s", tiers.For(10 * time.Second)},
		{"10/m", tiers.Default},
		{"60/m", tiers.Default},
		{"10/h", tiers.Default},
	} {
		limits := counter.MustLimits(row.limit)
		per, limit := limits[0].Per, limits[0]
		finest := try.To(row.ladder.Finest(per))(t)
		g := row.ladder.At(finest).Width
		for _, skew := range []time.Duration{-1, counter.DefaultSkew} {
			want := float64(per) / float64(per+g+max(0, skew))
			for _, rate := range []int64{3, 30} { // times Max within Per
				now := time.Unix(1_772_494_233, 0)
				c := newCounter(t, memory.New(memory.Config{}), counter.Config{Ladder: row.ladder, Skew: skew, Patience: -1, Now: func() time.Time { return now }})
				step := per/time.Duration(rate*limit.Max) + 7*time.Microsecond // not in step with the buckets
				begin, admitted := now, 0
				for now.Sub(begin) < (windows+2)*per {
					v := try.To(c.Take(ctx, key("ip:192.0.2.1"), 1, limits))(t)
					if v.Allowed && now.Sub(begin) >= 2*per { // in the steady state
						admitted++
					}
					now = now.Add(step)
				}
				share := float64(admitted) / float64(windows*limit.Max)
				t.Logf("%-7s on %-24s skew %-6s demand %3d x Max: %.3f of Max, the formula says %.3f", limit, row.ladder, max(0, skew), rate, share, want)
				waits := float64(step) / float64(per) / 2 // for the next call
				require.InDelta(t, want, share, within+waits, "%s on %s", limit, row.ladder)
			}
		}
	}
}
