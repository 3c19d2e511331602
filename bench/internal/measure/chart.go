package measure

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"regexp"
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
	Title  string
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

// The colours are those of the pages of the programs, by name; a drawing has the index of
// a name until it gets its style. The ground is painted, since a page may be dark.
var colours = []string{"ground", "text", "rule", "ours", "line", "over", "good", "soft"}

func paint(name string) color.Color {
	return color.RGBA{B: uint8(1 + slices.Index(colours, name)), A: 0xff}
}

// look is the colour and the line of a curve.
type look struct {
	color color.Color
	line  draw.LineStyle
}

// looks are those of all curves: the colour of abacus is that of abacus everywhere. There
// are none for more curves than colours.
func (c *Chart) looks() (all []look) {
	ours, others := 0, colours[4:]
	for _, curve := range c.Curves {
		l := look{line: draw.LineStyle{Width: 2}}
		if strings.HasPrefix(curve.Name, "abacus") {
			l.color, l.line.Width = paint("ours"), 3
			if ours++; ours > 1 {
				l.line.Dashes = []vg.Length{6, 4}
			}
		} else if len(others) == 0 {
			return nil
		} else {
			l.color, others = paint(others[0]), others[1:]
		}
		l.line.Color = l.color
		all = append(all, l)
	}
	return all
}

const (
	chartWidth, chartHeight = 720, 370
	textSize                = 12
	between                 = 14 // two lines of text
)

// svg draws c under its title and the name of a machine, in the colours of css.
func (c *Chart) svg(machine, css string) ([]byte, error) {
	looks := c.looks()
	if looks == nil {
		return nil, fmt.Errorf("measure: a chart of %d curves, want 1 at least and 4 at most that are not of abacus", len(c.Curves))
	}
	least, greatest, err := c.bounds()
	if err != nil {
		return nil, err
	}
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	p.Title.Text, p.Title.Padding = c.Title+"\n"+machine, 8
	p.Title.TextStyle.Color, p.Title.TextStyle.Font = paint("text"), sans()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Color, a.Tick.Label.Color, a.Tick.Color = paint("text"), paint("text"), paint("rule")
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
	p.Add(curves{c, ticks, looks})
	canvas := vgsvg.New(chartWidth, chartHeight)
	whole := draw.New(canvas)
	whole.FillPolygon(paint("ground"), []vg.Point{{}, {Y: chartHeight}, {X: chartWidth, Y: chartHeight}, {X: chartWidth}})
	p.Draw(draw.Crop(whole, 12, -12, 10, -14))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("measure: drawing: %w", err)
	}
	// A point is a pixel. A reader without the font of the measured texts sees
	// another font of the same widths.
	drawing := strings.NewReplacer(
		fmt.Sprintf(`width="%dpt" height="%dpt"`, chartWidth, chartHeight), fmt.Sprintf(`width="%d" height="%d"`, chartWidth, chartHeight),
		"font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif",
	).Replace(b.String())
	return styled(drawing, c.Title, css)
}

var (
	painted = regexp.MustCompile(`\sstyle="([^"]*?)(fill|stroke):#00000(\d);?`)
	defined = regexp.MustCompile(`--(\w+):(#[0-9a-f]{6})`)
)

// styled gives a drawing a title and its colours, as css defines them: first those on a
// light ground, then those on a dark one.
func styled(drawing, title, css string) ([]byte, error) {
	style, dark := "", ""
	for i, name := range colours {
		var found []string
		for _, match := range defined.FindAllStringSubmatch(css, -1) {
			if match[1] == name {
				found = append(found, match[2])
			}
		}
		if len(found) != 2 {
			return nil, fmt.Errorf("measure: the style has %d colours --%s, want a light one and a dark one", len(found), name)
		}
		style += fmt.Sprintf(".fill%d{fill:%s}.stroke%d{stroke:%s}\n", i+1, found[0], i+1, found[0])
		dark += fmt.Sprintf(".fill%d{fill:%s}.stroke%d{stroke:%s}\n", i+1, found[1], i+1, found[1])
	}
	drawing = painted.ReplaceAllString(drawing, ` class="$2$3" style="$1`)
	head, rest, _ := strings.Cut(drawing, "<g ")
	return []byte(head + "<title>" + html.EscapeString(title) + "</title>\n<style>\n" + style + "@media (prefers-color-scheme:dark){\n" + dark + "}\n</style>\n<g " + rest), nil
}

// bounds are the least and the greatest value of a chart.
func (c *Chart) bounds() (least, greatest float64, err error) {
	least = math.Inf(1)
	for _, curve := range c.Curves {
		if len(curve.At) != len(c.Places) {
			return 0, 0, fmt.Errorf("measure: curve %q has %d places, want %d", curve.Name, len(curve.At), len(c.Places))
		}
		for _, s := range curve.At {
			least, greatest = min(least, s.Least()), max(greatest, s.Greatest())
		}
	}
	if least <= 0 || math.IsInf(greatest, 0) || math.IsNaN(greatest) {
		return 0, 0, fmt.Errorf("measure: a chart from %g to %g, want above zero", least, greatest)
	}
	return least, greatest, nil
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
	looks []look
}

// Plot implements [plot.Plotter].
func (c curves) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	for _, tick := range c.ticks {
		canvas.StrokeLine2(draw.LineStyle{Color: paint("rule"), Width: 1}, canvas.Min.X, y(tick.Value), canvas.Max.X, y(tick.Value))
	}
	for i, curve := range c.Curves {
		var line []vg.Point
		for place, s := range curve.At {
			at := vg.Point{X: x(float64(place)), Y: y(s.Median())}
			line = append(line, at)
			canvas.StrokeLine2(draw.LineStyle{Color: c.looks[i].color, Width: 1}, at.X, y(s.Least()), at.X, y(s.Greatest()))
			canvas.DrawGlyph(draw.GlyphStyle{Color: c.looks[i].color, Radius: 2.5, Shape: draw.CircleGlyph{}}, at)
		}
		canvas.StrokeLines(c.looks[i].line, line)
	}
	for i, at := range c.names(func(v float64) float64 { return float64(y(v)) }, float64(canvas.Min.Y)) {
		style := p.X.Tick.Label
		style.Color, style.XAlign, style.YAlign = c.looks[i].color, draw.XLeft, draw.YCenter
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
