package redis_test

import (
	"context"
	"net"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The round trips promised by docs/guarantees.md.
func TestRoundTrips(t *testing.T) {
	// Far from the ends of all buckets, where calls by ticket look again.
	halfPast := time.Now().Truncate(time.Hour).Add(30*time.Minute + 30*time.Second + 500*time.Millisecond)
	type step struct {
		call  string
		trips int
	}
	room := []step{{"fresh", 1}, {"again", 1}, {"count", 1}, {"add", 1}}
	full := []step{{"fresh", 1}, {"again", 1}, {"denied", 1}, {"denied from memory", 0}, {"count", 1}, {"add", 1}, {"denied after an Add", 1}}
	read := func(trips int) []step { // denied, and denied by reading
		return []step{{"fresh", 1}, {"again", 1}, {"denied", 2}, {"denied by reading", trips}, {"denied from memory", 0}}
	}
	for layout, rows := range map[redis.Layout]map[string][]step{
		redis.Sums:  {"2/m": full, "2/h": full, "5/m, 50/h, 2/d": full},
		redis.Plain: {"10/m": room, "10/m, 50/h, 100/d": room, "100/d": room, "2/m": read(2), "2/d": read(3)},
	} {
		proxy := servertest.NewProxy(t, servertest.Redis(t), 20*time.Millisecond)
		c := newCounter(t, openAs(t, "redis://"+proxy.Addr, layout), counter.Config{Now: func() time.Time { return halfPast }})
		// The first of each kind makes the connection, or brings the script.
		take(t, c, name(0), 1, "1/d")
		require.NoError(t, c.Add(ctx, name(0), 1))
		for limits, steps := range rows {
			key := counter.Key{Event: "signup", Feature: limits}
			for _, s := range steps {
				proxy.Reset()
				switch s.call {
				case "count":
					count(t, c, key)
				case "add":
					require.NoError(t, c.Add(ctx, key, 1))
				default:
					require.Equal(t, s.call == "fresh" || s.call == "again", take(t, c, key, 1, limits).Allowed, "%s under %s", s.call, limits)
				}
				require.Equal(t, s.trips, proxy.Trips(), "%s: %s under %s", layout, s.call, limits)
			}
		}
		first := take(t, c, name(0), 1, "9/d")
		require.NoError(t, c.Refund(ctx, &first)) // brings a script too
		settled := map[redis.Layout]map[int64]int{redis.Sums: {2: 3, 5: 1, 8: 1, 12: 2}, redis.Plain: {2: 4, 5: 2, 8: 1, 12: 4}}
		for used, trips := range settled[layout] {
			v := take(t, c, name(int(20+used)), 5, "9/d")
			proxy.Reset()
			require.NoError(t, c.Settle(ctx, &v, used))
			require.Equal(t, trips, proxy.Trips(), "%s: 5 are settled by %d", layout, used)
		}
		if layout == redis.Sums {
			proxy.Reset()
			var asks []counter.Ask
			for i := range 3 {
				asks = append(asks, counter.Ask{Key: name(11 + i), N: 1, Limits: counter.MustLimits("1/d")})
			}
			require.True(t, try.To(c.TakeAll(ctx, asks...))(t).Allowed)
			require.Equal(t, 1, proxy.Trips(), "three keys")
		}
	}
}

// A hit whose answer is lost with the connection is counted once, and is an
// error: the call is never sent again, whatever the client does with other commands. The
// client of a Cluster repeats failed commands in a loop of its own, next to the loop of
// the client of each node. Of pipelines all callers get an error.
func TestNoHitIsSentTwice(t *testing.T) {
	t.Parallel()
	const callers = 40
	for _, what := range []string{"sums", "plain", "cluster", "pipelines"} {
		t.Run(what, func(t *testing.T) {
			var args []string
			if what == "cluster" {
				args = []string{"--cluster-enabled", "yes"}
			}
			addr := servertest.Redis(t, args...)
			proxy := servertest.NewProxy(t, addr, 0)
			near, crowded := newCounter(t, open(t, "redis://"+addr), counter.Config{}), 1
			s, client := onClient(t, "redis://"+proxy.Addr+"?max_retries=5&min_retry_backoff=1ms&max_retry_backoff=1ms&pool_size=40", redis.Config{})
			switch what {
			case "plain":
				near = newCounter(t, openPlain(t, "redis://"+addr), counter.Config{})
				s = openPlain(t, "redis://"+proxy.Addr+"/0?max_retries=5&min_retry_backoff=1ms&max_retry_backoff=1ms")
			case "cluster":
				s = clusterBehind(t, addr, proxy)
			case "pipelines":
				crowded = callers
			}
			c := newCounter(t, s, counter.Config{})
			for _, call := range []func(key counter.Key) error{
				func(key counter.Key) error {
					_, err := c.Take(ctx, key, 1, counter.MustLimits("100/d"))
					return err
				},
				func(key counter.Key) error { return c.Add(ctx, key, 1) },
			} {
				// The server knows the script, and the client the way.
				require.Eventually(t, func() bool { return call(name(0)) == nil }, patience, time.Millisecond)
				if what == "pipelines" {
					warmed(t, c, client, callers)
				}
				before := make([]int64, crowded)
				for i := range before {
					before[i] = count(t, near, name(i))
				}
				proxy.DropReplies(true)
				failed := make(chan error, crowded)
				go crowd(crowded, func(i int) { failed <- call(name(i)) })
				for i := range before {
					counted(t, near, name(i), before[i]+1)
				}
				proxy.DropReplies(false) // a second try would be answered
				proxy.Cut()
				for i := range before {
					require.ErrorIs(t, <-failed, backend.ErrStore)
					require.Equal(t, before[i]+1, count(t, near, name(i)))
				}
			}
		})
	}
}

// clusterBehind makes a store on the client of a Cluster of a single node, behind a proxy.
func clusterBehind(t *testing.T, addr string, proxy *servertest.Proxy) redis.Store {
	node := raw(t, addr)
	require.NoError(t, node.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool { return node.ClusterInfo(ctx).Val()[:16] == "cluster_state:ok" }, patience, time.Millisecond)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: []string{addr}, ContextTimeoutEnabled: true,
		// A client that asked for the slots again would keep the connection that knows the way.
		ClusterSlots: func(context.Context) ([]goredis.ClusterSlot, error) {
			return []goredis.ClusterSlot{{End: 16383, Nodes: []goredis.ClusterNode{{Addr: addr}}}}, nil
		},
		MaxRedirects: 8, MaxRetries: 8, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
		// A node names its own address, not the proxy's.
		Dialer: func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", proxy.Addr) },
	})
	t.Cleanup(func() { client.Close() })
	return try.To(redis.New(client, redis.Config{IOTimeout: patience}))(t)
}
