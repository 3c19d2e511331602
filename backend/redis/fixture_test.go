package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

const (
	// patience is more than any answer on a busy machine takes.
	patience = 20 * time.Second

	day = 24 * time.Hour
)

var (
	ctx     = context.Background()
	signup  = counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	layouts = []redis.Layout{redis.Sums, redis.Plain}
)

// sums is a Store with the layout Sums.
type sums interface {
	redis.Store
	backend.Atomic
}

func openAs(t testing.TB, url string, layout redis.Layout) redis.Store {
	s := try.To(redis.Open(url, redis.Config{Layout: layout, IOTimeout: patience}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func open(t testing.TB, url string) sums { return openAs(t, url, redis.Sums).(sums) }

func openPlain(t testing.TB, url string) redis.Store { return openAs(t, url, redis.Plain) }

// onClient makes a store on a client with the parameters of a URL and a Dialer.
func onClient(t testing.TB, url string, cfg redis.Config, tweaks ...func(*goredis.Options)) (redis.Store, *goredis.Client) {
	options := try.To(goredis.ParseURL(url))(t)
	if cfg.IOTimeout = patience; cfg.Dialer == nil {
		cfg.Dialer = redis.NewDialer(nil)
	}
	options.Dialer, options.ContextTimeoutEnabled, options.DialerRetries = cfg.Dialer.DialContext, true, 1
	for _, tweak := range tweaks {
		tweak(options)
	}
	client := goredis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, errors.Join(client.Close(), cfg.Dialer.Close())) })
	s := try.To(redis.New(client, cfg))(t)
	return s, client
}

// crowd calls f for each number below n, all at once.
var crowd = ticket.SideBySide

// warmed brings n connections into the pool of a client. A new connection begins with a
// greeting, so calls reach a server that stands still on connections that are there.
func warmed(t testing.TB, c *counter.Counter, client *goredis.Client, n int) {
	t.Helper()
	take(t, c, signup, 1, "1000/d")
	crowd(n, func(int) {
		if err := client.Do(ctx, "blpop", "nothing", "0.2").Err(); !errors.Is(err, goredis.Nil) {
			t.Error(err)
		}
	})
	require.GreaterOrEqual(t, client.PoolStats().IdleConns, uint32(n/2))
}

// raw is a client to look behind the store's back.
func raw(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// user makes a user with rules, or changes the user, and returns the user's URL.
func user(t testing.TB, addr, rules string) (url string) {
	args := []any{"ACL", "SETUSER", "limited", "on", ">secret"}
	for _, rule := range strings.Fields(rules) {
		args = append(args, rule)
	}
	require.NoError(t, raw(t, addr).Do(ctx, args...).Err())
	return "redis://limited:secret@" + addr
}

// logins returns URLs of a server: of a user to whom calls are functions, and of a user
// without the right to run functions.
func logins(t testing.TB, addr string) map[string]string {
	t.Helper()
	return map[string]string{"functions": "redis://" + addr, "scripts": user(t, addr, "allkeys +@all -fcall")}
}

// nobody returns an address where nobody listens.
func nobody(t testing.TB) string {
	listener := try.To(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// replicaOf starts a replica of a server.
func replicaOf(t testing.TB, addr string) string {
	t.Helper()
	return servertest.Redis(t, "--replicaof", strings.ReplaceAll(addr, ":", " "))
}

// newCounter makes a Counter with cfg's Patience. The default is long enough for the
// slowest machine.
func newCounter(t testing.TB, s backend.Store, cfg counter.Config) *counter.Counter {
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	return try.To(counter.New(s, cfg))(t)
}

// at makes a Counter on a server, with a clock.
func at(t testing.TB, addr string, now *time.Time) *counter.Counter {
	t.Helper()
	return newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return *now }})
}

func take(t testing.TB, c *counter.Counter, key counter.Key, n int64, limits string) counter.Verdict {
	return try.To(c.Take(ctx, key, n, counter.MustLimits(limits)))(t)
}

func count(t testing.TB, c *counter.Counter, key counter.Key) int64 {
	return try.To(c.Count(ctx, key, day))(t).High
}

// counted waits until a key counts n.
func counted(t testing.TB, c *counter.Counter, key counter.Key, n int64) {
	require.Eventually(t, func() bool { return count(t, c, key) == n }, patience, time.Millisecond)
}

// seedOf returns the seed of a random test, from the environment or a new one.
func seedOf(t *testing.T) uint64 {
	seed := rand.Uint64()
	if given := os.Getenv("REDIS_SEED"); given != "" {
		seed = try.To(strconv.ParseUint(given, 10, 64))(t)
	}
	t.Logf("again with: REDIS_SEED=%d", seed)
	return seed
}

// name is the key of a subtest.
func name(i int) counter.Key { return counter.Key{Event: "signup", Feature: fmt.Sprint("user:", i)} }

func mustLadder(t testing.TB, s string) tiers.Ladder { return try.To(tiers.Parse(s))(t) }

// adding is an addition to all buckets of a key at now, or its undo.
func adding(key string, l tiers.Ladder, now time.Time, n int64) *backend.Request {
	r := &backend.Request{Key: key, Ladder: l, Now: now, N: n}
	for i, b := range l.Buckets(now) {
		r.Add = append(r.Add, backend.Slot{Bucket: b, TTL: l.At(i).Keep + b.Width})
	}
	return r
}
