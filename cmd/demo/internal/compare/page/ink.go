package page

import (
	"fmt"
	"image/color"
	"strings"
)

// ink is what something is drawn in: a part that it plays, not a colour. The
// page gives each ink one colour on light ground and one on dark, so that a
// chart is drawn once and is readable on both. As a [color.Color] it is a mark
// that [inline] finds again.
type ink uint8

const (
	ground    ink = iota // the page itself
	panel                // table heads and the empty minutes of the heat
	rule                 // lines that only guide the eye
	text                 // also the line of the limit
	soft                 // text beside the point: units, axes
	line                 // counts; the textbook's algorithms; links
	ours                 // the library's own algorithms
	over                 // counts beyond the limit, and what is worst
	good                 // what is best
	reference            // the counts of the exact log
	heat                 // the first of heatSteps, from few hits to many
	inks      = int(heat) + heatSteps
)

// heatSteps is how many shades there are for minutes with hits. With more of
// them neighbours look the same.
const heatSteps = 6

// palette has a name and two colours for each ink. The contrasts are in its
// test: 4.5 for text, 3 for lines and for a minute with a hit.
var palette = [inks]struct{ name, light, dark string }{
	ground:    {"ground", "#ffffff", "#14181d"},
	panel:     {"panel", "#f6f7f8", "#1a1f25"},
	rule:      {"rule", "#dcdfe3", "#343b43"},
	text:      {"text", "#1b1f24", "#e6e9ec"},
	soft:      {"soft", "#5a626b", "#a4adb6"},
	line:      {"line", "#0a63b0", "#62b0f5"},
	ours:      {"ours", "#8a2a8c", "#e08fe0"},
	over:      {"over", "#bf3a0b", "#ff8a57"},
	good:      {"good", "#0f6b3a", "#6fd39b"},
	reference: {"reference", "#7a828b", "#7f8892"},
	heat:      {"heat1", "#3a9a5e", "#7d63bd"},
	heat + 1:  {"heat2", "#1b8577", "#5f80c8"},
	heat + 2:  {"heat3", "#1f6a8c", "#48a0c0"},
	heat + 3:  {"heat4", "#304d8c", "#43c09f"},
	heat + 4:  {"heat5", "#3d2b7c", "#8fdb68"},
	heat + 5:  {"heat6", "#26093f", "#f4ee7a"},
}

// RGBA is not a colour to look at. No two inks share it, and none is the black
// that the drawing library leaves out.
func (i ink) RGBA() (r, g, b, a uint32) {
	return color.NRGBA{R: uint8(i) + 1, G: 0xa5, B: 0x5a, A: 0xff}.RGBA()
}

// inkOf is the ink that left this mark in a drawing.
func inkOf(mark string) (ink, bool) {
	var n int
	if _, err := fmt.Sscanf(mark, "#%02XA55A", &n); err != nil || n < 1 || n > inks || len(mark) != 7 {
		return 0, false
	}
	return ink(n - 1), true
}

// inkCSS are the rules that give the inks their colours. Paper is light.
func inkCSS() string {
	var light, dark, classes strings.Builder
	for _, p := range palette {
		fmt.Fprintf(&light, "--%s:%s;", p.name, p.light)
		fmt.Fprintf(&dark, "--%s:%s;", p.name, p.dark)
		fmt.Fprintf(&classes, ".f-%s{fill:var(--%s)}.s-%s{stroke:var(--%s)}\n", p.name, p.name, p.name, p.name)
	}
	return fmt.Sprintf(":root{color-scheme:light;%s}\n@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;%s}}\n%s",
		light.String(), dark.String(), classes.String())
}
