package redis_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// failing calls everything on a store that cannot work, and holds each error to
// the promised text: the store, the event, not the feature, no password; and
// to the deadline.
func failing(t *testing.T, s backend.Store, want string) {
	t.Helper()
	const budget = 500 * time.Millisecond
	c := newCounter(t, s, counter.Config{Patience: budget})
	for what, call := range map[string]func() error{
		"take": func() error {
			v, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
			require.Equal(t, counter.Verdict{}, v)
			return err
		},
		"peek": func() error { _, err := c.Peek(ctx, signup, 1, counter.MustLimits("10/d")); return err },
		"add":  func() error { return c.Add(ctx, signup, 1) },
		"count": func() error {
			n, err := c.Count(ctx, signup, 24*time.Hour)
			require.Zero(t, n)
			return err
		},
	} {
		began := time.Now()
		err := call()
		long.Less(t, time.Since(began), budget+2*time.Second, what)
		require.ErrorIs(t, err, backend.ErrStore, what)
		require.ErrorContains(t, err, want, what)
		require.ErrorContains(t, err, `counter: event "signup": redis: `, what)
		require.NotContains(t, err.Error(), "203.0.113.9", what)
		require.NotContains(t, err.Error(), "secret", what)
	}
}

func TestUnreachable(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := nobody.Addr().String()
	require.NoError(t, nobody.Close())
	s := open(t, "redis://:secret@"+addr)
	failing(t, s, "connection refused")
	// At once: five tries to dial would take longer.
	c := newCounter(t, s, counter.Config{Patience: 250 * time.Millisecond})
	require.ErrorContains(t, c.Add(ctx, signup, 1), "connection refused")
}

// A server accepts connections and says nothing.
func TestSilent(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	failing(t, open(t, "redis://"+silent.Addr().String()), silent.Addr().String())
}

func TestNotARedis(t *testing.T) {
	failing(t, open(t, "redis://"+servertest.Memcached(t)), "127.0.0.1:")
}

func TestWrongPassword(t *testing.T) {
	addr := servertest.Redis(t, "--requirepass", "right")
	failing(t, open(t, "redis://:secret@"+addr), "WRONGPASS")
	failing(t, open(t, "redis://"+addr), "NOAUTH")
	c := newCounter(t, open(t, "redis://:right@"+addr), counter.Config{})
	require.True(t, take(t, c, signup, 1, "1/d").Allowed)
}

func TestReadOnlyReplica(t *testing.T) {
	master := servertest.Redis(t)
	host, port, _ := strings.Cut(master, ":")
	addr := servertest.Redis(t, "--replicaof", host+" "+port)
	s := open(t, "redis://"+addr)
	c := newCounter(t, s, counter.Config{})
	_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
	require.ErrorIs(t, err, backend.ErrStore)
	require.ErrorContains(t, err, "READONLY")
	require.ErrorContains(t, err, addr)
}

func TestOutOfMemory(t *testing.T) {
	addr := servertest.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
	require.ErrorIs(t, err, backend.ErrStore)
	require.ErrorContains(t, err, "OOM")
	require.ErrorIs(t, c.Add(ctx, signup, 1), backend.ErrStore)
	n, err := raw(t, addr).DBSize(ctx).Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

// A foreign value under a key of the store is an error, not a zero, and is left
// alone.
func TestForeignValues(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), open(t, "redis://"+addr)
	c := newCounter(t, s, counter.Config{})
	take(t, c, signup, 1, "10/d")
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	root := keys[0]
	good, err := client.Get(ctx, root).Result()
	require.NoError(t, err)
	for what, write := range map[string]func() error{
		"empty":     func() error { return client.Set(ctx, root, "", 0).Err() },
		"a number":  func() error { return client.Set(ctx, root, "7", 0).Err() },
		"text":      func() error { return client.Set(ctx, root, "once upon a time there was a counter", 0).Err() },
		"cut off":   func() error { return client.Set(ctx, root, good[:len(good)-1], 0).Err() },
		"no width":  func() error { return client.Set(ctx, root, "\x03"+good[1:], 0).Err() },
		"too long":  func() error { return client.Set(ctx, root, good+"x", 0).Err() },
		"only head": func() error { return client.Set(ctx, root, good[:9], 0).Err() },
		"a hash":    func() error { return client.HSet(ctx, root, "a", "b").Err() },
	} {
		require.NoError(t, client.Del(ctx, root).Err())
		require.NoError(t, write(), what)
		before, err := client.Dump(ctx, root).Result()
		require.NoError(t, err)
		failing(t, s, "not written by this store")
		after, err := client.Dump(ctx, root).Result()
		require.NoError(t, err)
		require.Equal(t, before, after, what)
	}
}

func TestWhatNewRefuses(t *testing.T) {
	for want, client := range map[string]goredis.UniversalClient{
		"ContextTimeoutEnabled": goredis.NewClient(&goredis.Options{}),
		"want *redis.Client":    goredis.NewRing(&goredis.RingOptions{ContextTimeoutEnabled: true}),
		"is nil":                nil,
	} {
		_, err := redis.New(client, redis.Config{})
		require.ErrorContains(t, err, want)
		if client != nil {
			client.Close()
		}
	}
	_, err := redis.New(goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"a:1"}}), redis.Config{})
	require.ErrorContains(t, err, "ContextTimeoutEnabled")
	_, err = redis.New((*goredis.Client)(nil), redis.Config{})
	require.ErrorContains(t, err, "is nil")
	good := goredis.NewClient(&goredis.Options{ContextTimeoutEnabled: true})
	defer good.Close()
	_, err = redis.New(good, redis.Config{IOTimeout: -1})
	require.ErrorContains(t, err, "Config.IOTimeout is -1ns, want zero or more")
}

func TestWhatOpenRefuses(t *testing.T) {
	for url, want := range map[string]string{
		"":                              `redis: "": want redis://host:port/db`,
		"localhost:6379":                `redis: "localhost:6379": want redis://host:port/db`,
		"localhost":                     `redis: "localhost": want redis://host:port/db`,
		"u:secret@localhost:6379":       "cannot be parsed, want redis://host:port/db",
		"redis://":                      "redis: a URL without a host, want redis://host:port/db",
		"http://a:1":                    `redis: "http://a:1": want redis://host:port/db`,
		"http://:secret@a:1":            `a URL that begins with "http://": want redis://host:port/db`,
		"redis://:secret/@a:1":          "an @ behind its host",
		"redis:/u:secret@a:1":           "cannot be parsed",
		"redis://a:1?layout=hash":       "the URL has layout=hash, want layout=sums or layout=plain",
		"redis://:secret@a:port/0":      "cannot be parsed",
		"redis://:secret@a:1/zero":      "database",
		"redis://a:1?unheard_of=1":      "unheard_of",
		"redis://a:1?addr=b:2&what=1":   "what",
		"redis://a:1?master_name=m&x=1": "x",
	} {
		_, err := redis.Open(url, redis.Config{})
		require.ErrorContains(t, err, want, url)
		require.ErrorContains(t, err, "redis: ", url)
		require.NotContains(t, err.Error(), "secret", url)
	}
	_, err := redis.Open("redis://a:1?layout=sums", redis.Config{Layout: redis.Plain})
	require.ErrorContains(t, err, "the URL has layout=sums, and Config.Layout is plain")
}

// The layout is a parameter of the URL, in each of its forms.
func TestOpenWithALayout(t *testing.T) {
	for url, atomic := range map[string]bool{
		"redis://a:1": true, "redis://a:1?layout=sums": true, "redis://u:p%40ss@a:1/3?layout=plain&pool_size=3": false,
		"redis://a:1?layout=plain&addr=b:1": false, "redis://a:1?layout=plain&master_name=m": false, "unix:///run/redis.sock?layout=plain": false,
	} {
		for _, layout := range []redis.Layout{redis.Sums, redis.Plain} {
			if layout == redis.Plain && atomic {
				continue
			}
			s, err := redis.Open(url, redis.Config{Layout: layout})
			require.NoError(t, err, url)
			_, is := s.(backend.Atomic)
			require.Equal(t, atomic, is, url)
			require.NoError(t, s.Close())
		}
	}
}

// A dense leaf that ends in the middle of a sum is an error also where a Do tells the
// count of a bucket that begins there.
func TestALeafThatWasCut(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), open(t, "redis://"+addr)
	const stretch, coarse = 3600, 420 // seconds of a leaf, and of a bucket that two leaves share
	ladder := mustLadder(t, "1s:1d, 7m:1d")
	first := time.Unix(1_700_000_000/(7*stretch)*(7*stretch), 0) // of a leaf and of a coarse bucket
	add := func(second int64) (int64, error) {
		r := &backend.Request{Key: "ab:k", Ladder: ladder, Now: first.Add(time.Duration(second) * time.Second), N: 1}
		for _, b := range ladder.Buckets(r.Now) {
			r.Add = append(r.Add, backend.Slot{Bucket: b, TTL: 24*time.Hour + b.Width})
		}
		err := s.Do(ctx, r)
		return r.Add[1].Count, err
	}
	for second := int64(stretch - 600); second <= stretch; second++ {
		_, err := add(second)
		require.NoError(t, err)
	}
	leaf := client.Keys(ctx, "*.2").Val()
	require.Len(t, leaf, 1)
	const begins = stretch / coarse * coarse
	n, err := add(stretch + 1)
	require.NoError(t, err)
	require.EqualValues(t, stretch-begins+2, n)
	require.NoError(t, client.Set(ctx, leaf[0], client.GetRange(ctx, leaf[0], 0, begins*2-2).Val(), goredis.KeepTTL).Err())
	_, err = add(stretch + 2)
	require.ErrorContains(t, err, "not written by this store")
}

// A root of the right shape whose entries are not there, or are out of order, is an
// error: neither the root nor a leaf grows by what the root claims.
func TestARootThatClaimsTooMuch(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), open(t, "redis://"+addr)
	for what, row := range map[string]struct {
		n      int64
		step   time.Duration // between two calls
		damage func(root []byte)
	}{
		"entries that are not there":  {1, 8 * time.Minute, func(root []byte) { copy(root[14:], []byte{1, 0, 129}) }},
		"entries that are not sorted": {5000, 2 * time.Second, func(root []byte) { clear(root[460:]) }},
	} {
		require.NoError(t, client.FlushDB(ctx).Err())
		now := time.Date(2026, 3, 2, 0, 10, 0, 0, time.UTC)
		c := newCounter(t, s, counter.Config{Now: func() time.Time { return now }})
		for range 60 {
			take(t, c, signup, row.n, "1000000/d")
			now = now.Add(row.step)
		}
		name := client.Keys(ctx, "*").Val()[0]
		root := []byte(client.Get(ctx, name).Val())
		row.damage(root)
		require.NoError(t, client.Set(ctx, name, root, time.Hour).Err())
		if what == "entries that are not sorted" {
			now = now.Add(time.Hour) // the stretch of the entries is over
		}
		_, err := c.Take(ctx, signup, 1, counter.MustLimits("1000000/d"))
		require.ErrorContains(t, err, "not written by this store", what)
		for _, key := range client.Keys(ctx, "*").Val() {
			require.Less(t, client.StrLen(ctx, key).Val(), int64(10_000), what)
		}
	}
}
