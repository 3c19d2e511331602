package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// A Counter whose process stood still between its clock and the store reads the
// clock again; one whose clock stands still goes by what is there.
func TestACounterIsLabelledAnew(t *testing.T) {
	ladder, err := tiers.Parse("1s:1m")
	require.NoError(t, err)
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	var readings []time.Duration // after noon; the last one stays
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Ladder: ladder, Now: func() time.Time {
		now := noon.Add(readings[0])
		readings = readings[min(1, len(readings)-1):]
		return now
	}})
	require.NoError(t, err)
	key, limits := counter.Key{Event: "e", Feature: "f"}, counter.MustLimits("3/m")
	const late, ahead = 59900 * time.Millisecond, 62100 * time.Millisecond
	take := func(clock ...time.Duration) counter.Verdict {
		t.Helper()
		readings = clock
		v, err := c.Take(context.Background(), key, 1, limits)
		require.NoError(t, err)
		return v
	}
	for range 3 {
		require.True(t, take(0).Allowed)
	}
	require.True(t, take(ahead).Allowed)
	v := take(late, ahead+1)
	require.True(t, v.Allowed)
	require.Equal(t, noon.Add(ahead+1), v.At().UTC())
	readings = []time.Duration{late, ahead + 2}
	require.NoError(t, c.Add(context.Background(), key, 1))
	require.False(t, take(ahead+4).Allowed)
	require.False(t, take(late).Allowed, "3 are right of it")
}
