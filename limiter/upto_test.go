package limiter_test

import (
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
)

func allowUpTo(t testing.TB, lim *limiter.Limiter, n int64, features ...feature.Feature) limiter.Verdict {
	return try.To(lim.AllowUpTo(ctx, "signup", n, features...))(t)
}

// A batch takes what there is room for under all rules, on every store.
func TestAllowUpTo(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		ban := by("user", "20/h")
		ban.Ban = limiter.Bans{time.Hour}
		clock := newClock()
		lim, _ := withClock(t, store, clock, by("ip", "10/h"), ban, soft(0, by("ip", "3/h")))
		home, ada, eve := ip("192.0.2.1"), user("ada"), user("eve")
		v := allowUpTo(t, lim, 4, home, ada)
		require.EqualValues(t, 4, v.N())
		require.Zero(t, v.RetryAfter)
		require.True(t, v.Soft[0].Denied, "no room for 4")
		part := allowUpTo(t, lim, 9, home, eve)
		require.Equal(t, limiter.OutcomeAdmitted, part.Outcome())
		require.EqualValues(t, 6, part.N())
		require.Equal(t, "ip", part.Kind())
		require.Greater(t, part.RetryAfter, 50*time.Minute)
		remains(t, lim, 0, home)
		remains(t, lim, 14, eve)
		none := allowUpTo(t, lim, 9, home, limiter.Times(eve, 0))
		require.Equal(t, limiter.OutcomeOverLimit, none.Outcome())
		require.Zero(t, none.N())
		require.NoError(t, lim.Refund(ctx, &part))
		remains(t, lim, 6, home)
		remains(t, lim, 20, eve)
		require.EqualValues(t, 20, allowUpTo(t, lim, 900, user("bob"), ip("192.0.2.2"), limiter.Under(home, counter.MustLimits("100/h"))).N()+10, "the second address has 10")
		_, err := lim.AllowUpTo(ctx, "signup", 9, home, limiter.Times(eve, 2))
		require.ErrorContains(t, err, `limiter: event "signup": Times of a feature of kind "user" is 2, want 0 in AllowUpTo`)
		_, err = lim.AllowUpTo(ctx, "signup", 0, home)
		require.ErrorContains(t, err, "n is 0, want 1 to")
	})
}

// While the store fails, a batch takes what there is room for in the share of this
// process, and the hits are carried; an open rule lets all of it through, and counts
// nothing.
func TestAllowUpToWithoutTheStore(t *testing.T) {
	var seen []int64
	s := newLocalStage(t, limiter.Config{Share: 0.5, Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}, Observe: func(d limiter.Decision) { seen = append(seen, d.N) }})
	home := ip("192.0.2.1")
	require.EqualValues(t, 2, allowUpTo(t, s.lim, 2, home).N())
	s.store.broken.Store(true)
	v := allowUpTo(t, s.lim, 9, home)
	require.Equal(t, limiter.OutcomeLocalAdmitted, v.Outcome())
	require.EqualValues(t, 3, v.N(), "of a share of 5, 2 are mirrored")
	require.Positive(t, v.RetryAfter)
	require.Equal(t, limiter.OutcomeLocalOverLimit, allowUpTo(t, s.lim, 9, home).Outcome())
	other := ip("192.0.2.2")
	back := allowUpTo(t, s.lim, 4, other)
	require.EqualValues(t, 4, back.N())
	require.NoError(t, s.lim.Refund(ctx, &back))
	require.EqualValues(t, 5, allowUpTo(t, s.lim, 90, other).N(), "n above Max is no mistake")
	s.store.broken.Store(false)
	require.NoError(t, s.lim.Close(ctx))
	require.EqualValues(t, 5, counted(t, s.c, "ip:192.0.2.1"))
	require.EqualValues(t, 5, counted(t, s.c, "ip:192.0.2.2"))
	require.Equal(t, []int64{2, 3, 9, 4, 5}, seen)

	store := &flakyStore{Store: memory.New(memory.Config{})}
	store.broken.Store(true)
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailOpen, by("ip", "3/h"))}})
	v = allowUpTo(t, lim, 9, home)
	require.Equal(t, limiter.OutcomeFailedOpen, v.Outcome())
	require.EqualValues(t, 9, v.N())
}

// Hits that wait to be carried leave the rest of a limit to a batch.
func TestAllowUpToNextToPendingHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuckStore{flakyStore: flakyStore{Store: memory.New(memory.Config{})}}
		c := newCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}, Local: localCounter(t)})
		home := ip("192.0.2.1")
		store.broken.Store(true)
		store.stuck = true
		require.EqualValues(t, 4, allowUpTo(t, lim, 4, home).N())
		store.broken.Store(false)
		v := allowUpTo(t, lim, 90, home)
		require.Equal(t, limiter.OutcomeAdmitted, v.Outcome())
		require.EqualValues(t, 6, v.N())
		require.Equal(t, []int64{6, 4}, []int64{counted(t, c, "ip:192.0.2.1"), lim.Stats().Pending})
		require.ErrorContains(t, lim.Close(over), "limiter: Close: 4 hits")
	})
}
