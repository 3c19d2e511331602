package memcache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// far is a Counter on a memcached behind a slow link.
type far struct {
	*counter.Counter
	t     *testing.T
	addr  string // of memcached, without the link
	proxy *servertest.Proxy
}

func newFar(t *testing.T, delay time.Duration) far {
	t.Helper()
	return newFarOn(t, delay, servertest.Memcached(t))
}

func newFarOn(t *testing.T, delay time.Duration, addr string) far {
	t.Helper()
	proxy := servertest.NewProxy(t, addr, delay)
	f := far{newCounter(t, newStore(t, memcache.Config{}, proxy.Addr), counter.Config{}), t, addr, proxy}
	// Connections are made once.
	_, err := f.Take(context.Background(), counter.Key{Event: "first", Feature: "call"}, 1, counter.MustLimits("1/d"))
	require.NoError(t, err)
	return f
}

// trips counts the round trips of a call.
func (f far) trips(want int, what string, call func() error) {
	f.t.Helper()
	f.proxy.Reset()
	require.NoError(f.t, call(), what)
	require.Equal(f.t, want, f.proxy.Trips(), what)
	require.Zero(f.t, f.proxy.Conns(), what)
}

func (f far) take(key counter.Key, limits string, allowed bool) func() error {
	return func() error {
		v, err := f.Take(context.Background(), key, 1, counter.MustLimits(limits))
		require.Equal(f.t, allowed, v.Allowed)
		return err
	}
}

// The round trips promised by docs/guarantees.md, with meta commands and without.
func TestRoundTrips(t *testing.T) {
	old, _ := oldMemcached(t)
	for name, addr := range map[string]string{"meta": servertest.Memcached(t), "classic": old} {
		t.Run(name, func(t *testing.T) { roundTrips(t, newFarOn(t, 20*time.Millisecond, addr)) })
	}
}

func roundTrips(t *testing.T, f far) {
	ctx := context.Background()
	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	for _, limits := range []string{"10/m", "10/m, 50/h, 100/d", "100/d"} {
		key.Event += "+"
		f.trips(1, "fresh, "+limits, f.take(key, limits, true))
		f.trips(1, "again, "+limits, f.take(key, limits, true))
	}
	f.trips(1, "add", func() error { return f.Add(ctx, key, 1) })
	f.trips(1, "count", func() error {
		n, err := f.Count(ctx, key, 24*time.Hour)
		require.EqualValues(t, 3, n.High)
		return err
	})
}

func TestRoundTripsOfADenial(t *testing.T) {
	f := newFar(t, 20*time.Millisecond)
	for _, row := range []struct {
		limits string
		denied int // the addition, and one more: all hits are in the minute of the call
		next   int // a trip for each tier
	}{
		{"2/m", 2, 2},
		{"2/d", 2, 3},
	} {
		// The hits and the denial are in one minute.
		if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); left < 2*time.Second {
			time.Sleep(left)
		}
		key := counter.Key{Event: "denied", Feature: row.limits}
		for range 2 {
			f.trips(1, "admitted, "+row.limits, f.take(key, row.limits, true))
		}
		f.trips(row.denied, "denied, "+row.limits, f.take(key, row.limits, false))
		f.trips(row.next, "denied by reading, "+row.limits, f.take(key, row.limits, false))
		f.trips(0, "denied from memory, "+row.limits, f.take(key, row.limits, false))
	}
}

// There are never more connections than Config.Conns, and connections are kept.
func TestConnectionsAreBounded(t *testing.T) {
	for _, conns := range []int{0, 1, 5} {
		proxy := servertest.NewProxy(t, servertest.Memcached(t), time.Millisecond)
		c := newCounter(t, newStore(t, memcache.Config{Conns: conns}, proxy.Addr), counter.Config{})
		if conns == 0 {
			conns = memcache.DefaultConns
		}
		for range 2 {
			var wg sync.WaitGroup
			calls := make(chan int)
			for range 64 {
				wg.Go(func() {
					for i := range calls {
						v, err := c.Take(context.Background(), counter.Key{Event: "signup", Feature: fmt.Sprint(i)}, 1, counter.MustLimits("10/m, 50/h, 100/d"))
						if err != nil || !v.Allowed {
							t.Error(v.Allowed, err)
						}
					}
				})
			}
			for i := range 200 {
				calls <- i
			}
			close(calls)
			wg.Wait()
		}
		t.Logf("400 Takes, 64 at once, Conns %d: %d connections", conns, proxy.Conns())
		require.Equal(t, conns, proxy.Conns())
	}
}
