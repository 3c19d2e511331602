package counter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
)

// slowStep is a store over a network whose steps take 10 ms.
type slowStep struct {
	backend.Atomic
	steps  atomic.Int64
	panics atomic.Bool
	fails  atomic.Bool
}

var errSlow = errors.New("the step has failed")

func (s *slowStep) Take(ctx context.Context, r *backend.TakeRequest) error {
	s.steps.Add(1)
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.panics.Load() {
		panic("a mistake")
	}
	if s.fails.Load() {
		return errSlow
	}
	return s.Atomic.Take(ctx, r)
}

// Of 64 callers of a key, those that wait go together: each is admitted or denied as if
// it had come alone, in the order of arrival, and gives back its own hits.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStep{Atomic: memory.New(memory.Config{})}
		c := newCounter(t, store, counter.Config{})
		l := limits("80/h")
		verdicts := make([]counter.Verdict, 64)
		ticket.SideBySide(len(verdicts), func(i int) {
			time.Sleep(time.Duration(i) * time.Microsecond)
			verdicts[i] = take(t, c, signup, 2, l)
		})
		for i, v := range verdicts {
			require.Equal(t, i < 40, v.Allowed, i)
			if i >= 8 && i < 40 {
				require.EqualValues(t, 78-2*i, v.Remaining)
				require.Equal(t, verdicts[8].At(), v.At())
			} else if i >= 40 {
				require.InDelta(t, 3601, v.RetryAfter.Seconds(), 1)
			}
		}
		require.LessOrEqual(t, store.steps.Load(), int64(8+2))
		requireCount(t, c, signup, time.Hour, 80)
		for i := range verdicts {
			before := verdicts[i]
			require.NoError(t, c.Refund(ctx, &verdicts[i]))
			require.NoError(t, c.Refund(ctx, &before), "once")
		}
		requireCount(t, c, signup, time.Hour, 0)
	})
}

// The callers of a crowd that come again go together again, in some two calls of the store
// at a time, and not eight alone after each batch.
func TestACrowdStaysTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStep{Atomic: memory.New(memory.Config{})}
		c := newCounter(t, store, counter.Config{})
		began := time.Now()
		ticket.SideBySide(64, func(int) {
			for range 20 {
				require.True(t, take(t, c, signup, 1, limits("2000/h")).Allowed)
			}
		})
		trips := int64(time.Since(began) / (10 * time.Millisecond))
		require.LessOrEqual(t, store.steps.Load(), 3*trips)
		require.LessOrEqual(t, trips, int64(50))
		requireCount(t, c, signup, time.Hour, 64*20)
	})
}

// Who leaves a batch leaves no hits; errors and panics of the store reach all others.
func TestLeavingABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStep{Atomic: memory.New(memory.Config{})}
		c := newCounter(t, store, counter.Config{})
		l := limits("100/h")
		for round := range 4 {
			key := counter.Key{Event: "round", Feature: string(rune('a' + round))}
			var all sync.WaitGroup
			var admitted, left, failed, panicked atomic.Int64
			for i := range 40 {
				all.Go(func() {
					defer func() {
						if recover() != nil {
							panicked.Add(1)
						}
					}()
					ctx, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					if i >= 8 && (i%2 == 0 || round == 1) {
						time.AfterFunc(15*time.Millisecond, cancel) // while the batch is under way
					}
					time.Sleep(time.Duration(i) * time.Microsecond)
					began := time.Now()
					v, err := c.Take(ctx, key, 1, l)
					switch {
					case err == nil && v.Allowed:
						admitted.Add(1)
					case errors.Is(err, context.Canceled):
						left.Add(1)
						require.LessOrEqual(t, time.Since(began), 16*time.Millisecond)
					case errors.Is(err, errSlow):
						failed.Add(1)
					}
				})
			}
			time.Sleep(12 * time.Millisecond)
			store.fails.Store(round == 2)
			store.panics.Store(round == 3)
			all.Wait()
			store.fails.Store(false)
			store.panics.Store(false)
			gone := map[bool]int64{true: 32, false: 16}[round == 1]
			require.Equal(t, gone, left.Load(), round)
			switch round {
			case 2:
				require.EqualValues(t, 16, failed.Load())
			case 3:
				require.EqualValues(t, 16, panicked.Load())
			}
			requireCount(t, c, key, time.Hour, admitted.Load())
		}
	})
}

// Calls that go alone are eight at a time again, once those before them went together.
func TestAloneAfterABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, &slowStep{Atomic: memory.New(memory.Config{})}, counter.Config{})
		began := time.Now()
		ticket.SideBySide(48, func(i int) {
			time.Sleep(time.Duration(i) * time.Microsecond)
			take(t, c, signup, int64(1+max(0, i-23)), limits("1000/h")) // from the 24th on each has its own n
		})
		require.Less(t, time.Since(began), 60*time.Millisecond)
	})
}

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
	return try.To(counter.New(store, cfg))(t)
}

// 40 racers for 7 places, in many rounds: 7 get in, every time, under one limit
// and under several, on one key and on two.
func TestHerd(t *testing.T) {
	const racers, places = 40, 7
	rounds := long.Rounds(40, 500)
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
						ticket.SideBySide(racers, func(i int) {
							mine := slices.Clone(asks)
							if i%2 == 1 {
								slices.Reverse(mine)
							}
							v, err := c.TakeAll(ctx, mine...)
							assert.NoError(t, err)
							if v.Allowed {
								admitted.Add(1)
							}
						})
						require.EqualValues(t, places, admitted.Load(), "round %d", round)
						for _, ask := range asks {
							requireCount(t, c, ask.Key, time.Hour, places) // what is left after the race
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

// Hits are undone tier by tier. Hits that have left the seconds, and not yet the hour,
// look old beside hits that the process has confirmed: a call that is refused by them
// looks again.
func TestHitsHalfTakenBackDenyNobodyForGood(t *testing.T) {
	plain := newPlainStore()
	plain.ordered = true
	half, whole := make(chan struct{}), make(chan struct{}) // closed when the first taking back is half done, and done
	var trips atomic.Int64                                  // of others, since: two end the standstill
	c := newCounter(t, backend.FromDo(func(ctx context.Context, op *backend.Request) error {
		select {
		case <-half:
			if trips.Add(1) > 2 {
				<-whole
			}
			return plain.Do(ctx, op)
		default:
		}
		if op.N >= 0 {
			return plain.Do(ctx, op)
		}
		finest, rest := *op, *op
		finest.Add, finest.Read, rest.Add = op.Add[:1], nil, op.Add[1:]
		if err := plain.Do(ctx, &finest); err != nil {
			return err
		}
		close(half)
		for trips.Load() <= 2 {
			time.Sleep(time.Millisecond)
		}
		defer close(whole)
		return plain.Do(ctx, &rest)
	}), counter.Config{Now: newClock(noon.Add(30 * time.Minute)).now, Patience: 10 * time.Second})
	all := limits("7/m, 9/h, 8/d")
	require.True(t, take(t, c, signup, 6, all).Allowed)
	refused := make(chan counter.Verdict)
	go func() {
		v, _ := c.Take(ctx, signup, 1, limits("6/m, 6/h, 6/d"))
		refused <- v
	}()
	<-half
	v, err := c.Take(ctx, signup, 1, all)
	trips.Add(3) // a call that gave up at once lets the taking back end
	require.NoError(t, err)
	require.False(t, (<-refused).Allowed)
	require.True(t, v.Allowed, "denied with a place free: %+v", v)
}
