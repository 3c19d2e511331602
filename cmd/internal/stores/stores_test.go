package stores

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func open(t *testing.T, url string) *Opened { return openBy(t, Open, url) }

// openBy opens a store by Open or OpenReadOnly.
func openBy(t *testing.T, by func(Name, time.Duration) (*Opened, error), url string) *Opened {
	name := try.To(Parse(url))(t)
	store := try.To(by(name, time.Minute))(t)
	t.Cleanup(func() { store.Close() })
	return store
}

// counterOn is a counter on a store.
func counterOn(t *testing.T, store *Opened, cfg counter.Config) *counter.Counter {
	cfg.Patience = cmp.Or(cfg.Patience, time.Minute)
	return try.To(counter.New(store.Store, cfg))(t)
}

// fill counts hits of many keys under a prefix, on a ladder with tiers that are
// kept for different times.
func fill(t *testing.T, store *Opened, prefix string, ladder tiers.Ladder) {
	now := time.Now() // stands still: else a key may have hits in two seconds, and an item more
	c := counterOn(t, store, counter.Config{Prefix: prefix, Ladder: ladder, Now: func() time.Time { return now }})
	for i := range 100 {
		key := counter.Key{Event: "e", Feature: fmt.Sprint(i)}
		require.NoError(t, c.Add(t.Context(), key, 1))
		try.To(c.Take(t.Context(), key, 1, counter.MustLimits("9/m")))(t)
	}
}

// setups are stores of every form of URL.
func setups(t *testing.T) map[string]string {
	cluster, sentinel := servertest.Cluster(t), servertest.Sentinel(t)
	return map[string]string{
		"redis":    "redis://" + servertest.Redis(t),
		"plain":    "redis://" + servertest.Redis(t) + "?layout=plain",
		"cluster":  "redis://" + cluster.Addrs[0] + "?addr=" + cluster.Addrs[1],
		"sentinel": "redis://" + sentinel.Addrs[0] + "?master_name=" + sentinel.Name + "&addr=" + sentinel.Addrs[1],
		"memcached": "memcached://" + strings.Join([]string{
			servertest.Memcached(t), servertest.Memcached(t), servertest.Memcached(t)}, ","),
	}
}

// Clean removes all keys under the prefix and no other keys; until then each key
// has a time to live, no longer than told.
func TestClean(t *testing.T) {
	ladder := try.To(tiers.Parse("1s:1h, 1m:1d, 1h:30d"))(t)
	for kind, url := range setups(t) {
		t.Run(kind, func(t *testing.T) {
			store := open(t, url)
			require.NoError(t, store.Identify(t.Context()))
			fill(t, store, "other", ladder)
			before := count(t, store)
			fill(t, store, "mine", ladder)
			require.GreaterOrEqual(t, count(t, store), 2*before)
			life := store.Life(ladder, counter.DefaultSkew, counter.DefaultSettle)
			for key, ttl := range ttls(t, store, "mine") {
				require.Positive(t, ttl, key)
				require.LessOrEqual(t, ttl, life, key)
			}
			mine := count(t, store) - before
			require.EqualValues(t, mine, try.To(store.Clean(t.Context(), "mine"))(t))
			require.Equal(t, before, count(t, store))
			require.Empty(t, ttls(t, store, "mine"))
			require.NotEmpty(t, ttls(t, store, "other"))
		})
	}
}

// A Forget reaches the store: a later Refund gives nothing back.
func TestForgetGoesThrough(t *testing.T) {
	for kind, url := range map[string]string{
		"redis":     "redis://" + servertest.Redis(t),
		"memcached": "memcached://" + servertest.Memcached(t) + "," + servertest.Memcached(t),
	} {
		t.Run(kind, func(t *testing.T) {
			c := counterOn(t, open(t, url), counter.Config{Prefix: "mine"})
			key, limits := counter.Key{Event: "e", Feature: "f"}, counter.MustLimits("9/d")
			v := try.To(c.Take(t.Context(), key, 3, limits))(t)
			require.NoError(t, c.Forget(t.Context(), key))
			require.NoError(t, c.Add(t.Context(), key, 5))
			require.NoError(t, c.Refund(t.Context(), &v))
			n := try.To(c.Count(t.Context(), key, 24*time.Hour))(t)
			require.EqualValues(t, 5, n.High, "a hit that was forgotten is given back")
		})
	}
}

// ttls is the time to live of all stored keys of a prefix.
func ttls(t *testing.T, store *Opened, prefix string) map[string]time.Duration {
	all := map[string]time.Duration{}
	if m := store.Memcached; m != nil {
		require.NoError(t, m.TTLs(t.Context(), m.Written(prefix+":"), func(item string, ttl time.Duration) {
			if ttl != Gone {
				all[item] = ttl
			}
		}))
		return all
	}
	require.NoError(t, store.Redis.Scan(t.Context(), KeysOf(prefix), func(master *goredis.Client, keys []string) error {
		for _, key := range keys {
			all[key] = master.PTTL(t.Context(), key).Val()
		}
		return nil
	}))
	return all
}

// count is the number of keys or items on the servers.
func count(t *testing.T, store *Opened) int {
	n := 0
	if store.Memcached != nil {
		for _, l := range store.Look(t.Context()) {
			items := try.To(strconv.Atoi(l.Facts["curr_items"]))(t)
			n += items
		}
		return n
	}
	require.NoError(t, store.Redis.Masters(t.Context(), func(ctx context.Context, master *goredis.Client) error {
		size, err := master.DBSize(ctx).Result()
		n += int(size)
		return err
	}))
	return n
}

// A server that accepts connections and says nothing.
func TestSilentServer(t *testing.T) {
	redis, memcached := servertest.StartRedis(t), servertest.StartMemcached(t)
	redis.Pause()
	memcached.Pause()
	for _, url := range []string{"redis://" + redis.Addr, "memcached://" + memcached.Addr} {
		store := open(t, url)
		var err error
		require.Eventually(t, func() bool {
			err = store.Identify(t.Context())
			return err != nil
		}, 30*time.Second, time.Millisecond, url)
		require.EqualError(t, err, "no answer within 1.5s", url)
	}
	// An interrupt does not wait for the server either.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, open(t, "redis://"+redis.Addr).Identify(ctx), context.Canceled)
}

// An addition still under way after the failure of its call is not left behind.
func TestCleanAfterFailure(t *testing.T) {
	server := servertest.StartMemcached(t)
	store := open(t, "memcached://"+server.Addr)
	require.NoError(t, counterOn(t, store, counter.Config{Prefix: "mine", Patience: time.Minute}).Add(t.Context(), counter.Key{Event: "e", Feature: "f"}, 1))
	c := counterOn(t, store, counter.Config{Prefix: "mine", Patience: 50 * time.Millisecond})
	server.Pause()
	// The server may take a moment to fall silent.
	require.Eventually(t, func() bool {
		return errors.Is(c.Add(t.Context(), counter.Key{Event: "e", Feature: rand.Text()}, 1), counter.ErrStore)
	}, 30*time.Second, time.Millisecond)

	// Clean waits for the addition before any removal.
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, try.Err(store.Clean(soon, "mine")), context.DeadlineExceeded)
	server.Resume()
	try.To(store.Clean(t.Context(), "mine"))(t)
	require.Zero(t, count(t, store))
}

// A store that is read only counts nothing and forgets nothing, and tells what is
// there.
func TestOpenReadOnly(t *testing.T) {
	for _, url := range []string{"redis://" + servertest.Redis(t), "redis://" + servertest.Redis(t) + "?layout=plain", "memcached://" + servertest.Memcached(t)} {
		key, limits := counter.Key{Event: "signup", Feature: "ip:192.0.2.1"}, counter.MustLimits("5/h")
		require.NoError(t, counterOn(t, open(t, url), counter.Config{}).Add(t.Context(), key, 2))
		c := counterOn(t, openBy(t, OpenReadOnly, url), counter.Config{})
		require.ErrorIs(t, c.Add(t.Context(), key, 1), ErrReadOnly)
		require.ErrorIs(t, c.Forget(t.Context(), key), ErrReadOnly)
		require.ErrorIs(t, c.Check(t.Context()), ErrReadOnly)
		require.ErrorIs(t, try.Err(c.Take(t.Context(), key, 1, limits)), ErrReadOnly)
		require.EqualValues(t, 2, try.To(c.Count(t.Context(), key, time.Hour))(t).High, url)
		require.False(t, try.To(c.Peek(t.Context(), key, 4, limits))(t).Allowed)
	}
}

// A look tells of each server, and of a wrong one the reason.
func TestLook(t *testing.T) {
	redis, memcached := servertest.Redis(t), servertest.Memcached(t)
	look := func(url string) []Look { return openBy(t, OpenReadOnly, url).Look(t.Context()) }
	for _, l := range append(look("redis://"+redis), look("memcached://"+memcached)...) {
		require.NoError(t, l.Err)
		require.Positive(t, l.RoundTrip)
		require.NotEmpty(t, l.Run)
		require.NotEmpty(t, l.Facts)
		require.False(t, l.Apart(time.Second), l.Clock())
	}
	both := look("memcached://" + memcached + "," + redis)
	require.Len(t, both, 2)
	for _, l := range both {
		if l.Name == redis {
			require.ErrorContains(t, l.Err, "what answers is Redis, not memcached")
		} else {
			require.NoError(t, l.Err)
		}
	}
	require.ErrorContains(t, look("redis://" + memcached)[0].Err, "what answers is memcached, not Redis")
	require.Empty(t, look("memory"))
}
