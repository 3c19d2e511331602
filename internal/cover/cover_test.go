package cover_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// Merged runs hold the buckets of the given runs, each once, in order, and no two of
// them touch.
func TestMerge(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		var runs tiers.Cover
		want := map[tiers.Bucket]bool{}
		for range r.IntN(7) {
			run := tiers.Run{Width: []time.Duration{time.Second, time.Minute}[r.IntN(2)], First: r.Int64N(20) - 10, N: 1 + r.Int64N(6)}
			runs = append(runs, run)
			for i := range run.N {
				want[tiers.Bucket{Width: run.Width, Index: run.First + i}] = true
			}
		}
		given := slices.Clone(runs)
		merged := cover.Merge(runs)
		require.EqualValues(t, len(want), merged.Reads(), "%v of %v", merged, given)
		for i, run := range merged {
			for j := range run.N {
				require.True(t, want[tiers.Bucket{Width: run.Width, Index: run.First + j}], "%v of %v", merged, given)
			}
			if i > 0 {
				before := merged[i-1]
				require.True(t, before.Width < run.Width || before.Width == run.Width && before.First+before.N < run.First, "%v of %v", merged, given)
			}
		}
	}
}

func TestMergeAllocatesNothing(t *testing.T) {
	runs := tiers.Cover{{Width: time.Second, First: 5, N: 3}, {Width: time.Second, First: 1, N: 4}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if given := [2]tiers.Run(runs); len(cover.Merge(given[:])) != 1 {
			t.Error("two runs that touch were not merged")
		}
	}))
}
