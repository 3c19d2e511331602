package limiter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/limiter"
)

const (
	// faultsTimeout is the time of a decision: long for a server on the same
	// machine, short for the test.
	faultsTimeout = 200 * time.Millisecond

	// slowness is the time by which a decision may be late on a busy machine. A
	// decision that hangs is later.
	slowness = 5 * time.Second

	// patience is the time for an event that must happen. Only failures wait so
	// long.
	patience = 20 * time.Second

	usersMax = 3 // of the tighter limit
)

// fault is an event between a Limiter and its server.
type fault struct {
	name   string
	begin  func(w *wire)
	during func(w *wire, over <-chan struct{}) // while calls are made; may be nil
	end    func(w *wire)
	some   bool // of the decisions may be the store's
	forget bool // the server has forgotten all
}

func nothing(*wire) {}

var faults = []fault{
	{name: "no fault", begin: nothing, end: nothing, some: true},
	{name: "silence", begin: func(w *wire) { w.near.Pause() }, end: func(w *wire) { w.near.Resume() }},
	{name: "silence, then cut", begin: func(w *wire) { w.near.Reset(); w.near.Pause() }, during: cutOnce, end: func(w *wire) { w.near.Resume() }},
	{name: "cut again and again", begin: nothing, during: cutAgain, end: nothing, some: true},
	{name: "further than the deadline", begin: func(w *wire) { w.takeTheFarRoad(true) }, end: func(w *wire) { w.takeTheFarRoad(false) }},
	{name: "no replies", begin: func(w *wire) { w.near.DropReplies(true) }, end: func(w *wire) { w.near.DropReplies(false) }},
	{name: "garbled", begin: func(w *wire) { w.near.Damage(servertest.Heads, 1) }, end: func(w *wire) { w.near.Damage(servertest.Whole, 0) }, some: true},
	{name: "garbled from the first byte on", begin: func(w *wire) { w.near.Damage(servertest.Heads, 1); w.near.Cut() }, end: func(w *wire) { w.near.Damage(servertest.Whole, 0) }},
	{name: "a server that stands still", begin: func(w *wire) { w.server.Pause() }, end: func(w *wire) { w.server.Resume() }, some: true}, // a moment later
	{name: "a server that dies", begin: func(w *wire) { w.server.Kill() }, end: func(w *wire) { w.server.Restart() }, forget: true},
}

// cutOnce cuts all connections when requests are under way on them.
func cutOnce(w *wire, over <-chan struct{}) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for w.near.Trips() == 0 {
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
	w.near.Cut()
}

func cutAgain(w *wire, over <-chan struct{}) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		w.near.Cut()
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
}

// One Limiter lives through all faults. Its decisions are in time and by the
// policy, no limit is broken by what the store was asked about, and as soon as
// the store is back the limits hold. Nothing is left behind in the end.
//
// What was counted, but not answered, may stay counted: a denial after a fault
// may come early, never late.
func TestFaults(t *testing.T) {
	for _, kind := range kindsOfServer {
		t.Run(kind.name, func(t *testing.T) {
			w := newWire(t, kind)
			idle := w.conns()
			before := goleak.IgnoreCurrent()
			store, closeStore := kind.open(t, w)
			c := newCounter(t, store, counter.Config{Patience: faultsTimeout})
			var rules []limiter.Rule
			for event, policy := range policies {
				rules = append(rules,
					limiter.Rule{Event: event, Kind: "ip", Limits: counter.MustLimits("5/h, 50/d"), OnFailure: policy},
					limiter.Rule{Event: event, Kind: "user", Limits: counter.MustLimits("3/h"), OnFailure: policy})
			}
			lim := newLimiter(t, c, limiter.Config{Rules: rules, DecideWithin: faultsTimeout})
			for i, f := range faults {
				w.suffer(t, lim, f, i)
			}
			closeStore()
			require.Eventually(t, func() bool { return w.conns() == idle }, patience, time.Millisecond, "connections stay open")
			var leak error
			for began := time.Now(); time.Since(began) < patience; {
				// The restarted server is waited for.
				leak = goleak.Find(before, goleak.IgnoreAnyFunction("github.com/abacus-go/abacus/internal/testkit/servertest.(*Server).run.func1"))
				if leak == nil {
					break
				}
			}
			require.NoError(t, leak)
			runtime.KeepAlive(lim) // the collector would close what Close has left open
		})
	}
}

// policies has the policy of each event.
var policies = map[string]limiter.OnFailure{"open": limiter.FailOpen, "closed": limiter.FailClosed}

// visitor is someone with an address and a name of his own.
func visitor(fault, i int) []feature.Feature {
	return featuresOf(feature.IP(netip.AddrFrom4([4]byte{10, byte(fault), byte(i), 1})), user(fmt.Sprint(fault, " ", i)))
}

// tally counts the outcomes of a visitor's calls.
type tally struct {
	admitted, denied, degraded int
}

// call makes a call, and checks its time and its policy.
func (w *wire) call(t *testing.T, lim *limiter.Limiter, event string, features []feature.Feature, what string, sum *tally) limiter.Outcome {
	began := time.Now()
	v, err := lim.Allow(ctx, event, features...)
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		t.Errorf("%s, %s: %v", what, event, err)
	case long.Asked() && took > faultsTimeout+slowness:
		t.Errorf("%s, %s: a decision took %s", what, event, took)
	case v.Degraded != nil:
		sum.degraded++
		if !errors.Is(v.Degraded, counter.ErrStore) || v.Allowed != (policies[event] == limiter.FailOpen) {
			t.Errorf("%s, %s: allowed is %v: %v", what, event, v.Allowed, v.Degraded)
		}
	case v.Allowed:
		sum.admitted++
	default:
		sum.denied++
	}
	return v.Outcome()
}

// use makes calls of a visitor until a denial.
func (w *wire) use(t *testing.T, lim *limiter.Limiter, event string, features []feature.Feature, what string, sum *tally) {
	for denied := sum.denied; sum.denied == denied; {
		require.LessOrEqual(t, sum.admitted, usersMax, "%s, %s", what, event)
		require.Less(t, sum.degraded, 100, "%s, %s: the store is not back", what, event)
		w.call(t, lim, event, features, what, sum)
	}
}

// suffer makes calls before, during and after a fault.
func (w *wire) suffer(t *testing.T, lim *limiter.Limiter, f fault, i int) {
	old := map[string]*tally{"open": {}, "closed": {}} // by visitor 0, from before the fault on
	for event, sum := range old {
		for sum.admitted == 0 {
			require.Less(t, sum.denied+sum.degraded, 100, f.name)
			w.call(t, lim, event, visitor(i, 0), f.name, sum)
		}
		*sum = tally{admitted: sum.admitted}
	}

	f.begin(w)
	over := make(chan struct{})
	var beside, callers sync.WaitGroup
	if f.during != nil {
		beside.Go(func() { f.during(w, over) })
	}
	for event, sum := range old {
		for range 4 {
			callers.Go(func() {
				for range 2 {
					w.call(t, lim, event, visitor(i, 0), f.name, sum)
				}
			})
		}
	}
	callers.Wait()
	close(over)
	beside.Wait()
	f.end(w)
	for event, sum := range old {
		t.Logf("%s, %s: %d admitted, %d denied, %d degraded", f.name, event, sum.admitted, sum.denied, sum.degraded)
		require.LessOrEqual(t, sum.admitted, usersMax, "%s, %s", f.name, event)
		require.True(t, f.some || sum.admitted == 1 && sum.denied == 0, "%s, %s: a store that cannot be asked has answered", f.name, event)
	}

	what := "after " + f.name
	require.Eventually(t, func() bool {
		return w.call(t, lim, "closed", visitor(i, 1), what, &tally{}) == limiter.OutcomeAdmitted
	}, patience, time.Millisecond, "%s: the store does not come back", f.name)
	for event, sum := range old {
		sum.denied, sum.degraded = 0, 0
		if !f.forget {
			w.use(t, lim, event, visitor(i, 0), what, sum)
		}
		require.LessOrEqual(t, sum.admitted, usersMax, "%s, %s", what, event)
		fresh := &tally{}
		w.use(t, lim, event, visitor(i, 2), what, fresh)
		require.LessOrEqual(t, fresh.admitted, usersMax, "%s, %s", what, event)
		if fresh.degraded == 0 {
			require.Equal(t, usersMax, fresh.admitted, "%s, %s: nothing of his was lost", what, event)
		}
	}
}

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
