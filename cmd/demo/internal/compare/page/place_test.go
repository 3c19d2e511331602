package page

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlace scatters dots, in a crowd or not, and looks for labels that hide
// anything.
func TestPlace(t *testing.T) {
	area := box{40, 30, 560, 370}
	line := box{40, 99, 560, 101}
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		apart := 50 + 270*rnd.Float64()
		var labels []label
		for range 1 + rnd.IntN(12) {
			l := label{x: 50 + rnd.Float64()*apart, y: 40 + rnd.Float64()*apart, width: 20 + rnd.Float64()*150, height: 14}
			if !slices.ContainsFunc(labels, func(o label) bool { return math.Hypot(l.x-o.x, l.y-o.y) < dotRadius }) {
				labels = append(labels, l)
			}
		}
		place(labels, area, []box{line})
		for i, a := range labels {
			require.True(t, a.placed, "seed %d: there is room for label %d of %d", seed, i, len(labels))
			require.True(t, area.holds(a.at), "seed %d: label %d is inside", seed, i)
			require.False(t, line.overlaps(a.at), "seed %d: label %d is off the line", seed, i)
			for j, b := range labels {
				require.False(t, i != j && a.at.overlaps(b.at), "seed %d: labels %d and %d", seed, i, j)
				require.False(t, box{b.x, b.y, b.x, b.y}.grown(dotRadius).overlaps(a.at), "seed %d: label %d hides dot %d", seed, i, j)
				require.False(t, i != j && a.leader(a.at).crosses(b.at), "seed %d: the line to label %d crosses label %d", seed, i, j)
			}
		}
	}
}

func TestPlaceWithoutRoom(t *testing.T) {
	labels := []label{{x: 10, y: 10, width: 30, height: 14}, {x: 10, y: 10, width: 300, height: 14}}
	place(labels, box{0, 0, 60, 60}, nil)
	require.True(t, labels[0].placed)
	require.False(t, labels[1].placed)

	crowd := make([]label, mostLabels+1)
	for i := range crowd {
		crowd[i] = label{x: 100 * float64(i), y: 50, width: 20, height: 14}
	}
	place(crowd[1:], box{0, 0, 1e4, 1e4}, nil)
	require.True(t, crowd[1].placed)
	crowd[1].placed = false
	place(crowd, box{0, 0, 1e4, 1e4}, nil)
	require.False(t, crowd[1].placed)
}

func TestPlacePrefersTheRight(t *testing.T) {
	labels := []label{{x: 100, y: 100, width: 40, height: 14}}
	place(labels, box{0, 0, 300, 200}, nil)
	require.Equal(t, box{108, 93, 148, 107}, labels[0].at)
}

func TestLeaderCrosses(t *testing.T) {
	b := box{10, 10, 20, 20}
	for _, c := range []struct {
		name    string
		line    leader
		crosses bool
	}{
		{"through it", leader{0, 15, 30, 15}, true},
		{"upright", leader{15, 0, 15, 30}, true},
		{"slanting through a corner", leader{8, 14, 14, 8}, true},
		{"ends inside", leader{0, 0, 15, 15}, true},
		{"past a corner", leader{0, 12, 12, 0}, false},
		{"touches a corner", leader{0, 20, 20, 0}, false},
		{"along an edge", leader{0, 10, 30, 10}, false},
		{"ends before it", leader{0, 15, 9, 15}, false},
		{"beside it", leader{25, 0, 25, 30}, false},
	} {
		require.Equal(t, c.crosses, c.line.crosses(b), c.name)
	}
}
