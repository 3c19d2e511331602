package counter_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

// Of the keys of a call those with as many hits as the Verdict are settled, soft keys and
// keys on another ladder too. What is wrong changes nothing.
func TestSettle(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	fine, err := c.With(parse.Ladder("1s:1h, 1m:1h"), nil)
	require.NoError(t, err)
	other := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	calls, soft := counter.Key{Event: "ask", Feature: "user:7"}, counter.Key{Event: "ask", Feature: "model:1"}
	tokens := counter.Key{Event: "ask", Feature: "tenant:1"}
	for _, used := range []int64{0, 3, 10, 25} {
		for _, key := range []counter.Key{calls, soft, tokens} {
			require.NoError(t, c.Forget(ctx, key))
			require.NoError(t, fine.Forget(ctx, key))
		}
		v, err := c.TakeAll(ctx, counter.Ask{Key: tokens, N: 10, Limits: limits("20/h"), On: fine}, counter.Ask{Key: calls, N: 1, Limits: limits("5/h")},
			counter.Ask{Key: soft, N: 10, Limits: limits("40/h"), Soft: true})
		require.NoError(t, err)
		require.EqualValues(t, 10, v.N())
		before := v
		over, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, c.Settle(over, &v, used), context.Canceled)
		require.ErrorContains(t, c.Settle(ctx, &v, -1), "used is -1, want 0 to 9007199254740991")
		require.ErrorContains(t, c.Settle(ctx, &v, counter.MaxCount+1), "used is 9007199254740992")
		require.ErrorContains(t, other.Settle(ctx, &v, used), "another Counter")
		require.Equal(t, before, v)

		require.NoError(t, c.Settle(ctx, &v, used))
		require.Equal(t, used <= 20, v.Allowed)
		require.Equal(t, used > 20, v.RetryAfter > 0)
		require.Equal(t, max(0, 20-used), v.Remaining)
		require.Len(t, v.All(), 2, "calls are not settled")
		again := before
		require.ErrorContains(t, c.Settle(ctx, &again, 4), "refunded or settled before")
		require.Equal(t, before, again)
		require.NoError(t, c.Refund(ctx, &before), "which gives nothing back")
		requireCount(t, c, calls, time.Hour, 1)
		requireCount(t, fine, tokens, time.Hour, used)
		require.NoError(t, c.Settle(ctx, &v, 4), "counted nothing")
	}
	var none counter.Verdict
	require.NoError(t, c.Settle(ctx, &none, 4))
	require.Equal(t, counter.Verdict{}, none)
}

// Of many who settle copies of a Verdict one does.
func TestSettleOnce(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	v := take(t, c, signup, 10, limits("1000/h"))
	var all sync.WaitGroup
	var settled atomic.Int64
	for i := range 20 {
		all.Go(func() {
			own := v
			if i%4 == 0 {
				require.NoError(t, c.Refund(ctx, &own))
				return
			}
			if c.Settle(ctx, &own, 12) == nil {
				settled.Add(1)
			}
		})
	}
	all.Wait()
	n, err := c.Count(ctx, signup, time.Hour)
	require.NoError(t, err)
	require.Equal(t, 12*settled.Load(), n.High, "1 settled, or none, since a Refund was first")
}
