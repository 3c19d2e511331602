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
	"github.com/abacus-go/abacus/internal/testkit/long"
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
	const racers, places = 40, 7
	rounds := long.Rounds(100, 500)
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
					if _, ok := store.(*plainStore); ok {
						require.Positive(t, c.Stats().Waited)
					}
				})
			}
		}
	}
}

// Astride a boundary of the ticket tier racing calls meet in two buckets; none
// too many is admitted, and with the retries not too few.
func TestHerdAstrideABoundary(t *testing.T) {
	const racers, places = 40, 7
	rounds := long.Rounds(60, 300)
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

// halfUndone is a plainStore whose first taking back stands still after the finest tier,
// until calls of others have made two trips.
type halfUndone struct {
	*plainStore
	half, whole chan struct{} // closed when the first taking back is half done, and done
	trips       atomic.Int64  // of others, since
}

func (s *halfUndone) Do(ctx context.Context, op *backend.Request) error {
	select {
	case <-s.half:
		if s.trips.Add(1) > 2 {
			<-s.whole
		}
		return s.plainStore.Do(ctx, op)
	default:
	}
	if op.N >= 0 {
		return s.plainStore.Do(ctx, op)
	}
	finest, rest := *op, *op
	finest.Add, finest.Read, rest.Add = op.Add[:1], nil, op.Add[1:]
	if err := s.plainStore.Do(ctx, &finest); err != nil {
		return err
	}
	close(s.half)
	for s.trips.Load() <= 2 {
		time.Sleep(time.Millisecond)
	}
	defer close(s.whole)
	return s.plainStore.Do(ctx, &rest)
}

// Hits are taken back tier by tier. Hits that have left the seconds, and not yet the hour,
// look old beside hits that the process has confirmed: a call that is refused by them
// looks again.
func TestHitsHalfTakenBackDenyNobodyForGood(t *testing.T) {
	store := &halfUndone{plainStore: newPlainStore(), half: make(chan struct{}), whole: make(chan struct{})}
	store.ordered = true
	start := time.Date(2026, 3, 2, 12, 30, 30, 0, time.UTC)
	c := newCounter(t, struct{ backend.Store }{store}, counter.Config{Now: func() time.Time { return start }, Patience: 10 * time.Second})
	key, limits := counter.Key{Event: "race", Feature: "half"}, counter.MustLimits("7/m, 9/h, 8/d")
	v, err := c.Take(context.Background(), key, 6, limits)
	require.NoError(t, err)
	require.True(t, v.Allowed)

	refused := make(chan counter.Verdict)
	go func() {
		v, _ := c.Take(context.Background(), key, 1, counter.MustLimits("6/m, 6/h, 6/d"))
		refused <- v
	}()
	<-store.half
	v, err = c.Take(context.Background(), key, 1, limits)
	store.trips.Add(3) // a call that gave up at once lets the taking back end
	require.NoError(t, err)
	require.False(t, (<-refused).Allowed)
	require.True(t, v.Allowed, "denied with a place free: %+v", v)
}
