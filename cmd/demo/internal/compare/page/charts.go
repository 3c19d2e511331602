package page

import (
	"fmt"
	"slices"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/words"
)

// charts is the data of a section for page.js. No field is NaN or infinite, since
// JSON has neither.
type charts struct {
	Max    int64     `json:"max"`    // the limit, the dashed line of each curve
	Top    int64     `json:"top"`    // of the common scale of all curves
	Exact  int       `json:"exact"`  // index of the exact algorithm in Counts; -1 if there is none
	Times  []float64 `json:"times"`  // seconds since the Unix epoch, ascending
	Counts [][]int64 `json:"counts"` // Counts[i][j]: hits in the window of algorithm i ending at Times[j]
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

// captioned is a chart's text: its caption, or the reason why there is no chart.
type captioned struct{ Caption, Missing string }

// panel is the text of an algorithm's curve.
type panel struct {
	Number     int
	Name, Says string
	Label      string // for readers who do not see the chart
	Over       bool   // the curve exceeds the limit
}

// absurd is more than the program ever measures. A larger number is a mistake,
// and would squeeze all other dots into a corner of the chart.
const absurd = 1e15

// newCurves fills in the curves of the key with the largest differences: a chart
// for each algorithm, since a dozen lines in a single chart would hide each
// other, and all charts on the same scales.
func newCurves(r *compare.Report, data *charts) (captioned, []panel) {
	c, times := r.Curve, r.Curve.Times
	n := min(len(c.Counts), len(r.Algorithms))
	for _, counts := range c.Counts[:n] {
		times = times[:min(len(times), len(counts))]
	}
	if n == 0 || len(times) == 0 {
		return captioned{Missing: "There is no curve: no key has a hit that an algorithm admitted."}, nil
	}
	for _, t := range times {
		data.Times = append(data.Times, float64(t.UnixMicro())/1e6)
	}
	data.Max = max(0, c.Max)
	data.Top = max(1, data.Max)
	var panels []panel
	kept, worst, peak, peakAt := 0, 0, int64(-1), 0
	for i := range n {
		a := &r.Algorithms[i]
		counts := make([]int64, len(times))
		for j := range counts {
			counts[j] = min(max(0, c.Counts[i][j]), absurd)
		}
		data.Counts = append(data.Counts, counts)
		if a.Name == r.Reference {
			data.Exact = i
		}
		high := slices.Max(counts)
		data.Top = max(data.Top, high)
		if high <= c.Max {
			kept++
		}
		if high > peak {
			worst, peak, peakAt = i, high, slices.Index(counts, high)
		}
		p := panel{Number: i + 1, Name: clean(a.Name, nameLength), Over: high > c.Max}
		p.Says = fmt.Sprintf("at most %s in a window%s", words.Commas(high), timesLimit(high, c.Max))
		p.Label = fmt.Sprintf("%s: hits in the true window over time, %s; the limit is %s.", p.Name, p.Says, words.Commas(c.Max))
		panels = append(panels, p)
	}
	exact := ""
	if data.Exact >= 0 {
		exact = " The thin grey line is " + clean(r.Reference, nameLength) + ", the exact one."
	}
	return captioned{Caption: fmt.Sprintf("Each chart: how many hits of the key %s that algorithm had admitted in the true window that ends at each instant. "+
		"The dashed line is the limit, %s; what is above it is filled.%s "+
		"%d of %d stay at or below the limit here; the fullest window drawn holds %s%s, by %s at %s. The table has the fullest of all keys and instants.",
		quoted(c.Key), words.Commas(c.Max), exact, kept, n, words.Commas(peak), timesLimit(peak, c.Max),
		clean(r.Algorithms[worst].Name, nameLength), instant(times[peakAt]))}, panels
}

// timesLimit is the ratio of a count to the limit, in brackets.
func timesLimit(count, limit int64) string {
	if limit <= 0 {
		return ""
	}
	return " (" + number(float64(count)/float64(limit), 2) + " × the limit)"
}

func quoted(key string) string {
	if key == "" {
		return "“” (empty)"
	}
	return "“\u2068" + clean(key, keyLength) + "\u2069”" // isolated: a key may run from right to left
}

// newWorst fills in the chart of the fullest true windows against memory.
func newWorst(r *compare.Report, data *charts) captioned {
	line, most := 1.0, 0.0
	for i := range r.Algorithms {
		if v := r.Algorithms[i].WorstWindow; v < absurd {
			most = max(most, v)
		}
	}
	s := scatter{Label: "fullest true window, × the limit", Unit: "× the limit", Line: &line, Log: most > 20}
	return s.fill(r, data, func(a *compare.Algorithm) float64 { return a.WorstWindow }, 1,
		"Further left is smaller; on the dashed line or below it the limit is kept. No other is both smaller and less beyond the limit than")
}

// newWrong fills in the chart of wrong decisions, in percent of events, against
// memory.
func newWrong(r *compare.Report, data *charts) captioned {
	s := scatter{Label: "wrong decisions, % of events", Unit: "% of events decided wrongly", Log: true}
	return s.fill(r, data, func(a *compare.Algorithm) float64 {
		return 100 * float64(a.WronglyAdmitted+a.WronglyDenied) / float64(r.Events) // NaN without events
	}, 0, "Further left is smaller, further down is more exact. No other is both smaller and more exact than")
}

// fill adds a dot for each algorithm with a known memory and a known error, and
// the chart to data. Errors below least count as equal in the caption.
func (s scatter) fill(r *compare.Report, data *charts, wrong func(*compare.Algorithm) float64, least float64, how string) captioned {
	var left []string
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		d := dot{i + 1, clean(a.Name, nameLength), a.Source == "abacus", a.BytesPerKey, wrong(a)}
		if d.Bytes > 0.01 && d.Bytes < absurd && d.Wrong >= 0 && d.Wrong < absurd { // false for NaN
			s.Dots = append(s.Dots, d)
		} else {
			left = append(left, d.Name)
		}
	}
	data.Costs = append(data.Costs, s)
	if len(s.Dots) == 0 {
		return captioned{Missing: "There is nothing to draw: no algorithm has both a known memory per key and a known error."}
	}
	caption := fmt.Sprintf("Across: bytes per key, on a logarithmic scale. Up: %s. %s %s.", s.Label, how, list(unbeaten(s.Dots, least)))
	if len(left) > 0 {
		caption += " Not drawn, as its memory or its error is not known: " + list(left) + "."
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
