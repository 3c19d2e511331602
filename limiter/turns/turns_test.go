package turns_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter/turns"
)

// taker admits one call, and then denies for an hour until it is freed.
type taker struct {
	mu    sync.Mutex
	used  bool
	asked int
}

func (s *taker) take(context.Context) (turns.Answer[string], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.used {
		return turns.Answer[string]{Verdict: "denied", RetryAfter: time.Hour}, nil
	}
	s.used = true
	return turns.Answer[string]{Verdict: "admitted", Allowed: true}, nil
}

func (s *taker) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = false
}

// A denied call sleeps, nobody asks behind it, and freed keys are taken at once, in
// the order of the calls; keys of others free nobody.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := turns.New[string](10)
		var store taker
		var all sync.WaitGroup
		order := make(chan int, 4)
		key, other := counter.Key{Event: "mail", Feature: "user:7"}, counter.Key{Event: "mail", Feature: "user:8"}
		for i := range 4 {
			all.Go(func() {
				answer := try.To(qs.Wait(t.Context(), &turns.Call[string]{Keys: []counter.Key{key}, N: 1, Take: store.take}))(t)
				require.Equal(t, "admitted", answer.Verdict)
				order <- i
			})
			synctest.Wait()
		}
		require.Equal(t, 2, store.asked)
		for i := 1; i < 4; i++ {
			store.free()
			qs.Refunded(func() []counter.Key { return []counter.Key{other} })
			qs.Freed(func(k counter.Key) bool { return k == other })
			synctest.Wait()
			require.Len(t, order, i)
			if i%2 == 0 {
				qs.Refunded(func() []counter.Key { return []counter.Key{key, key} })
			} else {
				qs.Freed(func(k counter.Key) bool { return k == key })
			}
			synctest.Wait()
		}
		all.Wait()
		for i := range 4 {
			require.Equal(t, i, <-order)
		}
		calls, queues := qs.Waiting()
		require.Zero(t, calls)
		require.Zero(t, queues)
	})
}

// The errors of a call that gives up, with the last denial of its queue.
func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := turns.New[string](1)
		store := taker{used: true}
		wait := func(ctx context.Context) (turns.Answer[string], error) {
			return qs.Wait(ctx, &turns.Call[string]{Keys: []counter.Key{{Event: "mail", Feature: "user:7"}}, N: 1, Take: store.take})
		}
		var all sync.WaitGroup
		all.Go(func() {
			answer, err := wait(t.Context())
			require.Equal(t, []any{turns.ErrClosed, "denied"}, []any{err, answer.Verdict})
			require.InDelta(t, 50*time.Minute, answer.RetryAfter, float64(2*time.Minute), "what is left of the hour")
		})
		synctest.Wait()
		_, err := wait(t.Context())
		require.ErrorIs(t, err, turns.ErrFull)
		require.EqualError(t, err, `limiter: event "mail": the queue is full`)
		hasty, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, try.Err(wait(hasty)), turns.ErrTooLong)
		time.Sleep(10 * time.Minute)
		qs.Close()
		qs.Close()
		all.Wait()
	})
}
