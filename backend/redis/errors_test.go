package redis_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// failing makes calls on a store that cannot work, and holds each error to the promised
// text: the store, the event, not the feature, no password; and to the deadline.
func failing(t *testing.T, s backend.Store, budget time.Duration, want string, verbs ...string) {
	c := newCounter(t, s, counter.Config{Patience: budget})
	for _, verb := range verbs {
		began := time.Now()
		err := map[string]func() error{
			"take": func() error {
				v, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
				require.Equal(t, counter.Verdict{}, v)
				return err
			},
			"peek": func() error { _, err := c.Peek(ctx, signup, 1, counter.MustLimits("10/d")); return err },
			"add":  func() error { return c.Add(ctx, signup, 1) },
			"count": func() error {
				n, err := c.Count(ctx, signup, day)
				require.Zero(t, n)
				return err
			},
		}[verb]()
		long.Less(t, time.Since(began), budget+2*time.Second, verb)
		require.ErrorIs(t, err, backend.ErrStore, verb)
		require.ErrorContains(t, err, want, verb)
		require.ErrorContains(t, err, `counter: event "signup": redis: `, verb)
		require.NotContains(t, err.Error(), "203.0.113.9", verb)
		require.NotContains(t, err.Error(), "secret", verb)
		require.NotContains(t, err.Error(), "script: ", verb)
	}
}

var (
	writes = []string{"take", "add", "take"}
	all    = []string{"take", "peek", "add", "count"}
)

// Servers that cannot be counted on, each with the error of a call, and with the findings
// of a check, of which several come at once. What is refused is refused whole.
func TestServersThatFail(t *testing.T) {
	t.Parallel()
	master, locked, deaf, memcached := servertest.Redis(t), servertest.Redis(t, "--requirepass", "right"), "127.0.0.1:1", servertest.Memcached(t)
	replica, full := replicaOf(t, master), servertest.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	evicting := servertest.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "allkeys-lru")
	silent := servertest.Serve(t, func(net.Conn) { <-t.Context().Done() })
	const noTransactions = "the layout Plain needs MULTI, and PEXPIRE with NX: NOPERM"
	for what, row := range map[string]struct {
		url, want string
		verbs     []string // that fail
		findings  []string // of a check; nil: not checked
		plain     bool     // the layout Plain alone
	}{
		"nobody":          {"redis://:secret@" + deaf, deaf + ": dial tcp: connect: connection refused", all, []string{`^redis: server ` + deaf + `: dial tcp: connect: connection refused`}, false},
		"silent":          {"redis://" + silent, silent, all, nil, false},
		"another program": {"redis://" + memcached, "127.0.0.1:", all, nil, false},
		"wrong password":  {"redis://:secret@" + locked, "WRONGPASS", all, []string{`^redis: server ` + locked + `: WRONGPASS `}, false},
		"wrong user":      {"redis://stranger:secret@" + master, "WRONGPASS", all, []string{`^redis: server ` + master + `: WRONGPASS `}, false},
		"no password":     {"redis://" + locked, "NOAUTH", all, []string{`^redis: server ` + locked + `: NOAUTH `}, false},
		"replica": {"redis://" + replica, "READONLY", writes, []string{`^redis: server ` + replica + `: cannot be written to: READONLY `,
			`^redis: server ` + replica + `: is a replica of ` + master + `, want a master`}, false},
		"full": {"redis://" + full, "OOM", writes, []string{`^redis: server ` + full + `: cannot be written to: OOM `}, false},
		"full, and evicts": {"redis://" + evicting, "OOM", writes, []string{`^redis: server ` + evicting + `: cannot be written to: OOM `,
			`^redis: server ` + evicting + `: maxmemory-policy is allkeys-lru with a maxmemory of 1 bytes, want noeviction`}, false},
		"replicas required": {"redis://" + servertest.Redis(t, "--min-replicas-to-write", "1"), "NOREPLICAS", writes, nil, false},
		"no transactions":   {user(t, servertest.Redis(t), "allkeys +@all -multi"), noTransactions, writes, nil, true},
		"no times to live":  {user(t, servertest.Redis(t), "allkeys +@all -pexpire"), noTransactions, writes, nil, true},
		"no additions":      {user(t, servertest.Redis(t), "allkeys +@all -incrby"), "NOPERM", writes, nil, true},
	} {
		for _, layout := range layouts {
			if row.plain && layout != redis.Plain {
				continue
			}
			t.Run(what+"/"+layout.String(), func(t *testing.T) {
				s, budget := openAs(t, row.url, layout), patience
				switch what {
				case "nobody":
					budget = 250 * time.Millisecond // five tries to dial would take longer
				case "silent", "another program":
					budget = 500 * time.Millisecond
				}
				failing(t, s, budget, row.want, row.verbs...)
				if len(row.verbs) == len(writes) {
					require.Zero(t, raw(t, row.url[strings.LastIndexAny(row.url, "@/")+1:]).DBSize(ctx).Val())
				}
				if row.findings == nil {
					return
				}
				err := newCounter(t, s, counter.Config{}).Check(ctx)
				requireFindings(t, err, row.findings...)
				require.ErrorIs(t, err, counter.ErrStore)
				require.NotContains(t, err.Error(), "secret")
				own := s.Check(ctx)
				requireFindings(t, own, row.findings...)
				require.NotErrorIs(t, own, counter.ErrStore, "the Counter adds ErrStore")
			})
		}
	}
	require.True(t, take(t, newCounter(t, open(t, "redis://:right@"+locked), counter.Config{}), signup, 1, "1/d").Allowed)
}

// A foreign value under a key of the store is an error, not a zero, and is left
// alone.
func TestForeignValues(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), open(t, "redis://"+addr)
	take(t, newCounter(t, s, counter.Config{}), signup, 1, "10/d")
	keys := client.Keys(ctx, "*").Val()
	require.Len(t, keys, 1)
	root := keys[0]
	good := client.Get(ctx, root).Val()
	for what, value := range map[string]string{
		"empty": "", "a number": "7", "text": "once upon a time there was a counter", "cut off": good[:len(good)-1],
		"no width": "\x03" + good[1:], "too long": good + "x", "only head": good[:9], "a hash": "",
	} {
		require.NoError(t, client.Del(ctx, root).Err())
		if what == "a hash" {
			require.NoError(t, client.HSet(ctx, root, "a", "b").Err())
		} else {
			require.NoError(t, client.Set(ctx, root, value, 0).Err())
		}
		before := client.Dump(ctx, root).Val()
		failing(t, s, patience, "not written by this store", all...)
		require.Equal(t, before, client.Dump(ctx, root).Val(), what)
	}
}

func TestWhatNewRefuses(t *testing.T) {
	good := goredis.NewClient(&goredis.Options{ContextTimeoutEnabled: true})
	for want, row := range map[string]struct {
		client goredis.UniversalClient
		cfg    redis.Config
	}{
		"ContextTimeoutEnabled":  {client: goredis.NewClient(&goredis.Options{})},
		"ContextTimeoutEnabled ": {client: goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"a:1"}})},
		"want *redis.Client":     {client: goredis.NewRing(&goredis.RingOptions{ContextTimeoutEnabled: true})},
		"is nil":                 {},
		"is nil ":                {client: (*goredis.Client)(nil)},
		"Config.IOTimeout is -1ns, want zero or more": {good, redis.Config{IOTimeout: -1}},
	} {
		require.ErrorContains(t, try.Err(redis.New(row.client, row.cfg)), strings.TrimSpace(want))
	}
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
		"redis://a:1?master_name=":      "unexpected option: master_name",

		"redis://a:6379:0":             `redis: "a:6379:0" has several colons: want host:port, then /db; an IPv6 address is in brackets`,
		"rediss://u:secret@a:6379:0":   `redis: "a:6379:0" has several colons`,
		"redis://::1:6379":             `redis: "::1:6379" has several colons`,
		"redis://:secret@a:1,b:2":      `redis: "a:1,b:2": want one host; of a Cluster the others are ?addr=host:port`,
		"redis://a,b:2":                `redis: "a,b:2": want one host`,
		"redis://:secret@a:0":          `redis: "a:0": port "0", want 1 to 65535`,
		"redis://a:65536":              `redis: "a:65536": port "65536", want 1 to 65535`,
		"redis://a:1/-1":               `redis: database "-1", want 0 or more`,
		"redis://a:1#0":                `redis: a URL with a # and "0" behind it, want redis://host:port/db`,
		"unix://tmp/redis.sock":        `redis: a socket with a host, "tmp", want unix:///path, with three slashes`,
		"unix://:secret@tmp/redis":     `redis: a socket with a host, "tmp", want unix:///path`,
		"unix://":                      "redis: empty unix socket path",
		"rediss:///0":                  "redis: a URL without a host, want redis://host:port/db",
		"unix:///s?layout=sums&addr=a": "invalid URL scheme: unix",
	} {
		_, err := redis.Open(url, redis.Config{})
		require.ErrorContains(t, err, want, url)
		require.ErrorContains(t, err, "redis: ", url)
		require.NotContains(t, err.Error(), "secret", url)
	}
	_, err := redis.Open("redis://a:1?layout=sums", redis.Config{Layout: redis.Plain})
	require.ErrorContains(t, err, "the URL has layout=sums, and Config.Layout is plain")
	_, err = redis.Open("redis://a:1", redis.Config{Layout: 7})
	require.EqualError(t, err, "redis: Config.Layout is Layout(7), want Sums or Plain")
}

// The layout is a parameter of the URL, in each of its forms, or of the Config. A Plain
// store is no Atomic, whoever wraps it.
func TestOpenWithALayout(t *testing.T) {
	for url, layout := range map[string]redis.Layout{
		"redis://a:1": redis.Sums, "redis://a:1?layout=sums": redis.Sums, "redis://u:p%40ss@a:1/3?layout=plain&pool_size=3": redis.Plain,
		"redis://a:1?layout=plain&addr=b:1": redis.Plain, "redis://a:1?layout=plain&master_name=m": redis.Plain, "unix:///run/redis.sock?layout=plain": redis.Plain,
	} {
		for _, s := range []redis.Store{openAs(t, url, layout), openAs(t, url, redis.Sums)} {
			_, atomic := s.(backend.Atomic)
			require.Equal(t, layout == redis.Sums, atomic, url)
		}
	}
	require.NotImplements(t, (*backend.Atomic)(nil), openPlain(t, "redis://a:1"))
	require.Equal(t, "sums plain", fmt.Sprint(redis.Sums, " ", redis.Plain))
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
		r := adding("ab:k", ladder, first.Add(time.Duration(second)*time.Second), 1)
		err := s.Do(ctx, r)
		return r.Add[1].Count, err
	}
	for second := int64(stretch - 600); second <= stretch; second++ {
		try.To(add(second))(t)
	}
	leaf := client.Keys(ctx, "*.2").Val()
	require.Len(t, leaf, 1)
	const begins = stretch / coarse * coarse
	require.EqualValues(t, stretch-begins+2, try.To(add(stretch+1))(t))
	require.NoError(t, client.Set(ctx, leaf[0], client.GetRange(ctx, leaf[0], 0, begins*2-2).Val(), goredis.KeepTTL).Err())
	require.ErrorContains(t, try.Err(add(stretch+2)), "not written by this store")
}

// A root of the right shape whose entries are not there, or are out of order, is an
// error: neither the root nor a leaf grows by what the root claims.
func TestARootThatClaimsTooMuch(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	for what, row := range map[string]struct {
		n           int64
		step, pause time.Duration // between two calls, and before the last
		damage      func(root []byte)
	}{
		"entries that are not there": {1, 8 * time.Minute, 0, func(root []byte) { copy(root[14:], []byte{1, 0, 129}) }},
		// The stretch of the entries is over.
		"entries that are not sorted": {5000, 2 * time.Second, time.Hour, func(root []byte) { clear(root[460:]) }},
	} {
		require.NoError(t, client.FlushDB(ctx).Err())
		now := time.Date(2026, 3, 2, 0, 10, 0, 0, time.UTC)
		c := at(t, addr, &now)
		for range 60 {
			take(t, c, signup, row.n, "1000000/d")
			now = now.Add(row.step)
		}
		name := client.Keys(ctx, "*").Val()[0]
		root := []byte(client.Get(ctx, name).Val())
		row.damage(root)
		require.NoError(t, client.Set(ctx, name, root, time.Hour).Err())
		now = now.Add(row.pause)
		require.ErrorContains(t, try.Err(c.Take(ctx, signup, 1, counter.MustLimits("1000000/d"))), "not written by this store", what)
		for _, key := range client.Keys(ctx, "*").Val() {
			require.Less(t, client.StrLen(ctx, key).Val(), int64(10_000), what)
		}
	}
}

// Of several groups of tiers none is added to if any is full.
func TestAFullGroupLeavesTheOthersAlone(t *testing.T) {
	addr := servertest.Redis(t)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Ladder: mustLadder(t, "1s:1m, 1m:1d")})
	require.NoError(t, c.Add(ctx, signup, backend.MaxCount-1))
	for range 3 {
		require.ErrorIs(t, c.Add(ctx, signup, 2), backend.ErrMaxCount)
	}
	require.NoError(t, c.Add(ctx, signup, 1))
	n := try.To(c.Count(ctx, signup, time.Minute))(t)
	require.Equal(t, int64(backend.MaxCount), n.High)
}
