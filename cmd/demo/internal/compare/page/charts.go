package page

import (
	"fmt"
	"slices"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// charts is the data of a section for page.js.
type charts struct {
	Max    int64     `json:"max"`    // the limit, the dashed line of each curve
	Top    int64     `json:"top"`    // of the common scale of all curves
	Times  []float64 `json:"times"`  // seconds since the Unix epoch, ascending
	Counts [][]int64 `json:"counts"` // Counts[i][j]: hits in the window of algorithm i ending at Times[j]; the exact algorithm is the first
	Costs  []scatter `json:"costs"`
}

// scatter is a chart of errors against memory, a dot for each algorithm.
type scatter struct {
	Label string   `json:"label"` // of the vertical axis
	Unit  string   `json:"unit"`  // follows a value of the vertical axis
	Line  *float64 `json:"line"`  // a dashed line across, or nil
	Log   bool     `json:"log"`   // the vertical axis is logarithmic above the least value other than zero
	Dots  []dot    `json:"dots"`
}

type dot struct {
	Number int     `json:"number"` // in the table, from 1
	Name   string  `json:"name"`
	Ours   bool    `json:"ours"`
	Bytes  float64 `json:"bytes"` // above zero
	Wrong  float64 `json:"wrong"` // zero or more
}

// captioned is the text of a chart of errors: its caption, or the reason why there
// is no chart.
type captioned struct{ Caption, Missing string }

// panel is the text of an algorithm's curve.
type panel struct {
	Number     int
	Name, Says string
	Label      string // for readers who do not see the chart
	Over       bool   // the curve exceeds the limit
}

// newCurves fills in the curves of the key with the largest differences: a chart
// for each algorithm, since a dozen lines in a single chart would hide each
// other, and all charts on the same scales.
func newCurves(r *compare.Report, data *charts) (caption string, panels []panel) {
	c := r.Curve
	for _, t := range c.Times {
		data.Times = append(data.Times, float64(t.UnixMicro())/1e6)
	}
	data.Counts, data.Max, data.Top = c.Counts, c.Max, c.Max
	kept, worst, peak, peakAt := 0, 0, int64(-1), 0
	for i, counts := range c.Counts {
		high := slices.Max(counts)
		data.Top = max(data.Top, high)
		if high <= c.Max {
			kept++
		}
		if high > peak {
			worst, peak, peakAt = i, high, slices.Index(counts, high)
		}
		p := panel{Number: i + 1, Name: name(&r.Algorithms[i]), Over: high > c.Max}
		p.Says = fmt.Sprintf("at most %s in a window%s", words.Commas(high), timesLimit(high, c.Max))
		p.Label = fmt.Sprintf("%s: hits in the true window over time, %s; the limit is %s.", p.Name, p.Says, words.Commas(c.Max))
		panels = append(panels, p)
	}
	return fmt.Sprintf("Each chart: how many hits of the key %s that algorithm had admitted in the true window that ends at each instant. "+
		"The dashed line is the limit, %s; what is above it is filled. The thin grey line is %s, the exact one. "+
		"%d of %d stay at or below the limit here; the fullest window drawn holds %s%s, by %s at %s. The table has the fullest of all keys and instants.",
		quoted(c.Key), words.Commas(c.Max), name(&r.Algorithms[0]), kept, len(panels), words.Commas(peak), timesLimit(peak, c.Max),
		panels[worst].Name, text.Instant(c.Times[peakAt])), panels
}

// timesLimit is the ratio of a count to the limit, in brackets.
func timesLimit(count, limit int64) string {
	return " (" + text.Number(float64(count)/float64(limit), 2) + " × the limit)"
}

// quoted is a key, isolated since a key may run from right to left.
func quoted(key string) string { return "“\u2068" + text.Clean(key, keyLength) + "\u2069”" }

// newWorst fills in the chart of the fullest true windows against memory.
func newWorst(r *compare.Report, data *charts) captioned {
	line := 1.0
	far := slices.ContainsFunc(r.Algorithms, func(a compare.Algorithm) bool { return a.WorstWindow > 20 })
	s := scatter{Label: "fullest true window, × the limit", Unit: "× the limit", Line: &line, Log: far}
	return s.fill(r, data, func(a *compare.Algorithm) float64 { return a.WorstWindow }, 1,
		"Further left is smaller; on the dashed line or below it the limit is kept. No other is both smaller and less beyond the limit than")
}

// newWrong fills in the chart of wrong decisions, in percent of events, against
// memory.
func newWrong(r *compare.Report, data *charts) captioned {
	s := scatter{Label: "wrong decisions, % of events", Unit: "% of events decided wrongly", Log: true}
	return s.fill(r, data, func(a *compare.Algorithm) float64 { return 100 * float64(wrong(a)) / float64(r.Events) }, 0,
		"Further left is smaller, further down is more exact. No other is both smaller and more exact than")
}

// fill adds a dot for each algorithm whose memory the server has told, and the
// chart to data. Errors below least count as equal in the caption.
func (s scatter) fill(r *compare.Report, data *charts, of func(*compare.Algorithm) float64, least float64, how string) captioned {
	var left []string
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		if a.BytesPerKey > 0 {
			s.Dots = append(s.Dots, dot{i + 1, name(a), a.Source == "abacus", a.BytesPerKey, of(a)})
		} else {
			left = append(left, name(a))
		}
	}
	data.Costs = append(data.Costs, s)
	if len(s.Dots) == 0 {
		return captioned{Missing: "There is nothing to draw: the memory of no algorithm is known."}
	}
	caption := fmt.Sprintf("Across: bytes per key, on a logarithmic scale. Up: %s. %s %s.", s.Label, how, text.List(unbeaten(s.Dots, least)))
	if len(left) > 0 {
		caption += " Not drawn, as its memory is not known: " + text.List(left) + "."
	}
	return captioned{Caption: caption}
}

// unbeaten are the names of the dots that no other dot beats in memory or in
// error without being worse in the other. Errors below least are equal.
func unbeaten(dots []dot, least float64) []string {
	var names []string
	for _, d := range dots {
		wrong := max(d.Wrong, least)
		if !slices.ContainsFunc(dots, func(o dot) bool {
			w := max(o.Wrong, least)
			return o.Bytes <= d.Bytes && w <= wrong && (o.Bytes < d.Bytes || w < wrong)
		}) {
			names = append(names, d.Name)
		}
	}
	return names
}
