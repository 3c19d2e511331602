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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
)

// fills has for each page the steps that fill the page with what it can show.
var fills = map[string]func(*tab){
	"/": func(p *tab) {
		p.started()
		p.click("#burst")
		p.wait(newest + `.includes('attempts before')`)
		p.click("#play")
		p.wait(`document.querySelector('#play').textContent == 'Play'`)
	},
	"/site":  (*tab).deny,
	"/watch": func(p *tab) { p.wait(`document.querySelector('#rules tbody tr') != null`) },
}

// openPage opens a page of a new site, and fills the page.
func openPage(t *testing.T, w window, path string) *tab {
	require.Contains(t, fills, path)
	p := open(t, w, newSite(t)+path)
	p.look()
	fills[path](p)
	return p
}

// look gives the page the functions of testdata/look.js. They run outside of the
// page's policy.
func (p *tab) look() {
	for _, path := range []string{"../../internal/web/testdata/layout.js", "testdata/look.js"} {
		script, err := os.ReadFile(filepath.FromSlash(path))
		require.NoError(p, err)
		p.do(chromedp.Evaluate[chromedp.Void](string(script)))
	}
}

// TestLayout looks at every page in windows of four widths, on light and on dark
// ground, and goes through its controls with the Tab key, there and back.
func TestLayout(t *testing.T) {
	for _, page := range serve.Pages {
		path := page.Path
		for _, scheme := range []string{"light", "dark"} {
			t.Run(scheme+" "+path, func(t *testing.T) {
				t.Parallel()
				p := openPage(t, window{width: 1900, scheme: scheme}, path)
				for _, width := range []int64{1900, 1200, 768, 360} {
					p.do(chromedp.EmulateViewport(width, 900))
					p.wait(fmt.Sprintf(`innerWidth == %d`, width))
					p.frame()
					p.picture(fmt.Sprintf("%s %d %s", path, width, scheme))
					assert.Empty(t, value[[]string](p, fmt.Sprintf("measured(%q)", scheme)), "at %d", width)
					if scheme == "light" {
						p.reachAll(width)
					}
				}
			})
		}
	}
}

// frame waits until the browser has drawn twice: the page has taken a new width.
func (p *tab) frame() {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))`, chromedp.EvalAwaitPromise))
}

// reachAll goes through the controls with the Tab key, there and back.
func (p *tab) reachAll(width int64) {
	for _, modifiers := range [][]chromedp.KeyOption{nil, {chromedp.KeyModifiers(chromedp.ModifierShift)}} {
		p.do(chromedp.Evaluate[chromedp.Void](`reached.clear()`))
		for presses := 0; presses < 200 && !value[bool](p, `missed().length == 0`); presses++ {
			p.do(chromedp.KeyEvent(kb.Tab, modifiers...))
			assert.Empty(p, value[[]string](p, `focused()`), "at %d", width)
		}
		require.Empty(p, value[[]string](p, `missed()`), "not reached by the Tab key at %d", width)
	}
}

// TestNames reads the page as a screen reader does: all that can be used, and all
// drawings, have names.
func TestNames(t *testing.T) {
	for _, page := range serve.Pages {
		path := page.Path
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			p := openPage(t, desk, path)
			named, landmarks := 0, map[string]bool{}
			for _, node := range call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
				if node.Ignored || node.Role == nil {
					continue
				}
				role := string(node.Role.Value)
				// A form without a name is no landmark; the browser says "form" nevertheless.
				if name := string(node.Name.Value); role == `"region"` || role == `"form"` && name != `""` {
					require.False(t, landmarks[name], "two parts of the page have the name %s", name)
					landmarks[name] = true
				}
				focusable := slices.ContainsFunc(node.Properties, func(property *accessibility.Property) bool {
					return property.Name == accessibility.PropertyNameFocusable
				})
				if role != `"RootWebArea"` && (focusable || slices.Contains([]string{`"image"`, `"img"`, `"log"`, `"region"`, `"table"`}, role)) {
					require.Greater(t, len(string(node.Name.Value)), len(`""`), "a %s has no name", role)
					named++
				}
			}
			require.Greater(t, named, 5)
			last := 0
			for _, level := range value[[]int](p, `[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])`) {
				require.LessOrEqual(t, level, last+1, "a heading of level %d follows one of level %d", level, last)
				last = level
			}
		})
	}
}

// TestForcedColours looks at the pages in the colours of the system: those of the
// legends stay, and the button that is pressed is told from the others.
func TestForcedColours(t *testing.T) {
	t.Parallel()
	p := openPage(t, window{width: 1200, scheme: "dark", forced: true}, "/")
	ground := value[string](p, `getComputedStyle(document.body).backgroundColor`)
	for _, swatch := range []string{".key .ours", ".key .unread", "tr.r0 th", "tr.r1 th"} {
		require.NotEqual(t, ground, value[string](p, fmt.Sprintf(`getComputedStyle(document.querySelector(%q), '::before').backgroundColor`, swatch)), swatch)
	}
	outline := func() string {
		return value[string](p, `getComputedStyle(document.querySelector('#crowd')).outlineStyle`)
	}
	require.Equal(t, "none", outline())
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#crowd').click()`))
	p.wait(`document.querySelector('#crowd').getAttribute('aria-pressed') == 'true'`)
	require.Equal(t, "double", outline())
}
