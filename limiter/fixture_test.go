package limiter_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one")

var ctx = context.Background()

// over is a context that has ended: for a Close that carries nothing.
var over = func() context.Context {
	over, cancel := context.WithCancel(ctx)
	cancel()
	return over
}()

func random(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: run again with -run '%s' -seed %d", seed, t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// newCounter makes a Counter on whose ladder, by default tiers.Default, all rules
// count, so that a test can count as well.
func newCounter(t testing.TB, store backend.Store, cfg counter.Config) *counter.Counter {
	t.Helper()
	if cfg.Ladder.Len() == 0 {
		cfg.Ladder = tiers.Default
	}
	return derivingCounter(t, store, cfg)
}

// derivingCounter makes a Counter of cfg alone: without a Ladder each rule derives its own.
func derivingCounter(t testing.TB, store backend.Store, cfg counter.Config) *counter.Counter {
	return try.To(counter.New(store, cfg))(t)
}

func newLimiter(t testing.TB, c *counter.Counter, cfg limiter.Config) *limiter.Limiter {
	return try.To(limiter.New(c, cfg))(t)
}

// onMemory makes a Limiter with these rules, each on a ladder of its own, on an
// empty store in memory.
func onMemory(t testing.TB, rules ...limiter.Rule) *limiter.Limiter {
	t.Helper()
	return newLimiter(t, derivingCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: rules})
}

// by is a rule for signup.
func by(kind, limits string) limiter.Rule {
	return limiter.Rule{Event: "signup", Kind: kind, Limits: counter.MustLimits(limits)}
}

// ifMissing and onFailure set the policy of r.
func ifMissing(p limiter.IfMissing, r limiter.Rule) limiter.Rule { r.IfMissing = p; return r }
func onFailure(p limiter.OnFailure, r limiter.Rule) limiter.Rule { r.OnFailure = p; return r }

// onDefault is r as Rules returns the rule.
func onDefault(r limiter.Rule) limiter.Rule { r.Ladder = tiers.Default; return r }

func ip(s string) feature.Feature                       { return feature.IP(netip.MustParseAddr(s)) }
func user(s string) feature.Feature                     { return feature.New("user", s) }
func key(feature string) counter.Key                    { return counter.Key{Event: "signup", Feature: feature} }
func featuresOf(t ...feature.Feature) []feature.Feature { return t }

// allow asks for a sign-up, which must not fail.
func allow(t testing.TB, lim *limiter.Limiter, features ...feature.Feature) limiter.Verdict {
	t.Helper()
	return try.To(lim.Allow(ctx, "signup", features...))(t)
}

// allowN, allowOpen, charge and peek are calls for n sign-ups, which must not fail.
func allowN(t testing.TB, lim *limiter.Limiter, n int64, features ...feature.Feature) limiter.Verdict {
	t.Helper()
	return try.To(lim.AllowN(ctx, "signup", n, features...))(t)
}

func allowOpen(t testing.TB, lim *limiter.Limiter, n int64, features ...feature.Feature) limiter.Verdict {
	t.Helper()
	return try.To(lim.AllowOpen(ctx, "signup", n, features...))(t)
}

func charge(t testing.TB, lim *limiter.Limiter, n int64, features ...feature.Feature) limiter.Verdict {
	t.Helper()
	return try.To(lim.Charge(ctx, "signup", n, features...))(t)
}

func peek(t testing.TB, lim *limiter.Limiter, n int64, features ...feature.Feature) limiter.Verdict {
	t.Helper()
	return try.To(lim.Peek(ctx, "signup", n, features...))(t)
}

// together makes calls side by side, and counts their outcomes.
func together(callers int, call func(i int) limiter.Verdict) map[limiter.Outcome]int {
	verdicts := make([]limiter.Verdict, callers)
	ticket.SideBySide(callers, func(i int) { verdicts[i] = call(i) })
	got := map[limiter.Outcome]int{}
	for i := range verdicts {
		got[verdicts[i].Outcome()]++
	}
	return got
}

func usageOf(t testing.TB, lim *limiter.Limiter, features ...feature.Feature) []limiter.Usage {
	return try.To(lim.Usage(ctx, "signup", features...))(t)
}

// counted is the count of a key in c.
func counted(t testing.TB, c *counter.Counter, feature string) int64 {
	return try.To(c.Count(ctx, key(feature), time.Hour))(t).High
}

// countingStore is a memory store that counts steps and the keys in the steps.
type countingStore struct {
	*memory.Store
	mu             sync.Mutex
	steps, demands int
}

func newCountingStore() *countingStore { return &countingStore{Store: memory.New(memory.Config{})} }

func (s *countingStore) Take(ctx context.Context, t *backend.TakeRequest) error {
	s.mu.Lock()
	s.steps++
	s.demands += len(t.Keys)
	s.mu.Unlock()
	return s.Store.Take(ctx, t)
}

func (s *countingStore) Do(ctx context.Context, op *backend.Request) error {
	s.mu.Lock()
	s.steps++
	s.mu.Unlock()
	return s.Store.Do(ctx, op)
}

// asked returns the counts since the last call.
func (s *countingStore) asked() (steps, demands int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps, demands = s.steps, s.demands
	s.steps, s.demands = 0, 0
	return steps, demands
}

// flakyStore is a memory store that fails while broken is set.
type flakyStore struct {
	*memory.Store
	broken atomic.Bool
}

var errBroken = errors.New("flaky: broken")

func (s *flakyStore) Take(ctx context.Context, t *backend.TakeRequest) error {
	if s.broken.Load() {
		return errBroken
	}
	return s.Store.Take(ctx, t)
}

func (s *flakyStore) Do(ctx context.Context, op *backend.Request) error {
	if s.broken.Load() {
		return errBroken
	}
	return s.Store.Do(ctx, op)
}

// farStore is a memory store at the end of a wire, in the virtual time of a
// synctest bubble: a step is made at once, and answered after a while.
type farStore struct {
	backend.Atomic
	slow  atomic.Int64 // nanoseconds to answer a step
	deaf  bool         // goes on when nobody waits any more
	apart bool         // one step for each key
}

func newFarStore(slow time.Duration) *farStore {
	s := &farStore{Atomic: memory.New(memory.Config{})}
	s.slow.Store(int64(slow))
	return s
}

func (s *farStore) Take(ctx context.Context, t *backend.TakeRequest) error {
	if err := s.Atomic.Take(ctx, t); err != nil {
		return err
	}
	slow := time.Duration(s.slow.Load())
	if s.deaf {
		time.Sleep(slow)
		return nil
	}
	late, cancel := context.WithDeadline(context.Background(), t.Deadline)
	defer cancel()
	select {
	case <-time.After(slow):
		return nil
	case <-late.Done():
		return os.ErrDeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *farStore) Together([]backend.TakeKey) bool { return !s.apart }

// farCounter has a Patience that no answer exceeds.
func farCounter(t testing.TB, s backend.Store) *counter.Counter {
	return newCounter(t, s, counter.Config{Patience: time.Minute})
}

// stored returns the contents of a store.
type stored struct {
	lives func() map[string]time.Duration // the times to live of all that is stored, by name
	holds func(text string) bool          // whether the text is in a name
}

// storedAs returns the values stored under names.
func storedAs(lives func() map[string]time.Duration) stored {
	return stored{lives, func(text string) bool {
		return strings.Contains(strings.Join(slices.Collect(maps.Keys(lives())), "\n"), text)
	}}
}

// onStores runs a test on each store.
func onStores(t *testing.T, test func(t *testing.T, store backend.Store, in stored)) {
	t.Run("memory", func(t *testing.T) {
		store := &livesStore{Store: memory.New(memory.Config{}), lives: map[string]time.Duration{}}
		test(t, store, stored{func() map[string]time.Duration { return store.lives }, func(text string) bool {
			var b strings.Builder
			require.NoError(t, store.Snapshot(&b))
			return strings.Contains(b.String(), text)
		}})
	})
	t.Run("redis", func(t *testing.T) {
		addr := servertest.Redis(t)
		store := try.To(redis.Open("redis://"+addr+"/0?pool_timeout=20s&read_timeout=20s", redis.Config{IOTimeout: patience}))(t)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		client := goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		test(t, store, storedAs(func() map[string]time.Duration {
			lives := map[string]time.Duration{}
			keys := try.To(client.Keys(ctx, "*").Result())(t)
			for _, name := range keys {
				lives[name] = try.To(client.PTTL(ctx, name).Result())(t)
			}
			return lives
		}))
	})
	t.Run("memcached", func(t *testing.T) {
		addr := servertest.Memcached(t)
		store := try.To(memcache.New(memcache.Config{IOTimeout: patience}, addr))(t)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		test(t, store, storedAs(func() map[string]time.Duration { return itemLives(t, addr) }))
	})
}

// itemLives are the times to live of all items of a memcached.
func itemLives(t *testing.T, addr string) map[string]time.Duration {
	conn := try.To(net.Dial("tcp", addr))(t)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	try.To(fmt.Fprint(conn, "lru_crawler metadump all\r\n"))(t)
	lives := map[string]time.Duration{}
	for in := bufio.NewScanner(conn); in.Scan() && in.Text() != "END"; {
		if strings.HasPrefix(in.Text(), "BUSY") { // the server's own crawler, or that of another test
			time.Sleep(10 * time.Millisecond)
			try.To(fmt.Fprint(conn, "lru_crawler metadump all\r\n"))(t)
			continue
		}
		var name string
		var end int64 = -1
		for field := range strings.FieldsSeq(in.Text()) {
			if key, value, _ := strings.Cut(field, "="); key == "key" {
				name = try.To(url.PathUnescape(value))(t)
			} else if key == "exp" {
				end = try.To(strconv.ParseInt(value, 10, 64))(t)
			}
		}
		require.Positive(t, end, "%s: never expires", in.Text())
		lives[name] = time.Until(time.Unix(end, 0))
	}
	return lives
}

// livesStore is a memory store that notes the times to live of what is added.
type livesStore struct {
	*memory.Store
	mu    sync.Mutex
	lives map[string]time.Duration
}

func (s *livesStore) Bind(_ backend.Store, key *backend.TakeKey) backend.Quota {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ttl := range key.TTLs {
		s.lives[fmt.Sprint(string(key.Key), i)] = ttl
	}
	return s.Store.Bind(s.Store, key)
}

// clock runs, since hits that are under way must get older on a store without an
// atomic step, and is moved by the test: to half past an hour at first.
type clock struct{ ahead atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.pass(time.Until(time.Now().Truncate(time.Hour).Add(90*time.Minute + 10*time.Second)))
	return c
}

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// withClock makes a Limiter on a store, with rules that are counted by the clock.
func withClock(t *testing.T, store backend.Store, clock *clock, rules ...limiter.Rule) (*limiter.Limiter, *counter.Counter) {
	c := derivingCounter(t, store, counter.Config{Patience: patience, Now: clock.now})
	return newLimiter(t, c, limiter.Config{Rules: rules, DecideWithin: 2 * patience}), c
}
