package limiter_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// wire is the network between a Limiter and a real server: two roads, near and
// far; connections take the near road by default.
type wire struct {
	t         testing.TB
	kind      kindOfServer
	server    *servertest.Server
	near, far *servertest.Proxy
	goFar     atomic.Bool

	mu sync.Mutex // of what callers tell
}

func newWire(t testing.TB, kind kindOfServer) *wire {
	server := kind.start(t)
	return &wire{
		t: t, kind: kind, server: server,
		near: servertest.NewProxy(t, server.Addr, 0),
		far:  servertest.NewProxy(t, server.Addr, 2*faultsTimeout),
	}
}

// takeTheFarRoad makes all traffic go one way from now on. What is left on the
// near road, and was just being made, does not get through.
func (w *wire) takeTheFarRoad(far bool) {
	w.goFar.Store(far)
	if far {
		w.near.Pause()
		w.near.Cut()
	} else {
		w.near.Resume()
		w.far.Cut()
	}
}

// dial connects by the current road, whatever the address.
func (w *wire) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	if w.goFar.Load() {
		return d.DialContext(ctx, network, w.far.Addr)
	}
	return d.DialContext(ctx, network, w.near.Addr)
}

// conns counts the connections of the server, this connection included.
func (w *wire) conns() int {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.server.Addr)
	require.NoError(w.t, err)
	defer conn.Close()
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(conn, "%s\r\n", w.kind.ask)
	require.NoError(w.t, err)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if number, found := strings.CutPrefix(lines.Text(), w.kind.says); found {
			n, err := strconv.Atoi(number)
			require.NoError(w.t, err)
			return n
		}
	}
	require.Fail(w.t, "the server does not say how many connections it has")
	return 0
}

// kindOfServer is the interface of a server to the tests: memcached or Redis.
type kindOfServer struct {
	name      string
	start     func(t testing.TB) *servertest.Server
	open      func(t testing.TB, w *wire) (store backend.Store, closeStore func())
	ask, says string // the number of connections
}

var kindsOfServer = []kindOfServer{
	{
		name:  "memcached",
		start: func(t testing.TB) *servertest.Server { return servertest.StartMemcached(t) },
		open: func(t testing.TB, w *wire) (backend.Store, func()) {
			store, err := memcache.New(memcache.Config{IOTimeout: 2 * faultsTimeout, DialContext: w.dial}, w.server.Addr)
			require.NoError(t, err)
			return store, func() {
				require.NoError(t, store.Close())
				require.Eventually(t, func() bool { return store.Stats().InFlight == 0 }, patience, time.Millisecond)
			}
		},
		ask: "stats", says: "STAT curr_connections ",
	},
	{
		name:  "Redis",
		start: func(t testing.TB) *servertest.Server { return servertest.StartRedis(t) },
		open: func(t testing.TB, w *wire) (backend.Store, func()) {
			client := goredis.NewClient(&goredis.Options{Addr: w.server.Addr, Dialer: w.dial, DialerRetries: 1, ContextTimeoutEnabled: true})
			store, err := redis.New(client, redis.Config{})
			require.NoError(t, err)
			return store, func() { require.NoError(t, client.Close()) }
		},
		ask: "INFO clients", says: "connected_clients:",
	},
}
