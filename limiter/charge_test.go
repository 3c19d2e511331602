package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
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
	v, err := lim.Charge(ctx, "signup", 4, home, ada)
	require.NoError(t, err)
	require.True(t, v.Allowed)
	require.EqualValues(t, 1, v.Remaining)
	over, err := lim.Charge(ctx, "signup", 3, home, ada)
	require.NoError(t, err)
	require.False(t, over.Allowed)
	require.False(t, over.At().IsZero(), "counted")
	require.Equal(t, "ip", over.Kind())
	require.EqualValues(t, 7, counted(t, c, "ip:192.0.2.1"))
	require.EqualValues(t, 7, counted(t, c, "user:ada"))
	now, err := lim.Peek(ctx, "signup", 0, home, ada)
	require.NoError(t, err)
	require.False(t, now.Allowed)
	require.InDelta(t, over.RetryAfter, now.RetryAfter, float64(time.Second))
	require.False(t, allow(t, lim, home, ada).Allowed)
	require.NoError(t, lim.Refund(ctx, &over))
	now, err = lim.Peek(ctx, "signup", 0, home, ada)
	require.NoError(t, err)
	require.True(t, now.Allowed)
	require.EqualValues(t, 1, now.Remaining)

	missing, err := lim.Charge(ctx, "signup", 1, home)
	require.NoError(t, err)
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
		v, err := s.lim.Charge(ctx, "signup", 4, home)
		require.NoError(t, err)
		require.Equal(t, want, v.Outcome(), i)
		require.False(t, v.At().IsZero())
	}
	s.store.broken.Store(false)
	require.Eventually(t, func() bool { return counted(t, s.c, "ip:192.0.2.1") == 12 }, 10*time.Second, 10*time.Millisecond)
	v, err := s.lim.Charge(ctx, "signup", 1, home)
	require.NoError(t, err)
	require.Equal(t, limiter.OutcomeOverLimit, v.Outcome())
	require.EqualValues(t, 13, counted(t, s.c, "ip:192.0.2.1"))
	require.EqualValues(t, 13, counted(t, s.here, "ip:192.0.2.1"), "mirrored")
	require.NoError(t, s.lim.Close(ctx))

	for policy, want := range map[limiter.OnFailure]limiter.Outcome{limiter.FailOpen: limiter.OutcomeFailedOpen, limiter.FailClosed: limiter.OutcomeFailedClosed} {
		store := &flakyStore{Store: memory.New(memory.Config{})}
		store.broken.Store(true)
		lim := newLimiter(t, newCounter(t, struct{ backend.Atomic }{store}, counter.Config{}), limiter.Config{Rules: []limiter.Rule{onFailure(policy, by("ip", "5/h"))}})
		v, err := lim.Charge(ctx, "signup", 1, home)
		require.NoError(t, err)
		require.Equal(t, want, v.Outcome())
		require.True(t, v.At().IsZero())
	}
}

// A charge beyond the largest count is the caller's mistake, not a failure of the
// store: no policy lets it through.
func TestChargeBeyondMaxCount(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ func() map[string]time.Duration) {
		for _, policy := range []limiter.OnFailure{limiter.FailOpen, limiter.FailClosed} {
			rule := onFailure(policy, by("user", "5/h"))
			lim, c := withClock(t, store, newClock(), rule)
			ada := user(policy.String())
			_, err := lim.Charge(ctx, "signup", counter.MaxCount, ada)
			require.NoError(t, err)
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
