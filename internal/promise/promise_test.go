package promise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A window may begin with any hit, and holds a hit that is as old as the window is
// long.
func TestFullest(t *testing.T) {
	base := time.Unix(1_772_494_233, 0)
	for _, row := range []struct {
		at   []int // milliseconds
		want int64
	}{
		{nil, 0},
		{[]int{0, 1001}, 1},
		{[]int{0, 1000}, 2},
		{[]int{0, 999}, 2},
		{[]int{0, 0, 0}, 3},
		{[]int{0, 500, 1005, 1400}, 3},
		{[]int{1400, 0, 2401}, 1},
	} {
		var hits []time.Time
		for _, ms := range row.at {
			hits = append(hits, base.Add(time.Duration(ms)*time.Millisecond))
		}
		require.Equal(t, row.want, Fullest(hits, time.Second), "%v", row.at)
	}
}

// No two odd keys are the same, else they would count together.
func TestOddKeysDiffer(t *testing.T) {
	seen := map[any]bool{}
	for _, key := range OddKeys() {
		require.False(t, seen[key], "%q", key)
		seen[key] = true
	}
}
