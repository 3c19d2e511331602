package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// pages are all pages of the site, each with the steps that fill the page and let
// its numbers stand still.
var pages = []struct {
	name, path string
	fill       func(p *tab)
}{
	{"race", "/", func(p *tab) {
		p.started()
		p.click("#burst")
		p.wait(newest + `.includes('attempts before')`)
		p.click("#play")
		p.wait(`document.querySelector('#play').textContent == 'Play'`)
	}},
}

// look gives the page the functions of testdata/look.js. They run outside of the
// page's policy.
func (p *tab) look() {
	p.Helper()
	for _, path := range []string{"../internal/web/testdata/layout.js", "testdata/look.js"} {
		script, err := os.ReadFile(filepath.FromSlash(path))
		require.NoError(p, err)
		p.do(chromedp.Evaluate[chromedp.Void](string(script)))
	}
}

// TestLayout looks at every page in windows of four widths, on light and on dark
// ground, and goes through its controls with the Tab key, there and back.
func TestLayout(t *testing.T) {
	for _, page := range pages {
		for _, scheme := range []string{"light", "dark"} {
			p := open(t, window{width: 1900, scheme: scheme}, newSite(t)+page.path)
			page.fill(p)
			p.look()
			for _, width := range []int64{1900, 1200, 768, 360} {
				name := fmt.Sprintf("%s/%d/%s", page.name, width, scheme)
				t.Run(name, func(t *testing.T) {
					p := p.in(t)
					p.do(chromedp.EmulateViewport(width, 900))
					p.wait(fmt.Sprintf(`innerWidth == %d`, width))
					p.frame()
					require.Empty(t, value[[]string](p, fmt.Sprintf("measured(%q)", scheme)))
					p.picture(name)
					if scheme == "light" {
						p.reachAll()
					}
				})
			}
		}
	}
}

// in is the same tab for a part of its test.
func (p *tab) in(t *testing.T) *tab { return &tab{T: t, ctx: p.ctx} }

// frame waits until the browser has drawn twice: the page has taken a new width.
func (p *tab) frame() {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))`, chromedp.EvalAwaitPromise))
}

// reachAll goes through the controls with the Tab key, there and back.
func (p *tab) reachAll() {
	p.Helper()
	for _, modifiers := range [][]chromedp.KeyOption{nil, {chromedp.KeyModifiers(chromedp.ModifierShift)}} {
		p.do(chromedp.Evaluate[chromedp.Void](`reached.clear()`))
		for presses := 0; presses < 200 && !value[bool](p, `missed().length == 0`); presses++ {
			p.do(chromedp.KeyEvent(kb.Tab, modifiers...))
			require.Empty(p, value[[]string](p, `focused()`))
		}
		require.Empty(p, value[[]string](p, `missed()`), "not reached by the Tab key")
	}
}

// TestNames reads the page as a screen reader does: all that can be used, and all
// drawings, have names.
func TestNames(t *testing.T) {
	for _, page := range pages {
		t.Run(page.name, func(t *testing.T) {
			p := open(t, desk, newSite(t)+page.path)
			page.fill(p)
			named := 0
			for _, node := range call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
				if node.Ignored || node.Role == nil {
					continue
				}
				role := string(node.Role.Value)
				focusable := slices.ContainsFunc(node.Properties, func(property *accessibility.Property) bool {
					return property.Name == accessibility.PropertyNameFocusable
				})
				if role != `"RootWebArea"` && (focusable || slices.Contains([]string{`"image"`, `"img"`, `"log"`, `"region"`, `"table"`}, role)) {
					require.Greater(t, len(string(node.Name.Value)), len(`""`), "a %s has no name", role)
					named++
				}
			}
			require.Greater(t, named, 5)
		})
	}
}
