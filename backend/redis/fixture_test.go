package redis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
)

// patience is more than any answer on a busy machine takes.
const patience = 20 * time.Second

var (
	ctx    = context.Background()
	signup = counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
)

// sums is a Store with the layout Sums.
type sums interface {
	redis.Store
	backend.Atomic
}

func open(t testing.TB, url string) sums {
	t.Helper()
	s, err := redis.Open(url, redis.Config{IOTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.(sums)
}

// raw is a client to look behind the store's back.
func raw(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// scriptsUser makes a user without the right to run functions, and returns name and
// password.
func scriptsUser(t testing.TB, addr string) string {
	t.Helper()
	require.NoError(t, raw(t, addr).Do(ctx, "ACL", "SETUSER", "scripts", "on", ">secret", "allkeys", "+@all", "-fcall").Err())
	return "scripts:secret"
}

// newCounter makes a Counter with cfg's Patience. The default is long enough for the
// slowest machine.
func newCounter(t testing.TB, s backend.Store, cfg counter.Config) *counter.Counter {
	t.Helper()
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	c, err := counter.New(s, cfg)
	require.NoError(t, err)
	return c
}

func take(t testing.TB, c *counter.Counter, key counter.Key, n int64, limits string) counter.Verdict {
	t.Helper()
	v, err := c.Take(ctx, key, n, counter.MustLimits(limits))
	require.NoError(t, err)
	return v
}

func count(t testing.TB, c *counter.Counter, key counter.Key) int64 {
	t.Helper()
	n, err := c.Count(ctx, key, 24*time.Hour)
	require.NoError(t, err)
	return n.High
}

// name is the key of a subtest.
func name(i int) counter.Key { return counter.Key{Event: "signup", Feature: fmt.Sprint("user:", i)} }
