package limiter_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// A refund gives back in all keys of the call, once for all copies.
func TestRefund(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h"), by("user", "5/h")}})
	features := featuresOf(ip("192.0.2.1"), user("ada"), user("bob"))
	both := func(want int64) {
		t.Helper()
		for _, feature := range []string{"ip:192.0.2.1", "user:ada", "user:bob"} {
			require.Equal(t, want, counted(t, c, feature), feature)
		}
	}
	first := allow(t, lim, features...)
	v := allowN(t, lim, 3, features...)
	both(4)
	same := v
	require.NoError(t, lim.Refund(ctx, &v))
	both(1)
	require.Equal(t, limiter.Verdict{}, v)
	require.NoError(t, lim.Refund(ctx, &v), "an empty one")
	require.NoError(t, lim.Refund(ctx, &same), "a copy")
	require.Equal(t, limiter.Verdict{}, same)
	both(1)
	require.NoError(t, lim.Refund(ctx, &first))
	both(0)
}

// A verdict without a hit gives nothing back.
func TestRefundOfNothing(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "2/h"), ifMissing(limiter.MissingSkip, by("user", "2/h"))}})
	home := ip("192.0.2.1")
	allow(t, lim, home)
	allow(t, lim, home)
	denied := allow(t, lim, home)
	require.False(t, denied.Allowed)
	peeked := peek(t, lim, 1, home)
	missing := allow(t, lim)
	for name, v := range map[string]limiter.Verdict{"denied": denied, "peeked": peeked, "missing": missing, "zero": {}} {
		require.NoError(t, lim.Refund(ctx, &v), name)
		require.Equal(t, limiter.Verdict{}, v, name)
	}
	require.EqualValues(t, 2, counted(t, c, "ip:192.0.2.1"))
}

// A refund whose caller is gone before the first call can be tried again: the
// hit is not lost. A refund whose store failed cannot, since nobody knows the
// effect of the call.
func TestRefundThatFails(t *testing.T) {
	store := &flakyStore{Store: memory.New(memory.Config{})}
	c := newCounter(t, store, counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "2/h"), by("user", "2/h")}})
	features := featuresOf(ip("192.0.2.1"), user("ada"))
	v := allow(t, lim, features...)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	err := lim.Refund(gone, &v)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "limiter: refund: ")
	require.True(t, v.Allowed)
	require.NoError(t, lim.Refund(ctx, &v))
	require.EqualValues(t, 0, counted(t, c, "ip:192.0.2.1"))
	require.EqualValues(t, 0, counted(t, c, "user:ada"))

	v = allow(t, lim, features...)
	same := v
	store.broken.Store(true)
	err = lim.Refund(ctx, &v)
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "limiter: refund: ")
	require.NotContains(t, err.Error(), "192.0.2.1")
	require.Equal(t, limiter.Verdict{}, v)
	store.broken.Store(false)
	require.NoError(t, lim.Refund(ctx, &same))
	require.EqualValues(t, 1, counted(t, c, "user:ada"))

	other := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("ip", "2/h")}})
	v = allow(t, lim, features...)
	require.ErrorContains(t, other.Refund(ctx, &v), "of another Counter")
}
