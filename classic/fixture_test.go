package classic_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/classic/servers"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// patience is more than any answer on a busy machine takes.
const patience = 20 * time.Second

var (
	ctx    = context.Background()
	signup = counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	start  = time.Date(2013, 3, 2, 10, 30, 0, 0, time.UTC)
)

// clock stands still until set. Concurrent reads and sets are safe.
type clock struct{ ns atomic.Int64 }

func clockAt(t time.Time) *clock {
	c := &clock{}
	c.set(t)
	return c
}

func (c *clock) set(t time.Time)     { c.ns.Store(t.UnixNano()) }
func (c *clock) add(d time.Duration) { c.ns.Add(int64(d)) }
func (c *clock) now() time.Time      { return time.Unix(0, c.ns.Load()) }

// maker makes a limiter; room is the burst, or the length of a queue.
type maker func(limit counter.Limit, room int64, store *classic.Store) (classic.Measured, error)

// kind is a limiter with its properties for the tests.
type kind struct {
	name  string
	make  maker
	shape shape
	worst int64 // hits of a true window that a limit, and room, of 100 was seen to admit
}

// shape is the room of a limiter, and the bounds that follow.
type shape int

const (
	windowed shape = iota
	bursting       // a rate: Max is above zero, and room is a burst
	queueing       // a rate; room is the length of a queue
	whole          // a rate without room of its own
)

// most is the largest n that passes.
func (k kind) most(s setup) int64 {
	if k.shape == bursting {
		return s.room
	}
	return s.max
}

// plain makes a maker of a constructor, and rated of a constructor with room. A nil
// pointer must not become a limiter.
func plain[L classic.Measured](f func(counter.Limit, *classic.Store) (L, error)) maker {
	return rated(func(l counter.Limit, _ int64, s *classic.Store) (L, error) { return f(l, s) })
}

func rated[L classic.Measured](f func(counter.Limit, int64, *classic.Store) (L, error)) maker {
	return func(limit counter.Limit, room int64, store *classic.Store) (classic.Measured, error) {
		l, err := f(limit, room, store)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

var kinds = []kind{
	{"fixed-window", plain(classic.NewFixedWindow), windowed, 200},
	{"fixed-slots", plain(classic.NewFixedSlots), windowed, 200},
	{"sliding-log", plain(classic.NewSlidingLog), windowed, 100},
	{"sliding-counter", plain(classic.NewSlidingCounter), windowed, 199},
	{"sliding-decay", plain(classic.NewSlidingDecay), windowed, 200},
	{"token-bucket", rated(classic.NewTokenBucket), bursting, 200},
	{"gcra", rated(classic.NewGCRA), bursting, 200},
	{"leaky-meter", rated(classic.NewLeakyMeter), bursting, 200},
	{"leaky-queue", rated(classic.NewLeakyQueue), queueing, 101},
	{"textbook-tiers", plain(classic.NewTextbookTiers), windowed, 200},
	{"first-hit-window", plain(classic.NewFirstHitWindow), windowed, 199},
	{"request-decay", plain(classic.NewRequestDecay), whole, 200},
	{"token-shaper", rated(func(l counter.Limit, room int64, s *classic.Store) (*classic.TokenShaper, error) {
		return classic.NewTokenShaper(l, room, l.Max, s)
	}), bursting, 200},
}

// each runs f for every kind of limiter, except these.
func each(t *testing.T, f func(t *testing.T, k kind), except ...string) {
	for _, name := range except {
		require.True(t, slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }), name)
	}
	for _, k := range kinds {
		if !slices.Contains(except, k.name) {
			t.Run(k.name, func(t *testing.T) { f(t, k) })
		}
	}
}

func (k kind) new(t testing.TB, max int64, per time.Duration, room int64, s *classic.Store) classic.Measured {
	l := try.To(k.make(counter.Limit{Max: max, Per: per}, room, s))(t)
	require.Equal(t, k.name, l.Name())
	return l
}

func memory(t testing.TB, cfg classic.Config) *classic.Store {
	return try.To(classic.Memory(cfg))(t)
}

// onRedis is a store on the server at addr.
func onRedis(t testing.TB, addr string, cfg classic.Config) *classic.Store {
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	return try.To(servers.Redis(client(t, addr), cfg))(t)
}

// both are a store in memory and one on the server at addr.
func both(t testing.TB, addr string, cfg classic.Config) []*classic.Store {
	t.Helper()
	return []*classic.Store{memory(t, cfg), onRedis(t, addr, cfg)}
}

// client tries to dial once: five times, the default, take longer than a call has.
func client(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

// held is the memory of a key.
func held(t testing.TB, l classic.Measured, key counter.Key) int64 {
	return try.To(l.Bytes(ctx, key))(t)
}

// since returns the cost of a limiter since a former cost.
func since(l classic.Measured, before classic.Cost) classic.Cost {
	c := l.Cost()
	return classic.Cost{Calls: c.Calls - before.Calls, Trips: c.Trips - before.Trips, Reads: c.Reads - before.Reads, Writes: c.Writes - before.Writes}
}

func take(t testing.TB, l classic.Limiter, key counter.Key, n int64) counter.Verdict {
	return try.To(l.Take(ctx, key, n))(t)
}

// dice is a random source with a seed in the log, to repeat a failed test.
func dice(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func name(i int) counter.Key { return counter.Key{Event: "signup", Feature: fmt.Sprint("user:", i)} }
