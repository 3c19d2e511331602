package counter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/race"
	"github.com/abacus-go/abacus/tiers"
)

// paths are the ways of a Take: the atomic step of the store, and the ticket
// protocol on a store that can only add and read, in any order or in order.
var paths = []struct {
	name  string
	store func() backend.Store
}{
	{"taker", func() backend.Store { return memory.New(memory.Config{}) }},
	{"ticket", func() backend.Store { return newPlainStore() }},
	{"ticket in order", func() backend.Store { s := newPlainStore(); s.ordered = true; return s }},
	{"ticket on memory", func() backend.Store { return struct{ backend.Store }{memory.New(memory.Config{})} }},
}

func newCounter(t testing.TB, store backend.Store, cfg counter.Config) *counter.Counter {
	t.Helper()
	c, err := counter.New(store, cfg)
	require.NoError(t, err)
	return c
}

// 40 racers for 7 places, in many rounds: 7 get in, every time, under one limit
// and under several, on one key and on two.
func TestHerd(t *testing.T) {
	const racers, places, rounds = 40, 7, 500 / race.Thrift
	for _, path := range paths {
		for name, limits := range map[string]counter.Limits{
			"one limit":    counter.MustLimits("7/d"),
			"three limits": counter.MustLimits("7/m, 9/h, 8/d"),
		} {
			for _, keys := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s, %s, %d keys", path.name, name, keys), func(t *testing.T) {
					t.Parallel()
					store := path.store()
					if plain, ok := store.(*plainStore); ok {
						plain.pause = yieldSometimes
					}
					// Far from boundaries, all hits are in the same minute.
					start := time.Date(2026, 3, 2, 12, 30, 30, 0, time.UTC)
					c := newCounter(t, store, counter.Config{Now: func() time.Time { return start }, Patience: 10 * time.Second})
					for round := range rounds / keys {
						asks := []counter.Ask{{Key: counter.Key{Event: "race", Feature: fmt.Sprint(round)}, N: 1, Limits: limits}}
						if keys == 2 {
							asks = append(asks, counter.Ask{Key: counter.Key{Event: "other", Feature: fmt.Sprint(round)}, N: 1, Limits: limits})
						}
						var admitted atomic.Int64
						var wg sync.WaitGroup
						for i := range racers {
							wg.Go(func() {
								mine := append([]counter.Ask(nil), asks...)
								if i%2 == 1 && keys == 2 {
									mine[0], mine[1] = mine[1], mine[0]
								}
								v, err := c.TakeAll(context.Background(), mine...)
								if err != nil {
									t.Error(err)
								}
								if v.Allowed {
									admitted.Add(1)
								}
							})
						}
						wg.Wait()
						require.EqualValues(t, places, admitted.Load(), "round %d", round)
						for _, ask := range asks {
							n, err := c.Count(context.Background(), ask.Key, 24*time.Hour)
							require.NoError(t, err)
							require.EqualValues(t, places, n.High, "what is left after the race")
						}
					}
				})
			}
		}
	}
}

// Astride a boundary of the ticket tier racing calls meet in two buckets; none
// too many is admitted, and with the retries not too few.
func TestHerdAstrideABoundary(t *testing.T) {
	const racers, places, rounds = 40, 7, 300 / race.Thrift
	limits := counter.MustLimits("7/m")
	ladder := tiers.For(time.Minute)
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			store := path.store()
			if plain, ok := store.(*plainStore); ok {
				plain.pause = yieldSometimes
			}
			for round := range rounds {
				base := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC).Add(time.Duration(round) * time.Hour)
				var calls atomic.Int64
				c := newCounter(t, store, counter.Config{Ladder: ladder, Skew: time.Millisecond, Patience: 10 * time.Second, Prefix: fmt.Sprint("r", round), Now: func() time.Time {
					return base.Add(time.Duration(calls.Add(1)-int64(racers)) * time.Microsecond)
				}})
				key := counter.Key{Event: "race", Feature: "boundary"}
				var admitted atomic.Int64
				var wg sync.WaitGroup
				for range racers {
					wg.Go(func() {
						v, err := c.Take(context.Background(), key, 1, limits)
						if err != nil {
							t.Error(err)
						}
						if v.Allowed {
							admitted.Add(1)
						}
					})
				}
				wg.Wait()
				require.LessOrEqual(t, admitted.Load(), int64(places))
				require.Positive(t, admitted.Load())
				if path.name == "taker" {
					require.EqualValues(t, places, admitted.Load())
				}
				n, err := c.Count(context.Background(), key, time.Minute)
				require.NoError(t, err)
				require.Equal(t, admitted.Load(), n.High)
			}
		})
	}
}
