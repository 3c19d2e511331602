package limiter_test

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/url"
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
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/limiter"
)

// stored is what a store has.
type stored struct {
	lives func() map[string]time.Duration // the times to live of all that is stored, by name
	holds func(text string) bool          // whether the text is in a name
}

// storedAs is what is stored under names.
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
		store, err := redis.Open("redis://"+addr+"/0?pool_timeout=20s&read_timeout=20s", redis.Config{IOTimeout: patience})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		client := goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		test(t, store, storedAs(func() map[string]time.Duration {
			lives := map[string]time.Duration{}
			keys, err := client.Keys(ctx, "*").Result()
			require.NoError(t, err)
			for _, name := range keys {
				lives[name], err = client.PTTL(ctx, name).Result()
				require.NoError(t, err)
			}
			return lives
		}))
	})
	t.Run("memcached", func(t *testing.T) {
		addr := servertest.Memcached(t)
		store, err := memcache.New(memcache.Config{IOTimeout: patience}, addr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		test(t, store, storedAs(func() map[string]time.Duration { return itemLives(t, addr) }))
	})
}

// itemLives are the times to live of all items of a memcached.
func itemLives(t *testing.T, addr string) map[string]time.Duration {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprint(conn, "lru_crawler metadump all\r\n")
	require.NoError(t, err)
	lives := map[string]time.Duration{}
	for in := bufio.NewScanner(conn); in.Scan() && in.Text() != "END"; {
		var name string
		var end int64 = -1
		for field := range strings.FieldsSeq(in.Text()) {
			if key, value, _ := strings.Cut(field, "="); key == "key" {
				name, err = url.PathUnescape(value)
				require.NoError(t, err)
			} else if key == "exp" {
				end, err = strconv.ParseInt(value, 10, 64)
				require.NoError(t, err)
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
	c, err := counter.New(store, counter.Config{Patience: patience, Now: clock.now})
	require.NoError(t, err)
	return newLimiter(t, c, limiter.Config{Rules: rules, DecideWithin: 2 * patience}), c
}
