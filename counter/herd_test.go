package counter_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
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
	return try.To(counter.New(store, cfg))(t)
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
						ticket.SideBySide(racers, func(i int) {
							mine := slices.Clone(asks)
							if i%2 == 1 {
								slices.Reverse(mine)
							}
							v, err := c.TakeAll(ctx, mine...)
							if err != nil {
								t.Error(err)
							}
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

// Hits are taken back tier by tier. Hits that have left the seconds, and not yet the hour,
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
