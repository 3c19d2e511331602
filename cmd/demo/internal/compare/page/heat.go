package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/words"
)

// heatRows is how many hours are drawn at most.
const heatRows = 72

// newHeat is the picture of one key's hits, an hour a row.
func newHeat(r *compare.Report) (shown, error) {
	var out shown
	n := min(len(r.Heat.Hours), len(r.Heat.Hits))
	hours, hits := r.Heat.Hours[:n], r.Heat.Hits[:n] // in their own zone: in another an hour may begin at half past
	all := total(hits)
	if n == 0 || all == 0 {
		out.Missing = "There is nothing to draw: no hit of one key was recorded by the minute."
		return out, nil
	}
	first := fullest(hits, heatRows)
	last := min(n, first+heatRows)
	hours, hits = hours[first:last], hits[first:last]

	var most int64
	var at time.Time
	var busy, minutes int
	for i, row := range hits {
		for m, count := range row {
			minutes++
			if count > 0 {
				busy++
			}
			if count > most {
				most, at = count, hours[i].Add(time.Duration(m)*time.Minute)
			}
		}
	}
	out.Caption = fmt.Sprintf("All hits of the key %s, admitted or not: a row is an hour, a column is a minute, and the shade tells how many. "+
		"%s in %s of %s; the busiest minute has %s, at %s.",
		quoted(r.Heat.Key), words.Plural(total(hits), "hit"), words.Commas(int64(busy)), words.Plural(int64(minutes), "minute"), words.Commas(most), instant(at))
	if last-first < n {
		out.Caption += fmt.Sprintf(" Drawn are the %d hours in a row with the most hits, out of %s.", last-first, words.Commas(int64(n)))
	}
	rows := float64(len(hits))
	for _, f := range []format{
		{class: "wide", width: 960, height: heatEdge(12) + max(50, rows*max(9, min(18, 440/rows))), font: 12},
		{class: "narrow", width: 340, height: heatEdge(11) + max(50, rows*max(6, min(14, 300/rows))), font: 11},
	} {
		drawing, err := drawHeat(f, hours, hits, shades(most))
		if err != nil {
			return out, err
		}
		out.Drawings = append(out.Drawings, drawing)
	}
	return out, nil
}

// heatEdge is the height that the axis and the key need, for a size of font.
func heatEdge(size float64) float64 { return 7.5 * size }

func total(hits [][60]int64) (sum int64) {
	for _, row := range hits {
		for _, n := range row {
			sum += max(0, n)
		}
	}
	return sum
}

// fullest is where the rows begin that have the most hits together.
func fullest(hits [][60]int64, rows int) int {
	best, most := 0, int64(-1)
	for first := 0; first == 0 || first+rows <= len(hits); first++ {
		if sum := total(hits[first:min(len(hits), first+rows)]); sum > most {
			best, most = first, sum
		}
	}
	return best
}

// shades are the least counts of the steps of the heat: each step is the same
// multiple of the one before it, so that a minute of 2 hits and one of 4 differ
// although another has a thousand.
func shades(most int64) []int64 {
	from := []int64{1}
	for i := 1; i < heatSteps; i++ {
		next := int64(math.Ceil(math.Pow(float64(most)+1, float64(i)/heatSteps)))
		next = max(next, from[len(from)-1]+1)
		if next > most {
			break
		}
		from = append(from, next)
	}
	return from
}

// shadeOf is the step that a count belongs to; -1 is that of no hits.
func shadeOf(count int64, from []int64) int {
	i, found := slices.BinarySearch(from, count)
	if found {
		return i
	}
	return i - 1
}

func drawHeat(f format, hours []time.Time, hits [][60]int64, from []int64) (template.HTML, error) {
	p := newPlot(f.font)
	rows := len(hits)
	p.X.Min, p.X.Max = 0, 60
	p.X.Label.Text = "minute of the hour"
	var minutes plot.ConstantTicks
	for m := 0; m <= 50; m += 10 {
		minutes = append(minutes, plot.Tick{Value: float64(m) + 0.5, Label: fmt.Sprintf("%02d", m)})
	}
	p.X.Tick.Marker = minutes
	p.Y.Min, p.Y.Max = 0, float64(rows)
	p.Y.Label.Text = "hour, " + hours[0].Format("MST")
	p.Y.Tick.Marker = hourTicks(hours, (f.height-heatEdge(f.font))/float64(rows), f.font)
	p.Y.Tick.Length = 0
	p.Y.Width, p.X.Width = 0, 0
	p.Add(plotter(func(c draw.Canvas, x, y func(float64) vg.Length) {
		c.SetColor(panel)
		c.Fill(c.Rectangle.Path())
		// All minutes of a shade are one path: a path for each of them would
		// make the page five times as long.
		cells := make([]vg.Path, len(from))
		gap := (x(1) - x(0)) * 0.06
		for i, row := range hits {
			for m, count := range row {
				s := shadeOf(count, from)
				if s < 0 {
					continue
				}
				rect := vg.Rectangle{
					Min: vg.Point{X: x(float64(m)) + gap, Y: y(float64(rows-i-1)) + gap},
					Max: vg.Point{X: x(float64(m+1)) - gap, Y: y(float64(rows-i)) - gap},
				}
				cells[s] = append(cells[s], rect.Path()...)
			}
		}
		for s, path := range cells {
			c.SetColor(shadeInk(s, len(from)))
			c.Fill(path)
		}
	}))
	return f.paint(fmt.Sprintf("Hits of one key by hour and minute, over %d hours.", rows), func(c draw.Canvas) {
		key := vg.Length(f.font * 3.5)
		p.Draw(draw.Crop(c, 0, 0, key, 0))
		drawShades(draw.Crop(c, 0, 0, 0, key-c.Max.Y), f.font, from, p.Y.Tick.Label)
	})
}

// shadeInk spreads few shades over all steps.
func shadeInk(s, of int) ink {
	if of == 1 {
		return heat + heatSteps/2
	}
	return heat + ink(s*(heatSteps-1)/(of-1))
}

// hourTicks name as many rows as there is room for; the first of a day has its
// date.
func hourTicks(hours []time.Time, height, size float64) plot.ConstantTicks {
	every := 1
	for _, every = range []int{1, 2, 3, 6, 12, 24} {
		if float64(every)*height >= size*1.15 {
			break
		}
	}
	var ticks plot.ConstantTicks
	for i, h := range hours {
		if h.Hour()%every != 0 {
			continue
		}
		label := fmt.Sprintf("%02d", h.Hour())
		if h.Hour() == 0 {
			label = h.Format("2 Jan ") + label
		}
		ticks = append(ticks, plot.Tick{Value: float64(len(hours)-i) - 0.5, Label: label})
	}
	return ticks
}

// drawShades explains the shades: a box for each, with the counts below it.
func drawShades(c draw.Canvas, size float64, from []int64, style draw.TextStyle) {
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	labels := []string{"0"}
	for i, low := range from {
		switch {
		case i == len(from)-1 && i > 0:
			labels = append(labels, short(float64(low))+"+")
		case i == len(from)-1 || from[i+1] == low+1:
			labels = append(labels, short(float64(low)))
		default:
			labels = append(labels, short(float64(low))+"–"+strconv.FormatInt(from[i+1]-1, 10))
		}
	}
	const unit = "hits a minute"
	width := min(70, (c.Max.X-c.Min.X-style.Width(unit)-10)/vg.Length(len(labels)))
	for i, l := range labels {
		left := c.Max.X - width*vg.Length(len(labels)-i)
		box := vg.Rectangle{
			Min: vg.Point{X: left, Y: c.Max.Y - vg.Length(size*0.9)},
			Max: vg.Point{X: left + width - 2, Y: c.Max.Y},
		}
		if i == 0 {
			c.SetColor(panel)
		} else {
			c.SetColor(shadeInk(i-1, len(from)))
		}
		c.Fill(box.Path())
		if i == 0 {
			c.SetLineStyle(pen(rule, 1))
			c.Stroke(box.Path())
		}
		c.FillText(style, vg.Point{X: left + width/2, Y: box.Min.Y - 2}, l)
	}
	style.XAlign = draw.XRight
	c.FillText(style, vg.Point{X: c.Max.X - width*vg.Length(len(labels)) - 6, Y: c.Max.Y}, unit)
}
