package page

import (
	"fmt"
	"html/template"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/words"
)

// curvePoints is about how many points of a curve are drawn: more of them are
// finer than a pixel.
const curvePoints = 600

// panelFormat is that of the picture of one algorithm. They stand side by side
// as the window has room for them, so one format serves all windows.
var panelFormat = format{class: "panel", width: 300, height: 150, font: 11}

// curves are the pictures of the key whose windows differ most: one for each
// algorithm, on the same scales, so that the eye can go from one to the next.
// Twelve lines in one picture would hide each other.
type curves struct {
	shown
	Panels []panelOf
}

// panelOf is the picture of one algorithm, and what is to be seen there.
type panelOf struct {
	Number  int
	Name    string
	Drawing template.HTML
	Says    string
	Over    bool
}

// point is one of a curve, in seconds after the log's first event.
type point struct{ at, count float64 }

func newCurves(r *compare.Report) (curves, error) {
	c := r.Curve
	var out curves
	n := min(len(c.Counts), len(r.Algorithms))
	times := inZone(c.Times, r.From)
	for _, counts := range c.Counts[:n] {
		if len(counts) < len(times) {
			times = times[:len(counts)]
		}
	}
	if n == 0 || len(times) == 0 {
		out.Missing = "There is no curve: no key has a hit that an algorithm admitted."
		return out, nil
	}

	var exact []point
	top := float64(c.Max)
	drawn := make([][]point, n)
	kept, worst, peak, peakAt := 0, 0, int64(-1), 0
	for i := range n {
		drawn[i] = thin(times, c.Counts[i])
		if r.Algorithms[i].Name == r.Reference {
			exact = drawn[i]
		}
		high, at := highest(c.Counts[i][:len(times)])
		top = max(top, float64(high))
		if high <= c.Max {
			kept++
		}
		if high > peak {
			worst, peak, peakAt = i, high, at
		}
	}
	for i := range n {
		a := &r.Algorithms[i]
		name := clean(a.Name, nameLength)
		high, _ := highest(c.Counts[i][:len(times)])
		panel := panelOf{Number: i + 1, Name: name, Over: high > c.Max}
		panel.Says = fmt.Sprintf("at most %s in a window%s", words.Commas(high), timesLimit(high, c.Max))
		compared := exact
		if a.Name == r.Reference {
			compared = nil
		}
		var err error
		panel.Drawing, err = drawPanel(fmt.Sprintf("%s: hits in the true window over time, %s; the limit is %s.", name, panel.Says, words.Commas(c.Max)),
			drawn[i], compared, float64(max(0, c.Max)), top, times)
		if err != nil {
			return out, err
		}
		out.Panels = append(out.Panels, panel)
	}
	grey := ""
	if exact != nil {
		grey = " The thin grey line is " + clean(r.Reference, nameLength) + ", the exact one."
	}
	out.Caption = fmt.Sprintf("Each picture: how many hits of the key %s that algorithm had admitted in the true window that ends at each instant. "+
		"The dashed line is the limit, %s; what is above it is filled.%s "+
		"%d of %d stay at or below the limit here; the fullest window drawn holds %s%s, by %s at %s. The table has the fullest of all keys and instants.",
		quoted(c.Key), words.Commas(c.Max), grey, kept, n, words.Commas(peak), timesLimit(peak, c.Max),
		clean(r.Algorithms[worst].Name, nameLength), instant(times[peakAt]))
	return out, nil
}

// timesLimit is how often the limit goes into a count, in brackets.
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
	return "“\u2068" + clean(key, keyLength) + "\u2069”" // isolated: it may run from right to left
}

func inZone(times []time.Time, like time.Time) []time.Time {
	out := make([]time.Time, len(times))
	for i, t := range times {
		out[i] = t.In(like.Location())
	}
	return out
}

func highest(counts []int64) (high int64, at int) {
	for i, n := range counts {
		if i == 0 || n > high {
			high, at = n, i
		}
	}
	return high, at
}

// thin is a curve with about curvePoints points: of neighbours that would share
// a pixel it keeps the lowest and the highest, for a peak is what matters.
func thin(times []time.Time, counts []int64) []point {
	at := func(i int) point { return point{times[i].Sub(times[0]).Seconds(), float64(max(0, counts[i]))} }
	group := (2*len(times) + curvePoints - 1) / curvePoints
	if group <= 2 {
		group = 1
	}
	var out []point
	for first := 0; first < len(times); first += group {
		low, high := first, first
		for i := first; i < min(first+group, len(times)); i++ {
			if counts[i] < counts[low] {
				low = i
			}
			if counts[i] > counts[high] {
				high = i
			}
		}
		out = append(out, at(min(low, high)))
		if low != high {
			out = append(out, at(max(low, high)))
		}
	}
	return out
}

func drawPanel(label string, counts, exact []point, limit, top float64, times []time.Time) (template.HTML, error) {
	p := newPlot(panelFormat.font)
	p.X.Min, p.X.Max = 0, times[len(times)-1].Sub(times[0]).Seconds()
	p.X.Tick.Marker = timeTicks(times[0], times[len(times)-1], 4)
	p.Y.Min, p.Y.Max = 0, max(1, top*1.06)
	grid := countTicks(limit, p.Y.Max, 3)
	p.Y.Tick.Marker = grid
	p.Y.Tick.Length = 0
	p.Add(plotter(func(c draw.Canvas, x, y func(float64) vg.Length) {
		places := func(points []point) []vg.Point {
			out := make([]vg.Point, len(points))
			for i, p := range points {
				out[i] = vg.Point{X: x(p.at), Y: y(p.count)}
			}
			return out
		}
		for _, t := range grid {
			c.StrokeLine2(pen(rule, 1), c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
		excess := above(counts, limit)
		for _, run := range excess {
			c.FillPolygon(over, places(run))
		}
		c.StrokeLines(pen(line, 1.6), places(counts))
		for _, run := range excess {
			c.StrokeLines(pen(over, 1.6), places(run))
		}
		if exact != nil {
			c.StrokeLines(pen(reference, 0.9), places(exact))
		}
		c.StrokeLine2(pen(text, 1.1, 5, 3), c.Min.X, y(limit), c.Max.X, y(limit))
		if len(counts) == 1 { // a line of one point cannot be seen
			shade := line
			if counts[0].count > limit {
				shade = over
			}
			c.DrawGlyph(draw.GlyphStyle{Color: shade, Radius: 3.5, Shape: draw.CircleGlyph{}}, places(counts)[0])
		}
	}))
	return panelFormat.paint(label, p.Draw)
}

// above are the stretches of a curve above the limit. Each begins and ends on
// the limit.
func above(curve []point, limit float64) [][]point {
	var runs [][]point
	var run []point
	for i, p := range curve {
		if i > 0 {
			before := curve[i-1]
			if (before.count > limit) != (p.count > limit) {
				share := (limit - before.count) / (p.count - before.count)
				run = append(run, point{before.at + share*(p.at-before.at), limit})
			}
		}
		if p.count > limit {
			if len(run) == 0 {
				run = append(run, point{p.at, limit})
			}
			run = append(run, p)
		} else if len(run) > 0 {
			runs, run = append(runs, run), nil
		}
	}
	if len(run) > 0 {
		runs = append(runs, append(run, point{curve[len(curve)-1].at, limit}))
	}
	return runs
}
