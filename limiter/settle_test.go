package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// A limit of calls next to a limit of tokens: the estimate of the tokens is settled, and
// who waits has the room at once.
func TestSettle(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		c := newCounter(t, store, counter.Config{Patience: patience})
		tokens := by("model", "100/h")
		tokens.Soft, tokens.Percent = true, 0
		lim := newLimiter(t, c, limiter.Config{DecideWithin: patience, Rules: []limiter.Rule{by("user", "5/h"), by("tenant", "100/h, 500/d"), tokens}})
		for i, used := range []int64{0, 30, 80, 130} {
			name := string(rune('a' + i))
			of := []feature.Feature{limiter.Times(feature.New("user", name), 1), feature.New("tenant", name), feature.New("model", name)}
			v, err := lim.AllowN(ctx, "signup", 80, of...)
			require.NoError(t, err)
			require.True(t, v.Allowed)
			waits := make(chan error, 1)
			if used < 80 {
				short, cancel := context.WithCancel(ctx)
				defer time.AfterFunc(patience, cancel).Stop()
				go func() {
					_, err := lim.WaitN(short, "signup", 50, limiter.Times(feature.New("user", name), 1), feature.New("tenant", name))
					waits <- err
				}()
				require.Eventually(t, func() bool { return lim.Stats().Waiting == 1 }, patience, time.Millisecond)
			}
			again := v
			require.NoError(t, lim.Settle(ctx, &v, used))
			if used >= 80 {
				require.Equal(t, used <= 100, v.Allowed)
				require.Equal(t, max(0, 100-used), v.Remaining)
				require.Equal(t, "tenant:"+name, v.Key.Feature)
				require.Len(t, v.All(), 2)
			} else {
				require.NoError(t, <-waits)
				used += 50
			}
			require.ErrorContains(t, lim.Settle(ctx, &again, 7), "refunded or settled before")
			require.NoError(t, lim.Refund(ctx, &again))
			require.NoError(t, lim.Refund(ctx, &v))
			require.EqualValues(t, used, counted(t, c, "tenant:"+name))
			require.LessOrEqual(t, counted(t, c, "user:"+name), int64(2), "calls are not tokens")
		}
	})
}

// What a local counter has admitted is settled there, and carried so. What the store has
// admitted is settled in both.
func TestSettleOfLocalHits(t *testing.T) {
	for _, row := range []struct {
		name       string
		down, back bool // at the Take; at the Settle
		used       int64
		pending    int64 // after the Settle, while the store is down
	}{
		{name: "less in the store", back: true, used: 2},
		{name: "more in the store", back: true, used: 7},
		{name: "less, not carried yet", down: true, used: 2, pending: 2},
		{name: "none, not carried yet", down: true, used: 0},
		{name: "more, not carried yet", down: true, used: 7, pending: 7},
		{name: "less, carried", down: true, back: true, used: 2},
		{name: "more, carried", down: true, back: true, used: 7, pending: 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLocalStage(t, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))}})
				home := ip("192.0.2.1")
				s.store.broken.Store(row.down)
				v := allowN(t, s.lim, 5, home)
				require.True(t, v.Allowed)
				if row.down && row.back {
					s.store.broken.Store(false)
					time.Sleep(4 * time.Second) // carried
					require.Zero(t, s.lim.Stats().Pending)
				}
				synctest.Wait()
				again := v
				for _, used := range []int64{-1, counter.MaxCount + 1} {
					require.ErrorContains(t, s.lim.Settle(ctx, &v, used), "want 0 to")
				}
				require.ErrorIs(t, s.lim.Settle(over, &v, row.used), context.Canceled)
				require.Equal(t, again, v)
				require.NoError(t, s.lim.Settle(ctx, &v, row.used))
				require.Equal(t, 10-row.used, v.Remaining)
				require.ErrorContains(t, s.lim.Settle(ctx, &again, 9), "before")
				require.NoError(t, s.lim.Refund(ctx, &again))
				require.Equal(t, row.used, counted(t, s.here, "ip:192.0.2.1"))
				if !row.back {
					require.Equal(t, row.pending, s.lim.Stats().Pending)
				}
				s.store.broken.Store(false)
				time.Sleep(4 * time.Second)
				require.Equal(t, row.used, counted(t, s.c, "ip:192.0.2.1"))
				require.Zero(t, s.lim.Stats().Pending)
				require.NoError(t, s.lim.Close(ctx))
			})
		})
	}
}
