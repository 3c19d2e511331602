package page

import (
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

func TestCrossing(t *testing.T) {
	g := &growth{Hits: []int64{10, 100, 1000}, Lines: []compare.GrowthLine{{Bytes: []int64{10, 20, 30}}}}
	for want, ours := range map[string][]int64{
		"smaller than the log from 10 hits on, the fewest that were weighed":    {1, 2, 3},
		"smaller than the log from 1,000 hits on, and not yet at 100":           {1, 20, 3},
		"smaller than the log from 100 hits on, and not yet at 10":              {10, 2, 3},
		"not smaller than the log up to 1,000 hits, the most that were weighed": {1, 2, 30},
	} {
		require.Equal(t, want, g.Crossing(ours))
	}
}
