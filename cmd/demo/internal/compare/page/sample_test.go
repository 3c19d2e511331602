package page_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/compare/page"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// replayed is a comparison in memory, under 100 hits a day: the same in every run.
var replayed = sync.OnceValues(func() (*compare.Report, error) {
	limits := counter.MustLimits("100/d")
	log, err := compare.Generate(7, limits)
	if err != nil {
		return nil, err
	}
	store, err := stores.Open(stores.Name{}, time.Second)
	if err != nil {
		return nil, err
	}
	c, err := compare.New(compare.Config{Limits: limits, Store: store, Growth: true})
	if err != nil {
		return nil, err
	}
	reports, err := c.Run(context.Background(), log)
	if err != nil {
		return nil, err
	}
	return reports[0], nil
})

// sample is a report for a test to change, with the trips of a store on a server. Its
// curves rise seven times to the fullest window of each algorithm.
func sample(t testing.TB, trips float64) *compare.Report {
	base := try.To(replayed())(t)
	r := *base
	r.Log, r.Skew, r.RunsBack = "access.log.gz", "5s", "3s"
	r.BadLines, r.FirstBad = 12, `line 881: "GET /": no time`
	r.LeftOut = []compare.LeftOut{{Name: "abacus 1m:1h", Why: "its tiers are kept too briefly for 1d"}}
	r.Algorithms = slices.Clone(r.Algorithms)
	grown := *r.Growth
	grown.Lines = slices.Clone(grown.Lines)
	r.Growth = &grown
	const points = 501
	r.Curve.Times, r.Curve.Counts = make([]time.Time, points), make([][]int64, len(r.Algorithms))
	for j := range r.Curve.Times {
		r.Curve.Times[j] = r.From.Add(time.Duration(j) * r.To.Sub(r.From) / (points - 1))
		for i, a := range r.Algorithms {
			height := float64(r.Curve.Max) * a.WorstWindow * math.Abs(math.Sin(7*math.Pi*float64(j)/(points-1)))
			r.Curve.Counts[i] = append(r.Curve.Counts[i], int64(math.Round(height)))
		}
	}
	for i := range r.Algorithms {
		r.Algorithms[i].TripsPerEvent, r.Algorithms[i].NanosPerEvent = trips, float64(100+10*i)
	}
	return &r
}

// edges are unusual reports that a page must survive, by name.
func edges(t testing.TB) map[string]*compare.Report {
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	one := sample(t, 0)
	one.Algorithms, one.Curve.Counts = one.Algorithms[:1], one.Curve.Counts[:1]

	event := &compare.Report{
		Log: "one.csv", Limit: "1/s", Seen: eventlog.Seen{Events: 1}, Keys: 1, From: at, To: at, Store: "memory", Reference: "sliding log",
		Algorithms: []compare.Algorithm{
			{Name: "sliding log", Source: "classic", Admitted: 1, Relative: 1, WorstWindow: 1, BytesPerKey: 80},
			{Name: "gcra", Source: "classic", Admitted: 1, Relative: 1, WorstWindow: 1, BytesPerKey: 80},
		},
		Curve: compare.Curve{Key: "k", Max: 1, Times: []time.Time{at}, Counts: [][]int64{{1}, {1}}},
	}

	untold := sample(t, 0)
	untold.Growth = nil
	for i := range untold.Algorithms {
		untold.Algorithms[i].BytesPerKey, untold.Algorithms[i].BytesWorstKey = 0, 0
	}

	long := sample(t, 0)
	for i := range long.Algorithms {
		long.Algorithms[i].Name += " with a name that does not end " + string(make([]byte, 200)) + "Donaudampfschifffahrtsgesellschaft"
	}
	long.Log, long.Curve.Key = string(make([]rune, 5000)), "ip:"+string(make([]rune, 5000))+"\u202eevil"

	noLog := sample(t, 1)
	noLog.Growth.Lines = noLog.Growth.Lines[1:]

	return map[string]*compare.Report{
		"one algorithm": one, "one event": event, "memory that is not told": untold, "long names": long, "no log on the store": noLog,
	}
}

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
