package redis_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func TestRoundTrips(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Redis(t), 20*time.Millisecond)
	c := newCounter(t, open(t, "redis://"+proxy.Addr), counter.Config{})
	trips := func(want int, what string, call func() error) {
		t.Helper()
		proxy.Reset()
		require.NoError(t, call(), what)
		require.Equal(t, want, proxy.Trips(), what)
	}
	taking := func(key counter.Key, limits string, allowed bool) func() error {
		return func() error {
			require.Equal(t, allowed, take(t, c, key, 1, limits).Allowed)
			return nil
		}
	}
	// The first of each kind makes the connection, or brings the script.
	take(t, c, name(0), 1, "1/d")
	require.NoError(t, c.Add(ctx, name(0), 1))

	for i, limits := range []string{"2/m", "2/h", "5/m, 50/h, 2/d"} {
		key := name(1 + i)
		trips(1, "fresh", taking(key, limits, true))
		trips(1, "again", taking(key, limits, true))
		trips(1, "denied", taking(key, limits, false))
		trips(0, "denied from memory", taking(key, limits, false))
		trips(1, "count", func() error { _, err := c.Count(ctx, key, 24*time.Hour); return err })
		trips(1, "add", func() error { return c.Add(ctx, key, 1) })
		trips(1, "denied, after an Add", taking(key, limits, false))
	}
	trips(1, "three keys", func() error {
		v, err := c.TakeAll(ctx, counter.Ask{Key: name(11), N: 1, Limits: counter.MustLimits("1/d")},
			counter.Ask{Key: name(12), N: 1, Limits: counter.MustLimits("1/d")}, counter.Ask{Key: name(13), N: 1, Limits: counter.MustLimits("1/d")})
		require.True(t, v.Allowed)
		return err
	})
}

// A Take of three tiers takes about as long as a plain increment.
func TestATakeBesideOneIncrement(t *testing.T) {
	long.Only(t, "it compares times of the wall; TestRoundTrips counts the trips")
	proxy := servertest.NewProxy(t, servertest.Redis(t), 2*time.Millisecond)
	plain, c := raw(t, proxy.Addr), newCounter(t, open(t, "redis://"+proxy.Addr), counter.Config{})
	take(t, c, name(0), 1, "1/d")
	require.NoError(t, plain.Incr(ctx, "plain").Err())
	const rounds = 100
	var increments, takes []time.Duration
	for i := range rounds {
		began := time.Now()
		require.NoError(t, plain.Incr(ctx, "plain").Err())
		increments = append(increments, time.Since(began))
		began = time.Now()
		require.True(t, take(t, c, name(i%(rounds/2)), 1, "10/m, 50/h, 100/d").Allowed)
		takes = append(takes, time.Since(began))
	}
	slices.Sort(increments)
	slices.Sort(takes)
	ratio := float64(takes[rounds/2]) / float64(increments[rounds/2])
	t.Logf("median of a Take %v, of an increment %v: %.2fx", takes[rounds/2], increments[rounds/2], ratio)
	require.Less(t, ratio, 1.9)
}

// There are never more connections than the pool has.
func TestConnectionsAreBounded(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Redis(t), time.Millisecond)
	c := newCounter(t, open(t, "redis://"+proxy.Addr+"/0?pool_size=16"), counter.Config{})
	var wg sync.WaitGroup
	calls := make(chan int)
	for range 64 {
		wg.Go(func() {
			for i := range calls {
				v, err := c.Take(ctx, name(i), 1, counter.MustLimits("10/m, 50/h, 100/d"))
				if err != nil || !v.Allowed {
					t.Error(v.Allowed, err)
				}
			}
		})
	}
	for i := range 400 {
		calls <- i
	}
	close(calls)
	wg.Wait()
	t.Logf("400 Takes, 64 at once, pool_size 16: %d connections", proxy.Conns())
	require.LessOrEqual(t, proxy.Conns(), 16)
}

// A hit whose answer is lost with the connection is counted once, and is an
// error: the call is never sent again, whatever the client does with other commands.
func TestNoHitIsSentTwice(t *testing.T) {
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, 0)
	far := open(t, "redis://"+proxy.Addr+"/0?max_retries=5&min_retry_backoff=1ms&max_retry_backoff=1ms")
	near := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	c := newCounter(t, far, counter.Config{})
	for i, call := range []func(key counter.Key) error{
		func(key counter.Key) error {
			_, err := c.Take(ctx, key, 1, counter.MustLimits("10/d"))
			return err
		},
		func(key counter.Key) error { return c.Add(ctx, key, 1) },
	} {
		key := name(i)
		require.NoError(t, call(key)) // now the server knows the script
		proxy.DropReplies(true)
		failed := make(chan error)
		go func() { failed <- call(key) }()
		require.Eventually(t, func() bool { return count(t, near, key) == 2 }, patience, time.Millisecond)
		proxy.DropReplies(false)
		proxy.Cut()
		require.ErrorIs(t, <-failed, backend.ErrStore)
		require.EqualValues(t, 2, count(t, near, key))
		require.NoError(t, call(key))
		require.EqualValues(t, 3, count(t, near, key))
	}
}

// A server that does not answer costs the budget, and leaves nothing behind.
func TestDeadline(t *testing.T) {
	server := servertest.StartRedis(t)
	s := open(t, "redis://"+server.Addr+"/0?pool_size=4")
	c := newCounter(t, s, counter.Config{Patience: 100 * time.Millisecond})
	take(t, newCounter(t, s, counter.Config{}), signup, 1, "10/d") // however slow the machine is
	server.Pause()
	var wg sync.WaitGroup
	for range 16 { // more than there are connections
		wg.Go(func() {
			began := time.Now()
			_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
			if spent := time.Since(began); long.Asked() && spent > 2*time.Second {
				t.Errorf("answered after %s, the budget is 100ms", spent)
			}
			if err == nil {
				t.Error("no error from a server that is stopped")
			}
		})
	}
	wg.Wait()

	began := time.Now()
	hangUp, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := c.Take(hangUp, signup, 1, counter.MustLimits("10/d"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, backend.ErrStore)
	long.Less(t, time.Since(began), 2*time.Second)

	server.Resume()
	require.Eventually(t, func() bool {
		v, err := c.Take(ctx, counter.Key{Event: "after", Feature: "all"}, 1, counter.MustLimits("1000000/d"))
		return err == nil && v.Allowed
	}, patience, 10*time.Millisecond)
}
