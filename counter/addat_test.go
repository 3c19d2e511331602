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
	"github.com/abacus-go/abacus/tiers"
)

func TestAddAt(t *testing.T) {
	key := signup
	now := time.Date(2026, 3, 2, 12, 30, 30, 0, time.UTC)
	ladder, err := tiers.Parse("1s:10m, 1m:1h, 1h:1d")
	require.NoError(t, err)
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Ladder: ladder, Skew: time.Second, Now: func() time.Time { return now }})
	require.NoError(t, err)
	count := func(window time.Duration) int64 {
		n, err := c.Count(ctx, key, window)
		require.NoError(t, err)
		return n.High
	}

	require.NoError(t, c.AddAt(ctx, key, 3, now.Add(-5*time.Hour)))
	require.NoError(t, c.AddAt(ctx, key, 2, now.Add(-30*time.Minute)))
	require.NoError(t, c.AddAt(ctx, key, 1, now.Add(-5*time.Minute)))
	require.EqualValues(t, []int64{1, 3, 6}, []int64{count(10 * time.Minute), count(time.Hour), count(24 * time.Hour)})
	require.EqualValues(t, []int64{0, 1, 3}, []int64{count(4 * time.Minute), count(29 * time.Minute), count(4 * time.Hour)})

	require.ErrorIs(t, c.AddAt(ctx, key, 1, now.Add(-26*time.Hour)), counter.ErrTooOld)
	require.NotErrorIs(t, c.AddAt(ctx, key, 1, now.Add(-26*time.Hour)), counter.ErrStore)
	require.ErrorIs(t, c.AddAt(ctx, key, 1, time.Date(1701, 1, 1, 0, 0, 0, 0, time.UTC)), counter.ErrTooOld)
	require.NoError(t, c.AddAt(ctx, key, 1, now.Add(time.Second)))
	require.ErrorContains(t, c.AddAt(ctx, key, 1, now.Add(2*time.Second)), "at is 2026-03-02T12:30:32Z, 2s after Config.Now, want at most Config.Skew later, which is 1s")
	require.ErrorContains(t, c.AddAt(ctx, key, 0, now), "n is 0, want 1 to")
	require.EqualValues(t, 7, count(24*time.Hour))

	require.NoError(t, c.RefundAt(ctx, key, 2, now.Add(-30*time.Minute)))
	require.EqualValues(t, []int64{2, 2, 5}, []int64{count(10 * time.Minute), count(time.Hour), count(24 * time.Hour)})
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
