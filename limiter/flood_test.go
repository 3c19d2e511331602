package limiter_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// A flood of one key, with decisions within 10 ms, on a server that stands still
// in the middle: one process never admits more than Max, and Max while the server
// stands still. When the server goes on, the store counts all of them.
func TestFloodUnderALocalRule(t *testing.T) {
	for _, kind := range kindsOfServer {
		t.Run(kind.name, func(t *testing.T) {
			w := newWire(t, kind)
			var store backend.Store
			if kind.name == "Redis" {
				s, err := redis.Open("redis://"+w.server.Addr, redis.Config{})
				require.NoError(t, err)
				defer s.Close()
				store = s
			} else {
				s, err := memcache.New(memcache.Config{}, w.server.Addr)
				require.NoError(t, err)
				defer s.Close()
				store = s
			}
			c := newCounter(t, store, counter.Config{})
			lim := newLimiter(t, c, limiter.Config{
				Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "10/h"))},
				Local: localCounter(t), DecideWithin: 10 * time.Millisecond,
			})
			var admitted [2]atomic.Int64 // by address
			flood := func(address int, calls int) {
				var all sync.WaitGroup
				for range 400 {
					all.Go(func() {
						for range calls / 400 {
							v, err := lim.Allow(ctx, "signup", ip([]string{"192.0.2.1", "192.0.2.2"}[address]))
							if err != nil {
								t.Error(err)
							}
							if v.Allowed {
								admitted[address].Add(1)
							}
						}
					})
				}
				all.Wait()
			}
			flood(0, 4000)
			w.server.Pause()
			flood(0, 2000)
			flood(1, 2000)
			require.EqualValues(t, 10, admitted[1].Load(), "of an address that the store has never answered for")
			w.server.Resume()
			flood(0, 2000)
			flood(1, 2000)
			for address, feature := range []string{"ip:192.0.2.1", "ip:192.0.2.2"} {
				// On a slow machine the store denies a call for hits of other calls that ended
				// late and are undone: it is asked again until it is full.
				require.Eventually(t, func() bool {
					flood(address, 400)
					n, err := c.Count(ctx, key(feature), time.Hour)
					return err == nil && n.Low >= max(10, admitted[address].Load()) && lim.Stats().Pending == 0
				}, patience, 50*time.Millisecond, feature)
				require.LessOrEqual(t, admitted[address].Load(), int64(10), feature)
			}
			t.Logf("%+v, the store counts %d and %d", lim.Stats(), counted(t, c, "ip:192.0.2.1"), counted(t, c, "ip:192.0.2.2"))
			require.NoError(t, lim.Close(ctx))
		})
	}
}
