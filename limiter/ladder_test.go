package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// Each rule has the ladder of all limits that the rule may have.
func TestLadderOfARule(t *testing.T) {
	given, err := tiers.Parse("10s:1d")
	require.NoError(t, err)
	other, err := tiers.Parse("1s:1d, 1m:1d")
	require.NoError(t, err)
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
		c, err := counter.New(memory.New(memory.Config{}), counter.Config{Ladder: row.counter})
		require.NoError(t, err)
		rules := newLimiter(t, c, limiter.Config{Rules: row.rules}).Rules("signup")
		require.Equal(t, row.want, rules[0].Ladder.String(), "%v", row.rules)
	}
}

// A lone 5/m is gone within three minutes, and a lone 2/s within seconds.
func TestALoneRuleIsGone(t *testing.T) {
	for limits, most := range map[string]time.Duration{"5/m": 3 * time.Minute, "2/s": 10 * time.Second} {
		t.Run(limits, func(t *testing.T) {
			onStores(t, func(t *testing.T, store backend.Store, in stored) {
				c, err := counter.New(store, counter.Config{Patience: patience})
				require.NoError(t, err)
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

// Rules with ladders of their own are judged together, refunded together, and
// counted locally each on its ladder.
func TestRulesOfSeveralLadders(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		clock := newClock()
		lim, _ := withClock(t, store, clock, by("ip", "3/15s"), by("user", "4/h"))
		home, ada := ip("192.0.2.1"), user("ada")
		first := allow(t, lim, home, ada)
		for range 2 {
			require.True(t, allow(t, lim, home, ada).Allowed)
		}
		denied := allow(t, lim, home, ada)
		require.False(t, denied.Allowed)
		require.Equal(t, "ip", denied.Kind())
		require.LessOrEqual(t, denied.RetryAfter, 15*time.Second+50*time.Millisecond+2*counter.DefaultSkew)
		require.NoError(t, lim.Refund(ctx, &first))
		require.True(t, allow(t, lim, home, ada).Allowed)
		clock.pass(16 * time.Second)
		require.True(t, allow(t, lim, home, ada).Allowed)
		denied = allow(t, lim, home, ada)
		require.False(t, denied.Allowed)
		require.Equal(t, "user", denied.Kind())
		require.Equal(t, counter.MustLimits("4/h")[0], denied.Limit)
	})
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
