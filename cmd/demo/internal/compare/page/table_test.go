package page

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
)

func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name  string
		costs []float64
		want  string
	}{
		{"least is best", []float64{2, 1, 3}, ". best worst"},
		{"two of six may share it", []float64{1, 1, 2, 2, 2, 3}, "best best . . . worst"},
		{"three may not", []float64{1, 1, 1, 2, 2, 3}, ". . . . . worst"},
		{"all are alike", []float64{1, 1, 1}, ". . ."},
		{"what is no cost does not count", []float64{-1, 1, 2, -1}, ". best worst ."},
		{"alone", []float64{1}, "."},
		{"none", []float64{-1, -1}, ". ."},
	} {
		var got []string
		for _, m := range marks(c.costs) {
			got = append(got, map[string]string{"": "."}[m]+m)
		}
		require.Equal(t, c.want, strings.Join(got, " "), c.name)
	}
}

// TestWhatIsBest: the exact log gets no mark for equality with the reference, and
// a window below the limit is as good as a full window.
func TestWhatIsBest(t *testing.T) {
	columns, rows := table(&compare.Report{Reference: "log", Seen: eventlog.Seen{Events: 9}, Algorithms: []compare.Algorithm{
		{Name: "log", Relative: 1, WorstWindow: 1},
		{Name: "fixed", Relative: 1.3, WorstWindow: 1.9, Differently: 5},
		{Name: "tiers", Relative: 0.9, WorstWindow: 0.5, Differently: 1},
	}})
	for head, want := range map[string][]string{
		"Admitted":             {"", "worst", "best"},
		"Fullest window":       {"", "worst", ""},
		"Unlike the exact log": {"", "worst", "best"},
	} {
		i := slices.IndexFunc(columns, func(m measure) bool { return m.Head == head })
		for j, mark := range want {
			require.Equal(t, mark, rows[j][i].Mark, "%s of row %d", head, j)
		}
	}
}

func TestShade(t *testing.T) {
	require.Equal(t, 1, shade(1, 1))
	for _, most := range []int64{2, 4, 118, math.MaxInt64} {
		require.Equal(t, []int{1, 6}, []int{shade(1, most), shade(most, most)}, most)
	}
	require.Equal(t, 3, shade(11, 118))
}

func TestBest(t *testing.T) {
	s := scatter{Dots: []dot{
		{Name: "small", Bytes: 1, Wrong: 9}, {Name: "exact", Bytes: 9, Wrong: 0}, {Name: "between", Bytes: 4, Wrong: 4}, {Name: "twin", Bytes: 4, Wrong: 4},
		{Name: "beaten", Bytes: 5, Wrong: 5}, {Name: "as small", Bytes: 1, Wrong: 10}, {Name: "as exact", Bytes: 10, Wrong: 0},
	}}
	require.Equal(t, []string{"small", "exact", "between", "twin"}, s.Best())
	line := 4.0
	s.Line = &line
	require.Equal(t, []string{"small", "between", "twin"}, s.Best(), "an error below the line is no better than on it")
}
