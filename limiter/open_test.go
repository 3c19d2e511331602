package limiter_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// A denial that open hits alone explain is told a short wait, and begins no ban.
func TestOpenHits(t *testing.T) {
	rule := by("ip", "2/15m, 3/d")
	rule.Ban = 24 * time.Hour
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}})
	home := ip("192.0.2.1")
	open := func() limiter.Verdict {
		t.Helper()
		v := allowOpen(t, lim, 1, home)
		return v
	}
	first, second := open(), open()
	require.True(t, first.Allowed && second.Allowed)
	for _, v := range []limiter.Verdict{open(), allow(t, lim, home)} {
		require.False(t, v.Allowed || v.Banned)
		require.LessOrEqual(t, v.RetryAfter, 1500*time.Millisecond)
		require.Equal(t, v.RetryAfter, v.All()[0].RetryAfter)
		lim.Keep(&v) // no hits
	}
	require.NoError(t, lim.Refund(ctx, &first))
	third := open()
	require.True(t, third.Allowed)
	lim.Keep(&second)
	lim.Keep(&second)
	require.LessOrEqual(t, open().RetryAfter, 1500*time.Millisecond)
	lim.Keep(&third)
	require.NoError(t, lim.Refund(ctx, &third), "a hit that is kept can be refunded")
	last := open()
	require.True(t, last.Allowed)
	lim.Keep(&last)
	denied := open()
	require.True(t, denied.Banned)
	require.GreaterOrEqual(t, denied.RetryAfter, 24*time.Hour)
}

// Attempts that come side by side on a limit that failures have filled are denied, and
// keep no ban away from each other.
func TestDeniedCallsKeepNoBanAway(t *testing.T) {
	const took, callers, attempts = 2 * time.Millisecond, 4, 50
	synctest.Test(t, func(t *testing.T) {
		rule := by("ip", "10/15m")
		rule.Ban = 24 * time.Hour
		lim := newLimiter(t, newCounter(t, newFarStore(took), counter.Config{}), limiter.Config{Rules: []limiter.Rule{rule}})
		var banned atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * took / callers)
				for range attempts {
					v, err := lim.AllowOpen(ctx, "signup", 1, ip("192.0.2.1"))
					if err != nil {
						t.Error(err)
					}
					lim.Keep(&v) // a wrong password
					if v.Banned {
						banned.Add(1)
					}
					time.Sleep(took / callers)
				}
			})
		}
		all.Wait()
		require.Greater(t, banned.Load(), int64(callers*attempts-10-4*callers))
	})
}
