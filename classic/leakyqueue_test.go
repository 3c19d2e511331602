package classic_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// newQueue is a queue from which max a second leave.
func newQueue(t *testing.T, max, length int64, s *classic.Store) *classic.LeakyQueue {
	t.Helper()
	q, err := classic.NewLeakyQueue(counter.Limit{Max: max, Per: time.Second}, length, s)
	require.NoError(t, err)
	return q
}

// waiter is a limiter that waits.
type waiter interface {
	Wait(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error)
}

// departure is the end of a caller's wait, and its time since the test began.
type departure struct {
	caller  int
	after   time.Duration
	allowed bool
	err     error
}

// wait lets callers wait, in the order of their contexts, and returns the
// callers in the order of their departure.
func wait(t *testing.T, q waiter, key counter.Key, ctxs ...context.Context) []departure {
	var mu sync.Mutex
	var left []departure
	var wg sync.WaitGroup
	began := time.Now()
	for i, ctx := range ctxs {
		wg.Go(func() {
			v, err := q.Wait(ctx, key, 1)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, departure{i, time.Since(began), v.Allowed, err})
		})
		synctest.Wait()
	}
	wg.Wait()
	return left
}

func same(ctx context.Context, n int) []context.Context {
	return slices.Repeat([]context.Context{ctx}, n)
}

func TestQueueOrderSpacingAndBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 4, 5, memory(t, classic.Config{}))
		left := wait(t, q, signup, same(ctx, 8)...)
		var order []int
		var after []time.Duration
		for _, d := range left {
			require.NoError(t, d.err)
			order, after = append(order, d.caller), append(after, d.after/time.Millisecond)
		}
		// The first leaves, five wait, two are refused, at once.
		require.Equal(t, []int{0, 6, 7, 1, 2, 3, 4, 5}, order)
		require.Equal(t, []time.Duration{0, 0, 0, 250, 500, 750, 1000, 1250}, after)
		require.Equal(t, []bool{true, false, false, true, true, true, true, true}, []bool{
			left[0].allowed, left[1].allowed, left[2].allowed, left[3].allowed, left[4].allowed, left[5].allowed, left[6].allowed, left[7].allowed})
	})
}

// A denied caller is told when there will be a slot; and a caller who comes
// then gets the slot.
func TestQueueRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 3, 2, memory(t, classic.Config{})) // a third of a second, which is not whole
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				v, err := q.Wait(ctx, signup, 1)
				require.NoError(t, err)
				require.True(t, v.Allowed)
			})
			synctest.Wait()
		}
		v, err := q.Wait(ctx, signup, 1)
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Zero(t, v.Remaining)
		require.Equal(t, 333_334*time.Microsecond, v.RetryAfter)
		require.Equal(t, time.Second, v.ResetAfter)
		now := take(t, q, signup, 1)
		require.False(t, now.Allowed, "Take does not wait")
		require.Equal(t, time.Second, now.RetryAfter)
		time.Sleep(v.RetryAfter)
		began := time.Now()
		v, err = q.Wait(ctx, signup, 1)
		require.NoError(t, err)
		require.True(t, v.Allowed)
		require.Equal(t, 666_666*time.Microsecond, time.Since(began))
		wg.Wait()
		v, err = q.Wait(ctx, signup, 4)
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Equal(t, counter.Never, v.RetryAfter, "more than Max at once")
	})
}

// The last slot is given back; a slot before others stays empty.
func TestQueueCancellation(t *testing.T) {
	for _, row := range []struct {
		leaves []int // callers who hang up after half a second, of 0 to 3 who wait since the start
		next   time.Duration
	}{
		{nil, 4 * time.Second},
		{[]int{3}, 3 * time.Second},
		{[]int{2}, 4 * time.Second},
		{[]int{3, 2}, 2 * time.Second},
		{[]int{2, 3}, 3 * time.Second}, // 2 was not the last when it left
		{[]int{3, 2, 1}, 1 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, 1, 9, memory(t, classic.Config{}))
			var hangUp []context.CancelFunc
			var wg sync.WaitGroup
			left := make([]time.Duration, 5)
			began := time.Now()
			go1 := func(i int, ctx context.Context) {
				wg.Go(func() {
					_, err := q.Wait(ctx, signup, 1)
					if err != nil {
						require.ErrorIs(t, err, context.Canceled)
						require.ErrorContains(t, err, `classic: leaky-queue: event "signup"`)
					}
					left[i] = time.Since(began)
				})
				synctest.Wait()
			}
			for i := range 4 {
				ctx, cancel := context.WithCancel(ctx)
				hangUp = append(hangUp, cancel)
				go1(i, ctx)
			}
			time.Sleep(500 * time.Millisecond)
			for _, i := range row.leaves {
				hangUp[i]()
				synctest.Wait()
				require.Equal(t, 500*time.Millisecond, left[i], "at once")
			}
			go1(4, ctx)
			wg.Wait()
			require.Equal(t, row.next, left[4], "after %v", row.leaves)
			for _, cancel := range hangUp {
				cancel()
			}
		})
	}
}

// A caller who would wait beyond his deadline is told so at once, and takes no
// slot.
func TestQueueDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1, 9, memory(t, classic.Config{}))
		require.True(t, take(t, q, signup, 1).Allowed)
		short, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
		defer cancel()
		began := time.Now()
		v, err := q.Wait(short, signup, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, counter.ErrStore)
		require.Equal(t, counter.Verdict{}, v)
		require.Zero(t, time.Since(began))
		even, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = q.Wait(even, signup, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "not by chance")
		long, cancel := context.WithTimeout(ctx, time.Second+time.Microsecond)
		defer cancel()
		v, err = q.Wait(long, signup, 1)
		require.NoError(t, err)
		require.True(t, v.Allowed)
		require.Equal(t, time.Second, time.Since(began))
		// A full queue is full, whatever the deadline.
		for range 10 {
			go q.Wait(ctx, signup, 1)
			synctest.Wait()
		}
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		v, err = q.Wait(brief, signup, 1)
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Equal(t, time.Second, v.RetryAfter)
		time.Sleep(20 * time.Second)
	})
}

// No caller leaves a goroutine or a timer behind: the bubble ends with its callers.
func TestQueueOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1, 9, memory(t, classic.Config{}))
		ctx, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
		defer cancel()
		left := wait(t, q, signup, same(ctx, 5)...)
		require.Equal(t, []bool{false, false, true, true, true}, []bool{left[1].allowed, left[2].allowed, left[0].allowed, left[3].allowed, left[4].allowed})
	})
}

// The same on Redis, in real time, for callers of two processes.
func TestQueueOnRedis(t *testing.T) {
	addr := servertest.Redis(t)
	const interval = 20 * time.Millisecond
	queues := []*classic.LeakyQueue{newQueue(t, 50, 1000, onRedis(t, addr, classic.Config{})), newQueue(t, 50, 1000, onRedis(t, addr, classic.Config{}))}
	var mu sync.Mutex
	var left []time.Duration
	var wg sync.WaitGroup
	began := time.Now()
	for i := range 10 {
		wg.Go(func() {
			v, err := queues[i%2].Wait(ctx, signup, 1)
			if err != nil || !v.Allowed {
				t.Error(v.Allowed, err)
			}
			mu.Lock()
			defer mu.Unlock()
			left = append(left, time.Since(began))
		})
	}
	wg.Wait()
	require.Len(t, left, 10)
	for i, d := range left {
		require.GreaterOrEqual(t, d, time.Duration(i)*interval, "departure %d of %v", i, left)
	}

	// The last slot is given back, another is not. Slots are an hour apart.
	slow, err := classic.NewLeakyQueue(counter.Limit{Max: 1, Per: time.Hour}, 3, onRedis(t, addr, classic.Config{}))
	require.NoError(t, err)
	require.True(t, take(t, slow, signup, 1).Allowed)
	reset := func() time.Duration { return take(t, slow, signup, 1).ResetAfter.Round(time.Minute) }
	var cancels []context.CancelFunc
	done := make(chan error)
	for i := range 3 {
		ctx, cancel := context.WithCancel(ctx)
		cancels = append(cancels, cancel)
		go func() {
			_, err := slow.Wait(ctx, signup, 1)
			done <- err
		}()
		require.Eventually(t, func() bool { return reset() == time.Duration(2+i)*time.Hour }, patience, time.Millisecond)
	}
	v, err := slow.Wait(ctx, signup, 1)
	require.NoError(t, err)
	require.False(t, v.Allowed, "the queue is full")
	require.Equal(t, time.Hour, v.RetryAfter.Round(time.Minute))
	for _, row := range []struct {
		caller int
		want   time.Duration
	}{{1, 4 * time.Hour}, {2, 3 * time.Hour}, {0, 3 * time.Hour}} {
		cancels[row.caller]()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Equal(t, row.want, reset())
	}
}

// The server's time to answer is part of the wait.
func TestQueueOnAFarRedis(t *testing.T) {
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, 150*time.Millisecond)
	queue := func(addr string) *classic.LeakyQueue {
		q, err := classic.NewLeakyQueue(counter.Limit{Max: 1, Per: 700 * time.Millisecond}, 9, onRedis(t, addr, classic.Config{}))
		require.NoError(t, err)
		return q
	}
	near, far := queue(addr), queue(proxy.Addr)
	take(t, near, name(1), 1) // brings the script
	take(t, far, name(2), 1)  // connects
	// A machine that stands still is late in a round, a queue that waits too long in each.
	const rounds = 5
	for round := 1; ; round++ {
		require.True(t, take(t, near, name(2+round), 1).Allowed)
		began := time.Now()
		v, err := far.Wait(ctx, name(2+round), 1)
		require.NoError(t, err)
		require.True(t, v.Allowed)
		if spent := time.Since(began); !long.Asked() || spent < 950*time.Millisecond || round == rounds {
			long.Less(t, spent, 950*time.Millisecond, "0.7 s, of which the trip is 0.3")
			return
		}
	}
}
