package measure

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is curves over something that grows.
type Chart struct {
	X, Y   string   // what grows, and what is measured, with its unit
	Places []string // along x, evenly spaced: if each is a multiple of the one before, that axis is logarithmic
	Log    bool     // so is the other; else it begins at zero
	Curves []Curve
}

// Curve is the measurement of a contestant at each place: the medians, and the
// range of the rounds.
type Curve struct {
	Name string
	At   []Series
}

// The colours of Okabe and Ito, which nearly everybody can tell apart. The ground
// is painted: a page may be dark.
var (
	ground = color.White
	ink    = color.RGBA{0x33, 0x33, 0x33, 0xff}
	rule   = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	inks   = []color.RGBA{
		{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff},
		{0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x66, 0x66, 0x66, 0xff},
	}
)

const (
	chartWidth, chartHeight = 720, 370
	textSize                = 12
	between                 = 14 // two lines of text
)

// svg draws c under a title and the name of the machine.
func (c *Chart) svg(title string) ([]byte, error) {
	if len(c.Curves) == 0 || len(c.Curves) > len(inks) {
		return nil, fmt.Errorf("measure: a chart of %d curves, want 1 to %d", len(c.Curves), len(inks))
	}
	least, greatest := math.Inf(1), 0.0
	for _, curve := range c.Curves {
		if len(curve.At) != len(c.Places) {
			return nil, fmt.Errorf("measure: curve %q has %d places, want %d", curve.Name, len(curve.At), len(c.Places))
		}
		for _, s := range curve.At {
			least, greatest = min(least, s.Least()), max(greatest, s.Greatest())
		}
	}
	if least <= 0 || math.IsInf(greatest, 0) || math.IsNaN(greatest) {
		return nil, fmt.Errorf("measure: a chart from %g to %g, want above zero", least, greatest)
	}
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	p.Title.Text, p.Title.Padding = title+"\n"+*on, 8
	p.Title.TextStyle.Color, p.Title.TextStyle.Font = ink, sans()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Label.TextStyle.Color, a.Tick.Label.Color, a.Tick.Color = ink, ink, ink, rule
		a.Label.TextStyle.Font, a.Tick.Label.Font = sans(), sans()
		a.Width, a.Padding, a.Tick.Length, a.Label.Padding = 0, 6, 0, 6
	}
	p.X.Min, p.X.Max = 0, float64(len(c.Places)-1)
	var places plot.ConstantTicks
	for i, place := range c.Places {
		places = append(places, plot.Tick{Value: float64(i), Label: place})
	}
	ticks := steps(c.Log, &least, &greatest)
	p.X.Tick.Marker, p.Y.Tick.Marker = places, ticks
	p.Y.Min, p.Y.Max = least, greatest
	if c.Log {
		p.Y.Scale = plot.LogScale{}
	}
	p.Add(curves{c, ticks})
	canvas := vgsvg.New(chartWidth, chartHeight)
	whole := draw.New(canvas)
	whole.FillPolygon(ground, []vg.Point{{}, {Y: chartHeight}, {X: chartWidth, Y: chartHeight}, {X: chartWidth}})
	p.Draw(draw.Crop(whole, 12, -12, 10, -14))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("measure: drawing: %w", err)
	}
	// A point is a pixel. A reader without the font of the measured texts sees
	// another font of the same widths.
	return []byte(strings.NewReplacer(
		fmt.Sprintf(`width="%dpt" height="%dpt"`, chartWidth, chartHeight), fmt.Sprintf(`width="%d" height="%d"`, chartWidth, chartHeight),
		"font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif",
	).Replace(b.String())), nil
}

func sans() font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, textSize)
}

// steps returns the ticks of the y axis, and widens the axis to the first and the
// last tick: one, two and five times a power of ten, or about five at even
// distances from zero.
func steps(log bool, least, greatest *float64) (ticks plot.ConstantTicks) {
	if !log {
		power := math.Pow(10, math.Floor(math.Log10(*greatest)))
		step := power
		for _, part := range []float64{0.5, 0.2} {
			if *greatest/step < 4 {
				step = power * part
			}
		}
		*least = 0
		for y := 0.0; ; y += step {
			ticks = append(ticks, plot.Tick{Value: y, Label: trimmed(y)})
			if y >= *greatest {
				*greatest = y
				return ticks
			}
		}
	}
	for power := math.Pow(10, math.Floor(math.Log10(*least))); ; power *= 10 {
		for _, times := range []float64{1, 2, 5} {
			y := power * times
			if y <= *least {
				ticks = nil
			}
			ticks = append(ticks, plot.Tick{Value: y, Label: trimmed(y)})
			if y >= *greatest {
				*least, *greatest = ticks[0].Value, y
				return ticks
			}
		}
	}
}

// trimmed is y without zeros that say nothing.
func trimmed(y float64) string {
	if y >= 1000 {
		return Count(int64(y + 0.5))
	}
	return fmt.Sprintf("%.3g", y)
}

// curves draws the curves of a chart, each with its name at the end.
type curves struct {
	*Chart
	ticks plot.ConstantTicks // of the y axis
}

// Plot implements [plot.Plotter].
func (c curves) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	for _, tick := range c.ticks {
		canvas.StrokeLine2(draw.LineStyle{Color: rule, Width: 1}, canvas.Min.X, y(tick.Value), canvas.Max.X, y(tick.Value))
	}
	for i, curve := range c.Curves {
		var line []vg.Point
		for place, s := range curve.At {
			at := vg.Point{X: x(float64(place)), Y: y(s.Median())}
			line = append(line, at)
			canvas.StrokeLine2(draw.LineStyle{Color: inks[i], Width: 1}, at.X, y(s.Least()), at.X, y(s.Greatest()))
			canvas.DrawGlyph(draw.GlyphStyle{Color: inks[i], Radius: 2.5, Shape: draw.CircleGlyph{}}, at)
		}
		canvas.StrokeLines(draw.LineStyle{Color: inks[i], Width: 2}, line)
	}
	for i, at := range c.names(func(v float64) float64 { return float64(y(v)) }, float64(canvas.Min.Y)) {
		style := p.X.Tick.Label
		style.Color, style.XAlign, style.YAlign = inks[i], draw.XLeft, draw.YCenter
		canvas.FillText(style, vg.Point{X: canvas.Max.X + 8, Y: vg.Length(at)}, c.Curves[i].Name)
	}
}

// names are the heights of the curves' names: beside their ends, and none on
// another, nor below the floor.
func (c curves) names(y func(float64) float64, floor float64) []float64 {
	order, at := make([]int, len(c.Curves)), make([]float64, len(c.Curves))
	for i, curve := range c.Curves {
		order[i], at[i] = i, y(curve.At[len(curve.At)-1].Median())
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if at[a] < at[b] {
			return -1
		}
		return 1
	})
	for _, i := range order {
		at[i] = max(at[i], floor)
		floor = at[i] + between
	}
	return at
}

// GlyphBoxes makes room for the names.
func (c curves) GlyphBoxes(p *plot.Plot) (boxes []plot.GlyphBox) {
	for _, curve := range c.Curves {
		width := p.X.Tick.Label.Width(curve.Name)
		boxes = append(boxes, plot.GlyphBox{X: 1, Y: 0.5, Rectangle: vg.Rectangle{Max: vg.Point{X: width + 10}}})
	}
	return boxes
}

// Chart adds a drawing under the title alt, which also describes it for readers who
// cannot see. A section has one at most.
func (s *Section) Chart(alt string, c Chart) {
	s.t.Helper()
	drawing, err := c.svg(alt)
	if err == nil && s.drawing != nil {
		err = fmt.Errorf("measure: a second chart in one section: %s", alt)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.drawing = drawing
	fmt.Fprintf(&s.text, "\n![%s](%s)\n", alt, drawingOf(s.t.Name()))
}

// drawingOf returns the path of a test's chart, beside the page.
func drawingOf(test string) string {
	return "charts/" + strings.TrimPrefix(test, "Test") + ".svg"
}
