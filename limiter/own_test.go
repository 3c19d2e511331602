package limiter_test

import (
	"context"
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

// remains are the remaining hits of a feature now.
func remains(t testing.TB, lim *limiter.Limiter, want int64, f feature.Feature) {
	usage := usageOf(t, lim, f)
	require.Equal(t, want, usage[0].Limits[0].Remaining, f.Value())
}

// A feature may have hits of its own, of any number: in a call of one, of many, in a
// charge, and in a refund.
func TestTimes(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		clock := newClock()
		fresh := func() *limiter.Limiter { // remembers no denial
			lim, _ := withClock(t, store, clock, by("ip", "20/h"), ifMissing(limiter.MissingSkip, by("user", "20/h")), ifMissing(limiter.MissingSkip, by("model", "20/h")))
			return lim
		}
		lim := fresh()
		home, ada, model := ip("192.0.2.1"), user("ada"), feature.New("model", "large")
		three := featuresOf(home, limiter.Times(ada, 5), limiter.Times(model, 0))
		left := func(wants ...int64) {
			t.Helper()
			for i, f := range featuresOf(home, ada, model) {
				remains(t, lim, wants[i], f)
			}
		}
		v := allow(t, lim, three...)
		require.True(t, v.Allowed)
		left(19, 15, 20)
		many := allowN(t, lim, 2, three...)
		require.True(t, many.Allowed)
		left(17, 10, 20)
		require.NoError(t, lim.Refund(ctx, &v))
		left(18, 15, 20)
		charged := charge(t, lim, 1, home, limiter.Times(model, 21))
		require.False(t, charged.Allowed)
		left(17, 15, 0)

		before := lim
		lim = fresh()
		v = allow(t, lim, three...)
		require.Equal(t, limiter.OutcomeOverLimit, v.Outcome(), "the model is over")
		require.Equal(t, "model", v.Kind())
		left(17, 15, 0)
		require.NoError(t, before.Refund(ctx, &charged))
		lim = fresh()
		require.False(t, peek(t, lim, 1, home, limiter.Times(ada, 16)).Allowed)
		v = try.To(lim.WaitN(ctx, "signup", 1, home, limiter.Times(ada, 15)))(t)
		require.True(t, v.Allowed)
		left(17, 0, 20)
		_, err := lim.Wait(ctx, "signup", home, limiter.Times(ada, 21))
		require.ErrorIs(t, err, limiter.ErrNever)
		require.ErrorContains(t, err, "n is 21, want at most 20 under 20/h by \"user\"")
	})
}

// A call of no hits at all asks, and counts nothing.
func TestTimesZeroAlone(t *testing.T) {
	var seen []limiter.Decision
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{{Event: "signup", Kind: "user", Limits: counter.MustLimits("2/m"), Ban: limiter.Bans{time.Hour}}}, Observe: func(d limiter.Decision) { seen = append(seen, d) }})
	for range 3 {
		v := allow(t, lim, limiter.Times(user("ada"), 0))
		require.Equal(t, []any{limiter.OutcomeAdmitted, int64(2)}, []any{v.Outcome(), v.Remaining})
		require.True(t, v.At().IsZero())
		require.NoError(t, lim.Refund(ctx, &v))
	}
	require.Len(t, seen, 3)
	charge(t, lim, 3, user("ada"))
	v := allow(t, lim, limiter.Times(user("ada"), 0))
	require.Equal(t, limiter.OutcomeOverLimit, v.Outcome(), "no ban")
	require.Positive(t, v.RetryAfter)
	require.ErrorIs(t, try.Err(lim.Wait(loaned(t), "signup", limiter.Times(user("ada"), 0))), limiter.ErrWaitTooLong)
	require.Equal(t, limiter.OutcomeBanned, allow(t, lim, user("ada")).Outcome(), "a call with hits begins the ban")
	require.Equal(t, limiter.OutcomeBanned, allow(t, lim, limiter.Times(user("ada"), 0)).Outcome())
}

// A Charge of no hits at all asks too, with the store and without.
func TestTimesZeroInACharge(t *testing.T) {
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("user", "2/h"))}})
	ada := user("ada")
	charge := func(f feature.Feature, want limiter.Outcome) {
		require.Equal(t, want, charge(t, s.lim, 1, f).Outcome())
	}
	for range 3 {
		charge(limiter.Times(ada, 0), limiter.OutcomeAdmitted)
	}
	require.Zero(t, counted(t, s.c, "user:ada"))
	charge(limiter.Times(ada, 3), limiter.OutcomeOverLimit)
	charge(limiter.Charged(limiter.Times(ada, 0)), limiter.OutcomeOverLimit)
	require.EqualValues(t, 3, counted(t, s.c, "user:ada"))
	s.store.broken.Store(true)
	charge(limiter.Times(user("eve"), 0), limiter.OutcomeLocalAdmitted)
	s.store.broken.Store(false)
	require.NoError(t, s.lim.Close(ctx))
	require.Zero(t, counted(t, s.c, "user:eve"))
}

// loaned is a context with a deadline in a second.
func loaned(t testing.TB) context.Context {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	t.Cleanup(cancel)
	return soon
}

// Equal features count once, with the larger n; a missing feature has its n as well;
// LimitsOf hears of it; Under and Times are for one feature in any order.
func TestTimesOfOneFeature(t *testing.T) {
	rule := ifMissing(limiter.MissingShare, by("user", "9/h"))
	rule.Plans = []counter.Limits{counter.MustLimits("5/h")}
	var asked []int64
	rule.LimitsOf = func(_ context.Context, c limiter.Call) counter.Limits {
		asked = append(asked, c.N)
		return nil
	}
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{rule, soft(0, by("user", "3/h"))}})
	ada := user("ada")
	v := allow(t, lim, ada, limiter.Times(ada, 3), limiter.Times(ada, 2))
	require.Equal(t, []any{int64(6), false}, []any{v.Remaining, v.Soft[0].Denied})
	require.EqualValues(t, 3, counted(t, c, "user:ada"))
	require.Equal(t, []int64{1, 3, 2}, asked)
	require.True(t, allow(t, lim, ada).Soft[0].Denied, "the soft key has the hits too")
	allow(t, lim, limiter.Times(user(""), 4))
	require.EqualValues(t, 4, counted(t, c, "user:"))
	five := counter.MustLimits("5/h")
	for _, f := range featuresOf(limiter.Under(limiter.Times(ada, 2), five), limiter.Times(limiter.Under(ada, five), 2)) {
		v = allow(t, lim, f)
		require.Equal(t, []any{false, five[0]}, []any{v.Allowed, v.Limit})
	}
	require.True(t, allow(t, lim, limiter.Times(limiter.Under(ada, five), 1)).Allowed)
	require.EqualValues(t, 5, counted(t, c, "user:ada"))
}

func TestTimesOutOfRange(t *testing.T) {
	lim := onMemory(t, by("user", "9/h"))
	for n, want := range map[int64]string{
		-1:                   `limiter: event "signup": Times of a feature of kind "user" is -1, want 0 to 9007199254740991`,
		counter.MaxCount + 1: `limiter: event "signup": Times of a feature of kind "user" is 9007199254740992, want 0 to 9007199254740991`,
	} {
		require.EqualError(t, try.Err(lim.Allow(ctx, "signup", user("bob"), limiter.Times(user("ada"), n))), want)
		require.EqualError(t, try.Err(lim.Wait(ctx, "signup", limiter.Times(user("ada"), n))), want)
	}
}

// Hits of a feature's own are counted in the process as well, mirrored, carried and
// given back.
func TestTimesWhileTheStoreFails(t *testing.T) {
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "9/h")), onFailure(limiter.FailLocal, by("user", "9/h"))}})
	home, ada := limiter.Times(ip("192.0.2.1"), 4), limiter.Times(user("ada"), 0)
	here := func(ip, user int64) {
		require.Equal(t, []any{ip, user}, []any{counted(t, s.here, "ip:192.0.2.1"), counted(t, s.here, "user:ada")})
	}
	require.True(t, allow(t, s.lim, home, ada).Allowed)
	here(4, 0)
	s.store.broken.Store(true)
	v := allow(t, s.lim, home, ada)
	require.Equal(t, limiter.OutcomeLocalAdmitted, v.Outcome())
	here(8, 0)
	require.Equal(t, limiter.OutcomeLocalOverLimit, allow(t, s.lim, home, ada).Outcome())
	require.NoError(t, s.lim.Refund(ctx, &v))
	here(4, 0)
	require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, s.lim, home, limiter.Times(ada, 2)).Outcome())
	charged := allow(t, s.lim, limiter.Charged(home), ada)
	require.Equal(t, limiter.OutcomeLocalAdmitted, charged.Outcome(), "over, and charged")
	here(12, 2)
	s.store.broken.Store(false)
	require.NoError(t, s.lim.Close(ctx))
	require.Equal(t, []int64{12, 2}, []int64{counted(t, s.c, "ip:192.0.2.1"), counted(t, s.c, "user:ada")})
}

// Open hits of a feature are its own hits.
func TestTimesOfOpenHits(t *testing.T) {
	lim := onMemory(t, by("ip", "9/h"), by("user", "4/h"))
	home, ada := ip("192.0.2.1"), user("ada")
	v := allowOpen(t, lim, 1, home, limiter.Times(ada, 3))
	require.Less(t, allow(t, lim, home, limiter.Times(ada, 2)).RetryAfter, time.Minute, "open hits may yet go")
	require.NoError(t, lim.Refund(ctx, &v))
	remains(t, lim, 9, home)
	remains(t, lim, 4, ada)
	require.True(t, allow(t, lim, home, limiter.Times(ada, 4)).Allowed)
}

// A charged feature counts over its limit in a call that others admit, and not at all
// in a call that others deny.
func TestCharged(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		lim, c := withClock(t, store, newClock(), by("ip", "3/h"), limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits("5/h"), Ban: limiter.Bans{2 * time.Hour}})
		home, cost := ip("192.0.2.1"), limiter.Charged(limiter.Times(user("ada"), 3))
		ladder := lim.Rules("signup")[1].Ladder
		of := try.To(c.With(ladder, nil))(t)
		for i, over := range []bool{false, true, true} {
			v := allow(t, lim, home, cost)
			require.Equal(t, []any{limiter.OutcomeAdmitted, "ip"}, []any{v.Outcome(), v.Kind()})
			require.EqualValues(t, 2-i, v.Remaining)
			states := v.All()
			require.Len(t, states, 2)
			require.Equal(t, over, states[1].RetryAfter > 0)
			require.EqualValues(t, max(0, 2-3*i), states[1].Remaining)
			require.EqualValues(t, 3*(i+1), counted(t, of, "user:ada"))
		}
		require.False(t, allow(t, lim, home, cost).Allowed)
		require.EqualValues(t, 9, counted(t, of, "user:ada"), "nothing was charged")
		alone := allow(t, lim, cost)
		require.Equal(t, "ip", alone.Missing)
		require.NoError(t, lim.Replace(lim.Rules("signup")[1], ifMissing(limiter.MissingSkip, by("ip", "3/h"))))
		alone = allow(t, lim, cost)
		require.Equal(t, []any{limiter.OutcomeAdmitted, "user"}, []any{alone.Outcome(), alone.Kind()})
		require.Positive(t, alone.RetryAfter)
		require.EqualValues(t, 12, counted(t, of, "user:ada"))
		require.NoError(t, lim.Refund(ctx, &alone))
		require.EqualValues(t, 9, counted(t, of, "user:ada"))
		waited := try.To(lim.Wait(ctx, "signup", cost))(t)
		require.True(t, waited.Allowed)
		require.Equal(t, limiter.OutcomeBanned, allow(t, lim, user("ada")).Outcome())
		require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, cost).Outcome(), "heeds no ban")
	})
}

// A state says which feature of the call it is of, also while the store fails.
func TestStatesNameTheirFeatures(t *testing.T) {
	denied := by("user", "1/h")
	denied.Overrides = []limiter.Override{{Value: "eve", Denied: true}}
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{
		onFailure(limiter.FailLocal, by("ip", "90/h, 900/d")), onFailure(limiter.FailLocal, ifMissing(limiter.MissingShare, by("user", "90/h"))),
		onFailure(limiter.FailLocal, ifMissing(limiter.MissingSkip, by("model", "90/h"))), soft(0, denied),
	}})
	one, two := ip("192.0.2.1"), ip("192.0.2.2")
	asks := func(features ...feature.Feature) (asks []int, soft []int) {
		v := allow(t, s.lim, features...)
		require.True(t, v.Allowed)
		for _, state := range v.All() {
			asks = append(asks, state.Ask)
			require.Equal(t, state.Ask < 0, state.Key.Feature == "user:")
			if state.Ask >= 0 {
				require.Contains(t, state.Key.Feature, features[state.Ask].Value())
			}
		}
		for _, v := range v.Soft {
			soft = append(soft, v.Ask)
		}
		return asks, soft
	}
	for _, broken := range []bool{false, true} {
		s.store.broken.Store(broken)
		got, soft := asks(feature.New("other", "x"), user("ada"), two, user("bob"), one, two)
		require.Equal(t, []int{2, 2, 4, 4, 1, 3}, got)
		if !broken {
			require.Equal(t, []int{1, 3}, soft)
		}
		got, _ = asks(feature.New("model", "large"), one)
		require.Equal(t, []int{1, 1, -1, 0}, got)
		got, soft = asks(one, user("eve"))
		require.Equal(t, []int{0, 0, 1}, got)
		if !broken {
			require.Equal(t, []int{1}, soft, "by an Override")
		}
	}
	s.store.broken.Store(false)
	require.NoError(t, s.lim.Close(ctx))
}
