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
	"github.com/abacus-go/abacus/counter"
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

// of makes a maker of a constructor: a nil pointer must not become a limiter.
func of[L classic.Measured](l L, err error) (classic.Measured, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

var kinds = []kind{
	{"fixed-window", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewFixedWindow(l, s))
	}, windowed},
	{"fixed-slots", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewFixedSlots(l, s))
	}, windowed},
	{"sliding-log", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewSlidingLog(l, s))
	}, windowed},
	{"sliding-counter", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewSlidingCounter(l, s))
	}, windowed},
	{"sliding-decay", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewSlidingDecay(l, s))
	}, windowed},
	{"token-bucket", func(l counter.Limit, room int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewTokenBucket(l, room, s))
	}, bursting},
	{"gcra", func(l counter.Limit, room int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewGCRA(l, room, s))
	}, bursting},
	{"leaky-meter", func(l counter.Limit, room int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewLeakyMeter(l, room, s))
	}, bursting},
	{"leaky-queue", func(l counter.Limit, room int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewLeakyQueue(l, room, s))
	}, queueing},
	{"textbook-tiers", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewTextbookTiers(l, s))
	}, windowed},
	{"first-hit-window", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewFirstHitWindow(l, s))
	}, windowed},
	{"request-decay", func(l counter.Limit, _ int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewRequestDecay(l, s))
	}, whole},
	{"token-shaper", func(l counter.Limit, room int64, s *classic.Store) (classic.Measured, error) {
		return of(classic.NewTokenShaper(l, room, l.Max, s))
	}, bursting},
}

// each runs f for every kind of limiter, except these.
func each(t *testing.T, f func(t *testing.T, k kind), except ...string) {
	t.Helper()
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
	t.Helper()
	l, err := k.make(counter.Limit{Max: max, Per: per}, room, s)
	require.NoError(t, err)
	require.Equal(t, k.name, l.Name())
	return l
}

func memory(t testing.TB, cfg classic.Config) *classic.Store {
	t.Helper()
	s, err := classic.Memory(cfg)
	require.NoError(t, err)
	return s
}

// onRedis is a store on the server at addr.
func onRedis(t testing.TB, addr string, cfg classic.Config) *classic.Store {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	s, err := classic.Redis(client(t, addr), cfg)
	require.NoError(t, err)
	return s
}

// client tries to dial once: five times, the default, take longer than a call has.
func client(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

func take(t testing.TB, l classic.Limiter, key counter.Key, n int64) counter.Verdict {
	t.Helper()
	v, err := l.Take(ctx, key, n)
	require.NoError(t, err)
	return v
}

// dice is a random source with a seed in the log, to repeat a failed test.
func dice(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func name(i int) counter.Key { return counter.Key{Event: "signup", Feature: fmt.Sprint("user:", i)} }
