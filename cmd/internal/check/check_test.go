package check

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/internal/promise"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// patience is a timeout that no machine is too slow for: a late call is a Warning.
const patience = 20 * time.Second

// lenient admits everything and counts nothing.
type lenient struct{ backend.Store }

func newLenient() lenient {
	return lenient{backend.FromDo(func(context.Context, *backend.Request) error { return nil })}
}

func (lenient) Together([]backend.TakeKey) bool { return true }
func (lenient) Take(_ context.Context, t *backend.TakeRequest) error {
	t.Allowed = true
	return nil
}

// strict denies everything.
type strict struct{ lenient }

func (strict) Take(_ context.Context, t *backend.TakeRequest) error {
	t.Allowed = false
	for i := range t.Keys {
		for j := range t.Keys[i].Windows {
			w := &t.Keys[i].Windows[j]
			w.Count = w.Max
			w.FreedBy = t.Keys[i].Ladder.Buckets(t.Now)[w.Finest]
		}
	}
	return nil
}

// greedy counts denied hits too, like a limiter that adds before the comparison.
type greedy struct{ *memory.Store }

func (g greedy) Take(ctx context.Context, t *backend.TakeRequest) error {
	err := g.Store.Take(ctx, t)
	if err == nil && !t.Allowed && !t.Peek {
		for _, d := range t.Keys {
			op := backend.Request{Key: string(d.Key), Ladder: d.Ladder, Now: t.Now, N: d.N}
			for i, b := range d.Ladder.Buckets(t.Now) {
				op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: d.TTLs[i]})
			}
			err = g.Store.Do(ctx, &op)
		}
	}
	return err
}

// blurred takes keys that differ in the last byte for the same key.
type blurred struct{ *memory.Store }

func (b blurred) Take(ctx context.Context, t *backend.TakeRequest) error {
	t.Keys[0].Key = t.Keys[0].Key[:len(t.Keys[0].Key)-1]
	return b.Store.Take(ctx, t)
}

// third fails with every third call.
type third struct {
	*memory.Store
	err   error
	calls atomic.Int64
}

func (s *third) Take(ctx context.Context, t *backend.TakeRequest) error {
	if s.calls.Add(1)%3 == 0 {
		return s.err
	}
	return s.Store.Take(ctx, t)
}

// forgetful loses reads: stored counts are not found again.
type forgetful struct{ *memory.Store }

func (f forgetful) Do(ctx context.Context, op *backend.Request) error {
	err := f.Store.Do(ctx, op)
	for i := range op.Read {
		clear(op.Read[i].Counts)
	}
	return err
}

// Each defect of a store is found by the check for that defect.
func TestCrosses(t *testing.T) {
	for _, row := range []struct {
		name           string
		store          backend.Store
		failed, warned string
		means          string // of denied, or of a warning
	}{
		{name: "memory", store: memory.New(memory.Config{})},
		{name: "lenient", store: newLenient(), failed: "herd denied keys boundary"},
		{name: "strict", store: strict{newLenient()}, failed: "herd denied keys boundary"},
		{name: "greedy", store: greedy{memory.New(memory.Config{})}, failed: "herd denied", means: "denied hits are counted, and who keeps trying is kept out"},
		{name: "forgetful", store: forgetful{memory.New(memory.Config{})}, failed: "herd denied keys", means: "hits that were admitted are not found again"},
		{name: "blurred", store: blurred{memory.New(memory.Config{})}, failed: "herd denied keys"},
		{name: "flaky", store: &third{Store: memory.New(memory.Config{}), err: errors.New("out of order")}, failed: "denied keys speed", warned: "herd boundary"},
		{name: "sluggish", store: &third{Store: memory.New(memory.Config{}), err: os.ErrDeadlineExceeded}, warned: "denied keys speed herd boundary", means: "no promise is broken"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			all := try.To(Run(t.Context(), &stores.Opened{Store: row.store}, Config{Prefix: "check", Timeout: patience}))(t)
			for _, result := range all {
				want := OK
				switch {
				case strings.Contains(row.failed, result.Name):
					want = Failed
				case strings.Contains(row.warned, result.Name):
					want = Warning
				}
				require.Equal(t, want, result.Status, "%+v", result)
				if want == Failed && result.Name == "denied" || want == Warning && row.name == "sluggish" {
					require.Contains(t, result.Means, row.means, "%+v", result)
				}
			}
		})
	}
}

// A healthy but busy server breaks no promise: all calls or several are late, and
// the check tells so. On either kind of store no check fails.
func TestBusy(t *testing.T) {
	long.Only(t, "20 s of real time, and calls that are late by chance")
	const timeout = 42 * time.Millisecond
	stalls := func(t *testing.T, p *servertest.Proxy) {
		over := make(chan struct{})
		var wait sync.WaitGroup
		wait.Go(func() {
			for {
				p.Pause()
				stalled := time.After(2 * timeout)
				select {
				case <-stalled:
				case <-over:
				}
				p.Resume()
				select {
				case <-time.After(3 * timeout):
				case <-over:
					return
				}
			}
		})
		t.Cleanup(func() { close(over); wait.Wait() })
	}
	for kind, start := range map[string]func(testing.TB, ...string) string{"redis": servertest.Redis, "memcached": servertest.Memcached} {
		for name, row := range map[string]struct {
			delay time.Duration
			begin func(*testing.T, *servertest.Proxy)
		}{
			"all calls are late":  {delay: 25 * time.Millisecond, begin: func(*testing.T, *servertest.Proxy) {}},
			"some calls are late": {begin: stalls},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				proxy := servertest.NewProxy(t, start(t), row.delay)
				row.begin(t, proxy)
				all := try.To(Run(t.Context(), opened(t, kind+"://"+proxy.Addr), Config{Prefix: "check", Timeout: timeout}))(t)
				slow := 0
				for _, result := range all {
					require.NotEqual(t, Failed, result.Status, "%+v", result)
					if result.Status == Warning && strings.Contains(result.Means, "no promise is broken") {
						slow++
					}
				}
				require.True(t, slow > 0 || row.delay == 0, "%+v", all)
			})
		}
	}
}

// A server that refuses calls in the middle of a check is not a busy server.
func TestRefused(t *testing.T) {
	for _, err := range []error{
		goredis.Nil, syscall.ECONNREFUSED, errors.New("SERVER_ERROR out of memory storing object"),
		&counterError{goredis.TxFailedErr},
	} {
		require.False(t, late(orSlow(time.Now().Add(-time.Minute), err)), "%v", err)
	}
	for _, err := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, &counterError{&gomemcache.ConnectTimeoutError{Addr: &net.TCPAddr{}}}, &net.OpError{Err: os.ErrDeadlineExceeded}} {
		require.True(t, late(orSlow(time.Now(), err)), "%v", err)
	}
	other := errors.New("pool exhausted")
	require.True(t, late(orSlow(time.Now().Add(-time.Second), other)))
	require.False(t, late(orSlow(time.Now(), other)))
	require.NoError(t, orSlow(time.Time{}, nil))
}

// counterError wraps an error as a Counter does.
type counterError struct{ error }

func (e *counterError) Unwrap() error { return e.error }

// keeper takes the time to live from stored keys.
type keeper struct {
	backend.Store
	redis *stores.Redis
}

func (k keeper) Do(ctx context.Context, op *backend.Request) error {
	if err := k.Store.Do(ctx, op); err != nil {
		return err
	}
	return k.redis.Scan(ctx, stores.KeysOf("check"), func(master *goredis.Client, keys []string) error {
		for _, key := range keys {
			if err := master.Persist(ctx, key).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Keys that never expire are found, by a store without an atomic step as well.
func TestNoTTL(t *testing.T) {
	store := opened(t, "redis://"+servertest.Redis(t))
	r := &run{store: &stores.Opened{Name: store.Name, Redis: store.Redis, Store: keeper{store.Store, store.Redis}}, cfg: Config{Prefix: "check", Timeout: patience}}
	result := try.To(r.lives(t.Context()))(t)
	require.Equal(t, Failed, result.Status, "%+v", result)
	require.Contains(t, result.Means, "never expires")
}

// opened is a store on real servers.
func opened(t *testing.T, url string) *stores.Opened {
	name := try.To(stores.Parse(url))(t)
	store := try.To(stores.Open(name, time.Minute))(t)
	t.Cleanup(func() { store.Close() })
	return store
}

// A Cluster keeps all promises, each key on a server of its own.
func TestCluster(t *testing.T) {
	cluster := servertest.Cluster(t)
	store := opened(t, "redis://"+cluster.Addrs[0]+"?addr="+cluster.Addrs[1])
	all := try.To(Run(t.Context(), store, Config{Prefix: "check", Timeout: patience}))(t)
	require.Len(t, all, 13)
	for _, result := range all {
		require.NotEqual(t, Failed, result.Status, "%+v", result)
	}
	require.Regexp(t, `^Redis \S+, cluster, 3 servers$`, all[0].Seen)
	removed := try.To(store.Clean(t.Context(), "check"))(t)
	require.Greater(t, removed, int64(len(promise.OddKeys())))
}

// Far away, time tells the number of round trips of a Take.
func TestTrips(t *testing.T) {
	const away = 10 * time.Millisecond
	for kind, addr := range map[string]string{"redis": servertest.Redis(t), "memcached": servertest.Memcached(t)} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := &run{store: opened(t, kind+"://"+servertest.NewProxy(t, addr, away).Addr), cfg: Config{Prefix: "check", Timeout: patience}}
			result := try.To(r.trips(t.Context()))(t)
			require.Equal(t, OK, result.Status, "%+v", result)
			require.Equal(t, "one round trip", result.Promise)
			require.GreaterOrEqual(t, result.Numbers["plain_us"], micros(2*away))
			require.Less(t, result.Numbers["ratio"], 1.9)
		})
	}
}

func facts(pairs ...string) backend.Server {
	s := backend.Server{Name: "h:1", Facts: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Facts[pairs[i]] = pairs[i+1]
	}
	return s
}

// Setups of a server, each with its verdict.
func TestSetup(t *testing.T) {
	redis := func(policy, limit, used, evicted string) backend.Server {
		return facts("maxmemory_policy", policy, "maxmemory", limit, "used_memory", used, "evicted_keys", evicted)
	}
	memcached := func(evictions, used, evicted string) backend.Server {
		return facts("settings.evictions", evictions, "limit_maxbytes", "1000000", "bytes", used, "evictions", evicted)
	}
	slabs := func(pages, used string, more ...string) backend.Server {
		return facts(append(more, "slabs.total_malloced", pages, "limit_maxbytes", "1000000", "bytes", used)...)
	}
	for _, row := range []struct {
		judge  judge
		server backend.Server
		status Status
		seen   string
	}{
		{redisEviction, facts(), Warning, "not known: the user may not ask for INFO"},
		{redisEviction, redis("noeviction", "0", "10", "0"), OK, "noeviction, 10 B used, no limit"},
		{redisEviction, redis("allkeys-lru", "0", "10", "0"), Warning, "allkeys-lru, 10 B used, no limit"},
		{redisEviction, redis("allkeys-lru", "1000000", "1000", "0"), Warning, "allkeys-lru, 1 kB of 1 MB used"},
		{redisEviction, redis("volatile-lru", "1000000", "1000", "0"), Warning, "volatile-lru, 1 kB of 1 MB used"},
		{redisEviction, redis("noeviction", "1000000", "1000", "0"), OK, "noeviction, 1 kB of 1 MB used"},
		{redisEviction, redis("noeviction", "1000000", "950000", "0"), Warning, "noeviction, 950 kB of 1 MB used"},
		{redisEviction, redis("volatile-ttl", "1000000", "1000", "0"), Warning, "volatile-ttl, 1 kB of 1 MB used"},
		{redisEviction, redis("volatile-ttl", "1000000", "1000", "7"), Warning, "volatile-ttl, 1 kB of 1 MB used, 7 keys evicted"},
		{memcachedEviction, memcached("on", "1000", "0"), Warning, "1 kB of 1 MB used, evictions on"},
		{memcachedEviction, memcached("on", "950000", "0"), Warning, "950 kB of 1 MB used, evictions on"},
		{memcachedEviction, memcached("on", "1000", "3"), Warning, "1 kB of 1 MB used, 3 items evicted"},
		{memcachedEviction, facts("limit_maxbytes", "1000000", "bytes", "1000"), Warning, "1 kB of 1 MB used, its settings are not known"},
		{memcachedEviction, memcached("off", "1000", "0"), OK, "1 kB of 1 MB used, evictions off"},
		{memcachedEviction, memcached("off", "950000", "0"), Warning, "950 kB of 1 MB used, evictions off"},
		{memcachedSlabs, slabs("500000", "1000"), OK, "500 kB of 1 MB given to sizes, nothing refused"},
		{memcachedSlabs, slabs("2000000", "950000"), OK, "1 MB of 1 MB given to sizes, nothing refused"},
		{memcachedSlabs, slabs("2000000", "30000"), Warning, "all of 1 MB is given to sizes, 30 kB of it used"},
		{memcachedSlabs, slabs("500000", "1000", "items.items:3:outofmemory", "7", "items.items:12:outofmemory", "5"), Warning, "12 items refused for want of memory"},
		{redisRole, facts("role", "master"), OK, "master"},
		{redisRole, facts("role", "slave", "master_host", "h", "master_port", "6379"), Warning, "a replica of h:6379 that can be written to"},
		{redisCoverage, facts("redis_mode", "cluster", "config.cluster-require-full-coverage", "yes"), Warning, "cluster-require-full-coverage yes"},
		{redisCoverage, facts("redis_mode", "cluster", "config.cluster-require-full-coverage", "no"), OK, "cluster-require-full-coverage no"},
		{redisRole, facts(), Fact, "not known: the user may not ask for INFO"},
		{redisCoverage, facts("redis_mode", "standalone"), "", ""},
		{redisCoverage, facts("redis_mode", "cluster"), Fact, "not known: the user may not ask for CONFIG"},
	} {
		status, seen, means := row.judge(row.server)
		require.Equal(t, row.status, status, row.seen)
		require.Equal(t, row.seen, seen)
		require.Equal(t, status == Warning, means != "", row.seen)
	}
}

// Of several servers the worst is told, by its address.
func TestWorstServer(t *testing.T) {
	good := facts("limit_maxbytes", "100", "bytes", "1", "settings.evictions", "off")
	bad := facts("limit_maxbytes", "100", "bytes", "1", "settings.evictions", "on", "evictions", "5")
	bad.Name = "b:11211"
	results := Setup(stores.OnMemcached, []backend.Server{good, bad, good})
	require.Equal(t, Warning, results[0].Status)
	require.Equal(t, "b:11211: 1 B of 100 B used, 5 items evicted", results[0].Seen)
}
