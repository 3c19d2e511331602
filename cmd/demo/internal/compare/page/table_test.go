package page

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
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

func TestFindings(t *testing.T) {
	r := &compare.Report{Events: 1000, Algorithms: []compare.Algorithm{
		{Name: "log", WorstWindow: 1, BytesPerKey: 2000},
		{Name: "fixed", WorstWindow: 1.98, WronglyAdmitted: 20, WronglyDenied: 1, BytesPerKey: 56},
		{Name: "bucket", WorstWindow: 1.5, WronglyAdmitted: 20, BytesPerKey: 60},
		{Name: "none", BytesPerKey: 0, WronglyDenied: 2}, {Name: "tiers", WorstWindow: 1.1, BytesPerKey: 900, WronglyDenied: 2},
	}}
	require.Equal(t, []string{
		"3 of 5 algorithms let more than the limit into a true window; the most is 1.98 times the limit, by fixed. The limit was kept by log and none.",
		"The most wrong decisions: 21 of 1,000 events (2.10 %), by fixed. None by log.",
		"A key takes 56 bytes with fixed, and 2,000 with log.",
	}, findings(r))
	r.Algorithms = r.Algorithms[:1]
	require.Equal(t, []string{"No algorithm let more than the limit into any true window of this log.", "No decision was wrong."}, findings(r))
}

// TestWhatIsBest: the exact log gets no mark for equality with the reference, and
// a window below the limit is as good as a full window.
func TestWhatIsBest(t *testing.T) {
	table := newTable(&compare.Report{Reference: "log", Events: 9, Algorithms: []compare.Algorithm{
		{Name: "log", Relative: 1, WorstWindow: 1},
		{Name: "fixed", Relative: 1.3, WorstWindow: 1.9, Differently: 5},
		{Name: "tiers", Relative: 0.9, WorstWindow: 0.5, Differently: 1},
	}})
	var all []column
	for _, group := range table.Groups {
		all = append(all, group.Columns...)
	}
	for head, want := range map[string][]string{
		"Admitted":             {"", "worst", "best"},
		"Fullest window":       {"", "worst", ""},
		"Unlike the exact log": {"", "worst", "best"},
	} {
		i := slices.IndexFunc(all, func(c column) bool { return c.Head == head })
		for j, mark := range want {
			require.Equal(t, mark, table.Rows[j].Cells[i].Mark, "%s of %s", head, table.Rows[j].Name)
		}
	}
}

// TestNotes: how things were measured is told once for all, by source, or by
// name, whichever is shortest.
func TestNotes(t *testing.T) {
	r := &compare.Report{Sample: 1, Algorithms: []compare.Algorithm{
		{Name: "log", Source: "classic", BytesMeasured: "MEMORY USAGE", Counted: "commands"},
		{Name: "fixed", Source: "classic", BytesMeasured: "MEMORY USAGE", Counted: "commands"},
		{Name: "default", Source: "abacus", BytesMeasured: "MEMORY USAGE", Counted: "buckets"},
	}, LeftOut: []compare.LeftOut{{Name: "abacus 1m:1h", Why: "its tiers are kept too briefly"}}}
	left := fact{"Left out", "abacus 1m:1h, its tiers are kept too briefly."}
	require.Equal(t, []fact{
		{"Memory", "MEMORY USAGE; the mean is that of 1 key, each right after its last hit."},
		{"Reads and writes, classic", "counted in commands."},
		{"Reads and writes, abacus", "counted in buckets."},
		left,
	}, notes(r))

	r.Sample, r.Algorithms[1].Counted = 0, "buckets"
	require.Equal(t, []fact{
		{"Memory", "MEMORY USAGE."},
		{"Reads and writes, log", "counted in commands."},
		{"Reads and writes, fixed and default", "counted in buckets."},
		left,
	}, notes(r))
}
