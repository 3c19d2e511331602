package limiter_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// Charge counts under all rules, over or not, and later calls find the hits.
func TestCharge(t *testing.T) {
	var seen []limiter.Outcome
	c := localCounter(t)
	lim := newLimiter(t, c, limiter.Config{
		Rules:   []limiter.Rule{by("ip", "5/h"), by("user", "9/d")},
		Observe: func(d limiter.Decision) { seen = append(seen, d.Outcome) },
	})
	home, ada := ip("192.0.2.1"), user("ada")
	v := charge(t, lim, 4, home, ada)
	require.True(t, v.Allowed)
	require.EqualValues(t, 1, v.Remaining)
	over := charge(t, lim, 3, home, ada)
	require.False(t, over.Allowed)
	require.False(t, over.At().IsZero(), "counted")
	require.Equal(t, "ip", over.Kind())
	require.EqualValues(t, 7, counted(t, c, "ip:192.0.2.1"))
	require.EqualValues(t, 7, counted(t, c, "user:ada"))
	now := peek(t, lim, 0, home, ada)
	require.False(t, now.Allowed)
	require.InDelta(t, over.RetryAfter, now.RetryAfter, float64(time.Second))
	require.False(t, allow(t, lim, home, ada).Allowed)
	require.NoError(t, lim.Refund(ctx, &over))
	now = peek(t, lim, 0, home, ada)
	require.True(t, now.Allowed)
	require.EqualValues(t, 1, now.Remaining)

	missing := charge(t, lim, 1, home)
	require.Equal(t, "user", missing.Missing)
	require.True(t, missing.At().IsZero(), "not counted")
	require.Equal(t, []limiter.Outcome{limiter.OutcomeAdmitted, limiter.OutcomeOverLimit, limiter.OutcomeOverLimit, limiter.OutcomeMissing}, seen)
}

// While the store fails, a charge is counted in the process, over or not, and
// carried to the store. Under the other policies nothing is counted, and the
// Verdict says so.
func TestChargeWhileTheStoreFails(t *testing.T) {
	s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "5/h"))}})
	home := ip("192.0.2.1")
	s.store.broken.Store(true)
	for i, want := range outcomes(limiter.OutcomeLocalAdmitted, limiter.OutcomeLocalOverLimit, limiter.OutcomeLocalOverLimit) {
		v := charge(t, s.lim, 4, home)
		require.Equal(t, want, v.Outcome(), i)
		require.False(t, v.At().IsZero())
	}
	s.store.broken.Store(false)
	require.Eventually(t, func() bool { return counted(t, s.c, "ip:192.0.2.1") == 12 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, limiter.OutcomeOverLimit, charge(t, s.lim, 1, home).Outcome())
	require.EqualValues(t, 13, counted(t, s.c, "ip:192.0.2.1"))
	require.EqualValues(t, 13, counted(t, s.here, "ip:192.0.2.1"), "mirrored")
	require.NoError(t, s.lim.Close(ctx))

	for policy, want := range map[limiter.OnFailure]limiter.Outcome{limiter.FailOpen: limiter.OutcomeFailedOpen, limiter.FailClosed: limiter.OutcomeFailedClosed} {
		store := &flakyStore{Store: memory.New(memory.Config{})}
		store.broken.Store(true)
		lim := newLimiter(t, newCounter(t, struct{ backend.Atomic }{store}, counter.Config{}), limiter.Config{Rules: []limiter.Rule{onFailure(policy, by("ip", "5/h"))}})
		v := charge(t, lim, 1, home)
		require.Equal(t, want, v.Outcome())
		require.True(t, v.At().IsZero())
	}
}

// A charge beyond the largest count is the caller's mistake, not a failure of the
// store: no policy lets it through.
func TestChargeBeyondMaxCount(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		for _, policy := range []limiter.OnFailure{limiter.FailOpen, limiter.FailClosed} {
			rule := onFailure(policy, by("user", "5/h"))
			lim, c := withClock(t, store, newClock(), rule)
			ada := user(policy.String())
			charge(t, lim, counter.MaxCount, ada)
			v, err := lim.Charge(ctx, "signup", 1, ada)
			require.ErrorIs(t, err, backend.ErrMaxCount)
			require.NotErrorIs(t, err, counter.ErrStore)
			require.ErrorContains(t, err, `event "signup": `)
			require.ErrorContains(t, err, "the count would exceed 2^53-1")
			require.Equal(t, limiter.Verdict{}, v)
			require.NotErrorIs(t, c.Add(ctx, counter.Key{Event: "signup", Feature: "user:" + policy.String()}, counter.MaxCount), counter.ErrStore)
		}
	})
}

// A Charge below zero gives back the newest hits of each feature, and observes nothing.
func TestCredit(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		clock, decisions := newClock(), 0
		c, err := counter.New(store, counter.Config{Patience: patience, Now: clock.now})
		require.NoError(t, err)
		banning := by("user", "9/h")
		banning.Ban = 2 * time.Hour
		lim := newLimiter(t, c, limiter.Config{
			Rules:        []limiter.Rule{by("ip", "5/h"), banning, soft(0, by("user", "3/d")), soft(0, ifMissing(limiter.MissingSkip, by("email", "9/s, 3/d")))},
			DecideWithin: 2 * patience, Observe: func(limiter.Decision) { decisions++ },
		})
		home, ada, mail := ip("192.0.2.1"), user("ada"), feature.Email("ada@example.org")
		credit := func(n int64, features ...feature.Feature) limiter.Verdict {
			t.Helper()
			v := charge(t, lim, n, features...)
			require.True(t, v.At().IsZero(), "a credit has no hits")
			return v
		}
		v := credit(-3, home, ada, mail)
		require.True(t, v.Allowed)
		require.EqualValues(t, 5, v.Remaining, "no count is below zero")

		charge(t, lim, 3, home, ada, mail)
		decisions = 0
		clock.pass(5 * time.Second)
		v = credit(-2, home, ada, mail)
		require.EqualValues(t, 4, v.Remaining)
		require.Len(t, v.Soft, 2)
		require.EqualValues(t, 1, countedBy(t, lim, ada))
		require.EqualValues(t, 1, countedBy(t, lim, mail), "the key that counts for the soft rule")

		charge(t, lim, 6, home, ada)
		v = credit(-1, home, limiter.Times(ada, 4), limiter.Charged(ada))
		require.False(t, v.Allowed, "6 of 5 are left")
		require.Equal(t, counter.Limit{Max: 5, Per: time.Hour}, v.Limit)
		require.EqualValues(t, 3, countedBy(t, lim, ada))
		credit(-9, limiter.Times(home, 0), limiter.Times(ada, 0))
		require.EqualValues(t, 6, countedBy(t, lim, home), "nothing is given back")
		credit(-9, limiter.Times(home, 0), ada)
		require.EqualValues(t, 6, countedBy(t, lim, home))
		require.Zero(t, countedBy(t, lim, ada))
		require.Equal(t, "user", credit(-2, home).Missing)
		require.EqualValues(t, 6, countedBy(t, lim, home))

		for _, n := range []int64{math.MinInt64, -counter.MaxCount - 1} {
			v, err = lim.Charge(ctx, "signup", n, home, ada)
			require.EqualError(t, err, fmt.Sprintf(`limiter: event "signup": n is %d, want -9007199254740991 to -1, or 1 to 9007199254740991`, n))
			require.Equal(t, limiter.Verdict{}, v)
		}
		require.EqualValues(t, 6, countedBy(t, lim, home))
		credit(-counter.MaxCount, home, home, ada)
		require.Zero(t, countedBy(t, lim, home))
		require.Equal(t, 1, decisions, "of the second Charge")

		require.False(t, allowN(t, lim, 9, ip("192.0.2.3"), ada).Allowed)
		charge(t, lim, 9, ip("192.0.2.3"), ada)
		require.Equal(t, limiter.OutcomeBanned, allow(t, lim, ip("192.0.2.2"), ada).Outcome())
		v = credit(-9, ip("192.0.2.2"), ada)
		require.True(t, v.Banned, "a ban holds on")
		require.Zero(t, countedBy(t, lim, ada))
	})
}

// countedBy is the count of the enforced key of a feature.
func countedBy(t *testing.T, lim *limiter.Limiter, f feature.Feature) int64 {
	t.Helper()
	usage, err := lim.Usage(ctx, "signup", f)
	require.NoError(t, err)
	return usage[0].Total.High
}

// A credit lets a call of Wait ask at once.
func TestCreditWakesWait(t *testing.T) {
	lim := onMemory(t, by("ip", "2/h"))
	home := ip("192.0.2.1")
	require.True(t, allowN(t, lim, 2, home).Allowed)
	waited := make(chan error)
	go func() {
		_, err := lim.Wait(ctx, "signup", home)
		waited <- err
	}()
	require.Eventually(t, func() bool { return lim.Stats().Waiting == 1 }, patience, time.Millisecond)
	charge(t, lim, -1, home)
	select {
	case err := <-waited:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the call still waits")
	}
}

// A credit of a failing store is its error under every policy, and nothing is given
// back in the process.
func TestCreditWhileTheStoreFails(t *testing.T) {
	for _, policy := range []limiter.OnFailure{limiter.FailClosed, limiter.FailOpen, limiter.FailLocal} {
		s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(policy, by("ip", "5/h"))}})
		home := ip("192.0.2.1")
		require.True(t, allowN(t, s.lim, 3, home).Allowed)
		before := counted(t, s.here, "ip:192.0.2.1")
		s.store.broken.Store(true)
		v, err := s.lim.Charge(ctx, "signup", -2, home)
		require.ErrorIs(t, err, counter.ErrStore)
		require.ErrorContains(t, err, `limiter: credit: `)
		require.Equal(t, limiter.Verdict{}, v)
		s.store.broken.Store(false)
		require.EqualValues(t, 3, counted(t, s.c, "ip:192.0.2.1"))
		charge(t, s.lim, -2, home)
		require.EqualValues(t, 1, counted(t, s.c, "ip:192.0.2.1"))
		require.Equal(t, before, counted(t, s.here, "ip:192.0.2.1"))
		require.NoError(t, s.lim.Close(ctx))
	}
}
