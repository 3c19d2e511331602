package page

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// contrast is that of WCAG 2, from 1 to 21.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	light := func(hex string) float64 {
		var r, g, b uint8
		_, err := fmt.Sscanf(hex, "#%02x%02x%02x", &r, &g, &b)
		require.NoError(t, err, hex)
		sum := 0.0
		for i, v := range []uint8{r, g, b} {
			c := float64(v) / 255
			if c <= 0.04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			sum += c * []float64{0.2126, 0.7152, 0.0722}[i]
		}
		return sum
	}
	la, lb := light(a), light(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

// TestContrast: what is read and what is looked at stands out from the page and
// from its panels, on light ground and on dark.
func TestContrast(t *testing.T) {
	require.InDelta(t, 21, contrast(t, "#000000", "#ffffff"), 0.01)
	require.InDelta(t, 4.54, contrast(t, "#767676", "#ffffff"), 0.01)
	for scheme, of := range map[string]func(i ink) string{
		"light": func(i ink) string { return palette[i].light },
		"dark":  func(i ink) string { return palette[i].dark },
	} {
		for _, under := range []ink{ground, panel} {
			for _, i := range []ink{text, soft, line, ours, over, good} {
				require.GreaterOrEqual(t, contrast(t, of(i), of(under)), 4.5, "%s %s on %s", scheme, palette[i].name, palette[under].name)
			}
			require.GreaterOrEqual(t, contrast(t, of(reference), of(under)), 3.0, "%s reference on %s", scheme, palette[under].name)
			least := 3.0
			for s := range heatSteps {
				c := contrast(t, of(heat+ink(s)), of(under))
				require.GreaterOrEqual(t, c, least, "%s %s on %s", scheme, palette[heat+ink(s)].name, palette[under].name)
				least = 1.15 * c // each shade can be told from the one before without its colour
			}
		}
	}
}

func TestInksAreFoundAgain(t *testing.T) {
	seen := map[string]bool{}
	for i := range inks {
		r, g, b, _ := ink(i).RGBA()
		mark := fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8)
		require.False(t, seen[mark])
		seen[mark] = true
		found, known := inkOf(mark)
		require.True(t, known, mark)
		require.Equal(t, ink(i), found)
		require.NotEmpty(t, palette[i].name)
	}
	for _, other := range []string{"", "#000000", "#00A55A", "#FFA55A", "#01A55B", "#01A55A0", "#01A55", "red"} {
		_, known := inkOf(other)
		require.False(t, known, other)
	}
}

// TestTextInADrawing: gonum escapes what it is given, and so does what is made
// of its drawing.
func TestTextInADrawing(t *testing.T) {
	const attack = `</text></svg><script>alert('"1"')</script>&`
	f := format{class: "wide", width: 100, height: 50, font: 10}
	got, err := f.paint(attack, func(c draw.Canvas) {
		style := newPlot(f.font).X.Tick.Label
		c.FillText(style, vg.Point{X: 5, Y: 5}, attack)
		c.StrokeLine2(pen(over, 2, 4, 1), 0, 0, 10, 10)
	})
	require.NoError(t, err)
	const escaped = `&lt;/text&gt;&lt;/svg&gt;&lt;script&gt;alert(&#39;&#34;1&#34;&#39;)&lt;/script&gt;&amp;`
	require.Contains(t, string(got), ` role="img" aria-label="`+escaped+`" viewBox="0 0 100 50">`)
	require.Contains(t, string(got), `font-size="10px" class="f-soft">`+escaped+`</text>`)
	require.Contains(t, string(got), `<path d="M0,0L10,10" fill="none" stroke-width="2" stroke-dasharray="4,1" class="s-over"></path>`)
	require.NotContains(t, string(got), "style=")
}

func TestDrawingsThatAreNotOurs(t *testing.T) {
	for drawing, problem := range map[string]string{
		`<svg><script>1</script></svg>`:                     `page: drawing: unknown element "script"`,
		`<svg><image href="http://x"/></svg>`:               `page: drawing: unknown element "image"`,
		`<svg><x:path d="M0"/></svg>`:                       `page: drawing: unknown element "path"`,
		`<svg><path style="fill:#FF0000"/></svg>`:           `page: drawing: fill "#FF0000" is no ink`,
		`<svg><path style="background:url(x)"/></svg>`:      `page: drawing: unknown style "background:url(x)"`,
		`<svg><path d="`:                                    `page: drawing: XML syntax error on line 1: unexpected EOF`,
		`<svg onload="x"><g onclick="x" id="x"></g></svg>`:  "",
		`<?xml version="1.0"?><!-- x --><svg><g></g></svg>`: "",
	} {
		got, err := inline([]byte(drawing), "c", "l")
		if problem != "" {
			require.EqualError(t, err, problem, drawing)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, template.HTML(`<svg class="c" role="img" aria-label="l"><g></g></svg>`), got)
	}
}

func TestStyleOfInks(t *testing.T) {
	css := inkCSS()
	for _, want := range []string{":root{color-scheme:light;--ground:#ffffff;", "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--ground:#14181d;", ".f-heat6{fill:var(--heat6)}.s-heat6{stroke:var(--heat6)}"} {
		require.Contains(t, css, want)
	}
	require.Equal(t, strings.Count(css, "{"), strings.Count(css, "}"))
}
