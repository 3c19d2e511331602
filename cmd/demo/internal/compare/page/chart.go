package page

import (
	"bytes"
	"fmt"
	"html/template"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// format is the room that a chart has. A chart is drawn for a wide window and
// again for a narrow one where shrinking would make its text too small: the
// page shows one of them.
type format struct {
	class         string
	width, height float64 // a unit is a pixel, unless the window has less room
	font          float64
}

// shown is a chart with all that is said about it.
type shown struct {
	Drawings []template.HTML
	Missing  string // why there is none
	Caption  string
}

// newPlot is a plot without ground of its own, in the page's inks.
func newPlot(size float64) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color = rule
		a.Width = 1
		a.Padding = 0
		a.Label.TextStyle.Font = sans(size)
		a.Label.TextStyle.Color = soft
		a.Label.Padding = vg.Length(size / 3)
		a.Tick.Label.Font = sans(size)
		a.Tick.Label.Color = soft
		a.Tick.Color = rule
		a.Tick.Width = 1
		a.Tick.Length = 4
	}
	return p
}

// sans is the font that texts are measured in. The page names others of the
// same widths for those who do not have it.
func sans(size float64) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, font.Length(size))
}

// paint is what draw leaves on a canvas of this format.
func (f format) paint(label string, drawOn func(draw.Canvas)) (template.HTML, error) {
	canvas := vgsvg.New(vg.Length(f.width), vg.Length(f.height))
	drawOn(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("page: drawing: %w", err)
	}
	return inline(b.Bytes(), "chart "+f.class, label)
}

// plotter lets a function be a [plot.Plotter]: x and y turn data into places.
type plotter func(c draw.Canvas, x, y func(float64) vg.Length)

var _ plot.Plotter = plotter(nil)

// Plot draws on c.
func (f plotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	f(c, x, y)
}

// pen is a line of this width in pixels.
func pen(i ink, width float64, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: i, Width: vg.Length(width), Dashes: dashes}
}
