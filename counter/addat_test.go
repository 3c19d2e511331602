package counter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

func TestAddAt(t *testing.T) {
	ctx, key := context.Background(), counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
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
