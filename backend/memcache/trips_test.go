package memcache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The round trips promised by docs/guarantees.md, with meta commands and without. All hits
// are in the minute of the call, far from its ends, so a denial is the addition and one trip
// more; the next looks, with a trip for each tier.
func TestRoundTrips(t *testing.T) {
	type step struct {
		call  string
		trips int
	}
	room := []step{{"fresh", 1}, {"again", 1}, {"add", 1}, {"count", 1}}
	full := func(next int) []step {
		return []step{{"fresh", 1}, {"again", 1}, {"denied", 2}, {"denied by reading", next}, {"denied from memory", 0}}
	}
	old, _ := oldMemcached(t)
	for name, addr := range map[string]string{"meta": servertest.Memcached(t), "classic": old} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			proxy := servertest.NewProxy(t, addr, 20*time.Millisecond)
			c := newCounter(t, newStore(t, memcache.Config{}, proxy.Addr), counter.Config{})
			require.NoError(t, c.Add(ctx, counter.Key{Event: "first", Feature: "call"}, 1)) // connections are made once
			for limits, steps := range map[string][]step{"10/m": room, "10/m, 50/h, 100/d": room, "100/d": room, "2/m": full(2), "2/d": full(3)} {
				key := counter.Key{Event: "signup", Feature: limits}
				for _, s := range steps {
					proxy.Reset()
					switch s.call {
					case "add":
						require.NoError(t, c.Add(ctx, key, 1))
					case "count":
						require.EqualValues(t, 3, try.To(c.Count(ctx, key, 24*time.Hour))(t).High)
					default:
						v := try.To(c.Take(ctx, key, 1, counter.MustLimits(limits)))(t)
						require.Equal(t, s.call == "fresh" || s.call == "again", v.Allowed, "%s under %s", s.call, limits)
					}
					require.Equal(t, []int{s.trips, 0}, []int{proxy.Trips(), proxy.Conns()}, "%s under %s", s.call, limits)
				}
			}
			for used, trips := range map[int64]int{2: 4, 5: 2, 8: 1} { // a Peek under 9/d looks for the newest hit too
				v := try.To(c.Take(ctx, counter.Key{Event: "settle", Feature: fmt.Sprint(used)}, 5, counter.MustLimits("9/d")))(t)
				proxy.Reset()
				require.NoError(t, c.Settle(ctx, &v, used))
				require.Equal(t, trips, proxy.Trips(), "5 are settled by %d", used)
			}
		})
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
			crowd(64, func(i int) {
				for j := range 3 {
					v, err := c.Take(context.Background(), counter.Key{Event: "signup", Feature: fmt.Sprint(3*i + j)}, 1, counter.MustLimits("10/m, 50/h, 100/d"))
					if err != nil || !v.Allowed {
						t.Error(v.Allowed, err)
					}
				}
			})
		}
		// A machine that stands still has made a connection quiet, which was replaced.
		require.GreaterOrEqual(t, proxy.Conns(), conns)
		require.Eventually(t, func() bool { return proxy.Open() <= conns }, patience, time.Millisecond)
	}
}
