package limiter_test

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/feature"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// Two thousand callers, each with an address of its own, call a server that
// stands still, with all defaults: each caller has a decision after a second,
// and when the server goes on, no hit of theirs stays.
func TestFrozenServer(t *testing.T) {
	const callers = 2000
	for _, kind := range kindsOfServer {
		t.Run(kind.name, func(t *testing.T) {
			w := newWire(t, kind)
			idle := w.conns()
			var store backend.Store
			var closeStore func() error
			if kind.name == "Redis" {
				s := try.To(redis.Open("redis://"+w.server.Addr, redis.Config{}))(t)
				store, closeStore = s, s.Close
			} else {
				s := try.To(memcache.New(memcache.Config{}, w.server.Addr))(t)
				store, closeStore = s, s.Close
			}
			lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}})
			before := runtime.NumGoroutine()
			require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, ip("192.0.2.1")).Outcome())
			w.server.Pause()
			took := make([]time.Duration, callers)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					began := time.Now()
					v, err := lim.Allow(ctx, "signup", feature.IP(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})))
					took[i] = time.Since(began)
					if err != nil || v.Outcome() != limiter.OutcomeFailedClosed {
						t.Error(v, err)
					}
				})
			}
			all.Wait()
			slices.Sort(took)
			t.Logf("%d decisions: p50 %s, slowest %s", callers, took[callers/2], took[callers-1])
			long.Less(t, took[callers-1], limiter.DefaultDecideWithin+slowness)
			require.GreaterOrEqual(t, took[callers-1], limiter.DefaultDecideWithin/2)
			w.server.Resume()
			require.Eventually(t, func() bool {
				v := allow(t, lim, ip("192.0.2.2"))
				return v.Outcome() == limiter.OutcomeAdmitted
			}, patience, 10*time.Millisecond)
			began := time.Now()
			require.NoError(t, closeStore())
			var conns, goroutines int
			for conns, goroutines = w.conns(), runtime.NumGoroutine(); (conns > idle || goroutines > before) && time.Since(began) < patience; {
				<-time.After(10 * time.Millisecond)
				conns, goroutines = w.conns(), runtime.NumGoroutine()
			}
			require.LessOrEqual(t, conns, idle, "connections are left")
			require.LessOrEqual(t, goroutines, before, "goroutines are left")
			t.Logf("nothing is left %s after it went on", time.Since(began))
		})
	}
}
