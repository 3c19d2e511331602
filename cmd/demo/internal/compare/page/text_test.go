package page_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/compare/page"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
)

// The table keeps to its width, whatever the numbers.
func TestComparisonFits(t *testing.T) {
	for _, big := range []bool{false, true} {
		a := compare.Algorithm{Name: "abacus 1s:366d, 1m:366d, 1h:366d, 1d:366d", Source: "abacus", Worst: "N", Relative: 1, WorstWindow: 1, Counted: "commands", NanosPerEvent: 54_321}
		if big {
			a.Relative, a.WorstWindow = 12.5, 1000
			a.WronglyAdmitted, a.WronglyDenied, a.Differently = 12_345_678, 12_345_678, 12_345_678
			a.BytesPerKey, a.BytesWorstKey, a.ReadsPerEvent, a.NanosPerEvent = 12_345_678, 12_345_678, 8_900, 12_345_678
		}
		r := &compare.Report{
			Log: strings.Repeat("a long name/", 20), Limit: "5/d", Store: "redis://h", Reference: "sliding log", Seen: eventlog.Seen{Events: 1_000_000}, Keys: 9,
			Algorithms: []compare.Algorithm{{Name: "sliding log", Source: "classic", Worst: "N", Relative: 1, WorstWindow: 1}, a},
			LeftOut:    []compare.LeftOut{{Name: "textbook tiers", Why: "Per is 1500ms, want whole seconds"}},
		}
		for _, width := range []int{300, 120, 100, 80, 64} {
			if big && width == 64 {
				continue // ten million wrong decisions have no room there
			}
			for _, trips := range []float64{0, 1} {
				r.Algorithms[1].TripsPerEvent = trips
				lines := strings.Split(string(page.Text([]*compare.Report{r, r}, width)), "\n")
				tables := 0
				for _, line := range lines {
					require.LessOrEqual(t, utf8.RuneCountInString(line), width, "%q", line)
					require.Equal(t, strings.TrimRight(line, " "), line)
					if strings.HasPrefix(line, "sliding log ") {
						tables++
					}
				}
				want := 4 // two for each limit
				if width >= 120 && !big || width == 300 {
					want = 2
				}
				require.Equal(t, want, tables, "%d columns", width)
			}
		}
	}
}

// The speed of the machine does not change the form of the table.
func TestComparisonOnASlowMachine(t *testing.T) {
	form := func(width int, nanos float64) (widths []int) {
		r := &compare.Report{Limit: "5/d", Store: "redis://h", Reference: "sliding log", Seen: eventlog.Seen{Events: 1_000_000}, Keys: 9, Algorithms: []compare.Algorithm{
			{Name: "abacus 1s:1d, 1m:1d, 1h:1d", Source: "abacus", Worst: "N", BytesPerKey: 12_345_678, BytesWorstKey: 12_345_678, TripsPerEvent: 1, NanosPerEvent: nanos}}}
		for line := range strings.Lines(string(page.Text([]*compare.Report{r}, width))) {
			widths = append(widths, utf8.RuneCountInString(line))
		}
		return widths
	}
	for width := 80; width <= 150; width++ {
		for nanos := 0.5; nanos < 1e14; nanos *= 3 {
			require.Equal(t, form(width, 1), form(width, nanos), "%d columns, %f ns", width, nanos)
		}
	}
}
