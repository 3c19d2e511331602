package counter_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// Hits that no bucket is kept for, or of a later clock than Skew allows, are refused.
func TestAddAt(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Skew: time.Second, Now: newClock(noon).now})
	for _, age := range []time.Duration{26 * time.Hour, 200 * 365 * 24 * time.Hour} {
		err := c.AddAt(ctx, signup, 1, noon.Add(-age))
		require.ErrorIs(t, err, counter.ErrTooOld)
		require.NotErrorIs(t, err, counter.ErrStore)
	}
	require.NoError(t, c.AddAt(ctx, signup, 3, noon.Add(time.Second)))
	require.ErrorContains(t, c.AddAt(ctx, signup, 1, noon.Add(2*time.Second)), "at is 2026-03-02T12:00:32Z, 2s after Config.Now, want at most Config.Skew later, which is 1s")
	require.ErrorContains(t, c.AddAt(ctx, signup, 0, noon), "n is 0, want 1 to")
	require.NoError(t, c.RefundAt(ctx, signup, 2, noon.Add(time.Second)))
	requireCount(t, c, signup, time.Hour, 1)
}

// A failing AddAt is repeated until it is answered, on a store that fails before,
// between and after its additions and takings back, with and without answers.
func TestARepeatedAddAtIsNeverLess(t *testing.T) {
	more := false
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		store := newPlainStore()
		c := newCounter(t, store, counter.Config{Now: func() time.Time { return halfPast }})
		require.NoError(t, c.AddAt(ctx, signup, 100, halfPast.Add(-5*time.Hour)), "hits of others")
		failures := r.IntN(6)
		store.fault = func(op *backend.Request) (int, int, error) {
			if op.N > 0 {
				if failures--; failures < 0 {
					return 0, 0, nil
				}
			} else if r.IntN(2) == 0 {
				return 0, 0, nil
			}
			made := r.IntN(len(op.Add) + 1)
			return made, r.IntN(made + 1), errors.New("cut")
		}
		attempts := int64(1)
		for ; ; attempts++ {
			err := c.AddAt(ctx, signup, 7, halfPast.Add(-5*time.Hour))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, counter.ErrStore)
			require.NotErrorIs(t, err, counter.ErrTooOld)
		}
		for i := range c.Config().Ladder.Len() {
			sum, _ := store.held(c.Config().Ladder.At(i).Width)
			require.GreaterOrEqual(t, sum, int64(107), "seed %d", seed)
			require.LessOrEqual(t, sum, 100+7*attempts, "seed %d", seed)
			more = more || sum > 107
		}
	}
	require.True(t, more, "no unanswered addition was left")
}

// After an AddAt no Take of the process goes by settled buckets that were read
// before, not even by those that a Take under way has read.
func TestAddAtEndsWhatIsRemembered(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		store := newPlainStore()
		store.ordered = true
		k := newTaking(t, store, counter.Config{})
		add := func() {
			require.NoError(t, k.AddAt(ctx, counter.Key{Event: "e", Feature: "a"}, 10, k.now.Add(-22*time.Hour)))
		}
		k.take("a", "100/d")
		if meanwhile {
			steps := 0
			store.pause = func() {
				if steps++; steps == 8 { // three additions, and the oldest five hours are read
					store.pause = nil
					add()
				}
			}
		}
		k.take("a", "100/d") // and is remembered
		if !meanwhile {
			_, _, reads := k.take("a", "100/d")
			require.Zero(t, reads)
			add()
		}
		require.Nil(t, store.pause)
		v, _, _ := k.take("a", "12/d")
		require.False(t, v.Allowed, "meanwhile: %v", meanwhile)
	}
}
