package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
)

// Formats of a picture of error against memory. Where there is room for names
// they stand beside the dots; a narrow one has the numbers of the table.
var (
	wideCost   = format{class: "wide", width: 560, height: 380, font: 12}
	narrowCost = format{class: "narrow", width: 340, height: 300, font: 12}
)

// dot is an algorithm in such a picture.
type dot struct {
	number int
	name   string
	ours   bool
	x, y   float64 // as drawn: the logarithm of bytes, and whatever the axis has
	wrong  float64 // the error, of which less is better
}

// absurd is more than any program measures: a number that large is a mistake,
// and its axis would squeeze all others into a point.
const absurd = 1e15

// axis is one way to tell how wrong an algorithm is.
type axis struct {
	label string
	of    func(a *compare.Algorithm) float64 // NaN is not drawn
	scale func(values []float64) (scaled []float64, low, high float64, ticks plot.ConstantTicks)
	line  float64 // a value of note, drawn as a line, if it is finite
	least float64 // below this, less is not better
	how   string  // it is read
}

var worstAxis = axis{
	label: "fullest true window, × the limit",
	of:    func(a *compare.Algorithm) float64 { return a.WorstWindow },
	scale: around1,
	line:  1,
	least: 1,
	how:   "Further left is smaller; on the dashed line or below it the limit is kept. No other is both smaller and less beyond the limit than",
}

// wrongAxis is the share of events, in percent, that were decided wrongly.
func wrongAxis(events int64) axis {
	return axis{
		label: "wrong decisions, % of events",
		of: func(a *compare.Algorithm) float64 {
			return 100 * float64(a.WronglyAdmitted+a.WronglyDenied) / float64(events) // NaN without events
		},
		scale: logFromZero,
		line:  math.NaN(),
		how:   "Further left is smaller, further down is more exact. No other is both smaller and more exact than",
	}
}

// newCost is a picture of error against memory per key.
func newCost(r *compare.Report, y axis) (shown, error) {
	var out shown
	var dots []dot
	var bytes, wrong []float64
	var left []string
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		v := y.of(a)
		if !(a.BytesPerKey > 0.01 && a.BytesPerKey < absurd && v >= 0 && v < absurd) { // so that NaN is left out too
			left = append(left, clean(a.Name, nameLength))
			continue
		}
		dots = append(dots, dot{number: i + 1, name: clean(a.Name, 40), ours: a.Source == "abacus", wrong: max(v, y.least)})
		bytes, wrong = append(bytes, math.Log10(a.BytesPerKey)), append(wrong, v)
	}
	if len(dots) == 0 {
		out.Missing = "There is nothing to draw: no algorithm has both a known memory per key and a known error."
		return out, nil
	}
	lined := finite(y.line)
	if lined {
		wrong = append(wrong, y.line)
	}
	scaled, low, high, ticks := y.scale(wrong)
	if lined {
		y.line = scaled[len(dots)]
	}
	for i := range dots {
		dots[i].x, dots[i].y = bytes[i], scaled[i]
	}
	out.Caption = fmt.Sprintf("Across: bytes per key, on a logarithmic scale. Up: %s. %s %s.", y.label, y.how, list(unbeaten(dots)))
	if len(left) > 0 {
		out.Caption += " Not drawn, as its memory or its error is not known: " + list(left) + "."
	}
	for _, f := range []format{wideCost, narrowCost} {
		drawing, err := drawCost(f, y, dots, low, high, ticks)
		if err != nil {
			return out, err
		}
		out.Drawings = append(out.Drawings, drawing)
	}
	return out, nil
}

// unbeaten are the names of the dots that no other beats in memory or in error
// without being worse in the other.
func unbeaten(dots []dot) []string {
	var names []string
	for _, d := range dots {
		if !slices.ContainsFunc(dots, func(o dot) bool { return o.x <= d.x && o.wrong <= d.wrong && (o.x < d.x || o.wrong < d.wrong) }) {
			names = append(names, d.name)
		}
	}
	return names
}

func drawCost(f format, y axis, dots []dot, low, high float64, ticks plot.ConstantTicks) (template.HTML, error) {
	p := newPlot(f.font)
	left, right := dots[0].x, dots[0].x
	for _, d := range dots {
		left, right = min(left, d.x), max(right, d.x)
	}
	margin := max(0.12*(right-left), 0.25)
	p.X.Min, p.X.Max = left-margin, right+margin
	p.X.Label.Text = "memory per key, bytes"
	p.X.Tick.Marker = logTicks(p.X.Min, p.X.Max, short)
	p.Y.Min, p.Y.Max = low, high
	p.Y.Label.Text = y.label
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length = 0
	style := p.Y.Tick.Label
	style.Color, style.XAlign, style.YAlign = text, draw.XLeft, draw.YBottom

	p.Add(plotter(func(c draw.Canvas, x, yOf func(float64) vg.Length) {
		for _, t := range ticks {
			c.StrokeLine2(pen(rule, 1), c.Min.X, yOf(t.Value), c.Max.X, yOf(t.Value))
		}
		var obstacles []box
		if finite(y.line) {
			at := yOf(y.line)
			c.StrokeLine2(pen(text, 1.1, 5, 3), c.Min.X, at, c.Max.X, at)
			obstacles = append(obstacles, box{float64(c.Min.X), float64(at) - 1, float64(c.Max.X), float64(at) + 1})
		}
		at := make([]vg.Point, len(dots))
		for i, d := range dots {
			at[i] = vg.Point{X: x(d.x), Y: yOf(d.y)}
		}
		heaps := together(at)
		labels, lines := make([]label, len(heaps)), make([][]string, len(heaps))
		pitch := f.font * 1.25
		for i, heap := range heaps {
			lines[i] = f.nameOf(dots, heap)
			labels[i] = label{x: float64(at[heap[0]].X), y: float64(at[heap[0]].Y), height: pitch * float64(len(lines[i]))}
			for _, name := range lines[i] {
				// Where the font is not there, another may be a little wider.
				labels[i].width = max(labels[i].width, float64(style.Width(name))*1.08+2)
			}
		}
		place(labels, box{float64(c.Min.X), float64(c.Min.Y), float64(c.Max.X), float64(c.Max.Y)}, obstacles)
		for i := range labels {
			l := labels[i].leader(labels[i].at)
			if labels[i].placed && l.length() > dotRadius+labelGap+4 {
				c.StrokeLine2(pen(reference, 0.8), vg.Length(l.x0), vg.Length(l.y0), vg.Length(l.x1), vg.Length(l.y1))
			}
		}
		for i, d := range dots {
			drawDot(c, at[i], d.ours)
		}
		for i, l := range labels {
			for n, name := range lines[i] {
				if l.placed {
					c.FillText(style, vg.Point{X: vg.Length(l.at.x0 + 1), Y: vg.Length(l.at.y1 - pitch*float64(n+1) + f.font*0.25)}, name)
				}
			}
		}
	}))
	return f.paint(fmt.Sprintf("%s against memory per key, for %d algorithms.", y.label, len(dots)), p.Draw)
}

// together are the indices of dots that lie one on another, or nearly so: those
// have one label. Each heap begins with its first dot.
func together(at []vg.Point) [][]int {
	var heaps [][]int
	for i, p := range at {
		heap := slices.IndexFunc(heaps, func(h []int) bool {
			first := at[h[0]]
			return math.Hypot(float64(p.X-first.X), float64(p.Y-first.Y)) < dotRadius
		})
		if heap < 0 {
			heaps = append(heaps, []int{i})
		} else {
			heaps[heap] = append(heaps[heap], i)
		}
	}
	return heaps
}

// nameOf is the label of dots that lie together: a line for each, or only their
// numbers.
func (f format) nameOf(dots []dot, heap []int) []string {
	var names []string
	for _, i := range heap {
		name := strconv.Itoa(dots[i].number)
		if f == wideCost {
			name += " " + dots[i].name
		}
		names = append(names, name)
	}
	if f == wideCost {
		return names
	}
	return []string{strings.Join(names, ", ")}
}

// drawDot draws a circle for a textbook algorithm and a diamond for one of the
// library's: colour alone would not tell them apart for everybody.
func drawDot(c draw.Canvas, at vg.Point, diamond bool) {
	if !diamond {
		c.DrawGlyph(draw.GlyphStyle{Color: line, Radius: dotRadius - 0.5, Shape: draw.CircleGlyph{}}, at)
		return
	}
	r := vg.Length(dotRadius + 1)
	c.FillPolygon(ours, []vg.Point{{X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}})
}
