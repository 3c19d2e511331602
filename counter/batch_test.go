package counter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
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
		var all sync.WaitGroup
		verdicts := make([]counter.Verdict, 64)
		for i := range verdicts {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				verdicts[i] = take(t, c, signup, 2, l)
			})
		}
		all.Wait()
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
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 20 {
					require.True(t, take(t, c, signup, 1, limits("2000/h")).Allowed)
				}
			})
		}
		all.Wait()
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
		var all sync.WaitGroup
		for i := range 48 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				take(t, c, signup, int64(1+max(0, i-23)), limits("1000/h")) // from the 24th on each has its own n
			})
		}
		all.Wait()
		require.Less(t, time.Since(began), 60*time.Millisecond)
	})
}
