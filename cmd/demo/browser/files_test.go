package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/site"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// writeSite writes the web site once for all tests.
var writeSite = sync.OnceValues(func() (folder string, err error) {
	folder = temporary + "/site"
	_, err = site.Write(site.Config{Root: "../../..", To: folder})
	return folder, err
})

// newFiles serves the web site as any file server does, below a path, with its policy.
func newFiles(t *testing.T) string {
	t.Helper()
	long.Only(t, inShort)
	folder := try.To(writeSite())(t)
	serve := http.StripPrefix("/below", http.FileServer(http.Dir(folder)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", site.Policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/below/"
}

// TestTexts looks at some pages of the web site in windows of several widths, on light
// and on dark ground. Wide tables and code scroll by themselves.
func TestTexts(t *testing.T) {
	for _, path := range []string{"index.html", "readme.html", "docs/operating.html", "docs/decisions/tickets.html", "service/index.html"} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(scheme+" "+path, func(t *testing.T) {
				t.Parallel()
				p := open(t, window{width: 2560, scheme: scheme}, newFiles(t)+path)
				p.look()
				p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll('#text pre, #text table, .skip').forEach(e => e.classList.add('scroll'))`))
				for _, width := range []int64{2560, 1000, 360} {
					p.do(chromedp.EmulateViewport(width, 900))
					p.wait(fmt.Sprintf(`innerWidth == %d`, width))
					p.frame()
					p.picture(fmt.Sprintf("%s %d %s", path, width, scheme))
					assert.Empty(t, value[[]string](p, fmt.Sprintf("(() => { const wrong = []; layout(window, %q, wrong); return wrong })()", scheme)), "at %d", width)
				}
				require.Zero(t, value[int](p, `[...document.images].filter(i => i.complete && !i.naturalWidth).length`), "pictures that are not there")
			})
		}
	}
}

// TestSearch finds a section by the keyboard, from the scenes and from a page of text, and
// goes there.
func TestSearch(t *testing.T) {
	address := newFiles(t)
	for _, from := range []string{"", "docs/decisions/tickets.html"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			search(t, address, from)
		})
	}
}

func search(t *testing.T, address, from string) {
	p := open(t, desk, address+from)
	p.tabTo(".search input")
	p.press("certain FailClosed")
	p.wait(`document.querySelector('#found a')?.textContent == 'Getting started: Share the counts'`)
	p.wait(`document.querySelector('.status').textContent.endsWith('sections') || document.querySelector('.status').textContent == '1 section'`)
	require.Contains(t, value[[]string](p, `[...document.querySelectorAll('#found mark')].map(m => m.textContent)`), "FailClosed")
	p.press(kb.Enter)
	p.wait(fmt.Sprintf(`location.href == %q && document.readyState == 'complete' && document.querySelector('#found').hidden`, address+"docs/getting-started.html#share-the-counts"))

	p.tabTo(".search input")
	p.press("<b>nowhere.*</b>")
	p.wait(`document.querySelector('.status').textContent == '0 sections'`)
	p.press(kb.Escape)
	p.wait(`document.querySelector('.status').textContent == ''`)
}

// TestRaceOfFiles runs the race without a program: the code of the library is loaded when
// a button is pressed, and the same buttons have the same effects.
func TestRaceOfFiles(t *testing.T) {
	t.Parallel()
	p := open(t, window{width: 1200, scheme: "light", calm: true}, newFiles(t))
	p.started()
	loaded := `performance.getEntriesByType('resource').some(e => e.name.endsWith('.wasm'))`
	require.Equal(t, "20", p.text(cell("fixed window", "peak")), "of the facts")
	require.Equal(t, "10", p.text(cell("abacus", "peak")))
	require.False(t, value[bool](p, loaded), "before a control is used")
	p.click("#hit")
	p.wait(fmt.Sprintf(`document.querySelector(%q).textContent == '1'`, cell("abacus", "admitted")))
	p.click("#burst") // the opening one is cancelled; this one is played at once
	p.wait(newest + `.includes('attempts before')`)
	p.wait(fmt.Sprintf(`document.querySelector(%q).textContent == '20'`, cell("fixed window", "peak")))
	require.Equal(t, "10", p.text(cell("abacus", "peak")))
	p.do(chromedp.SetValue(chromedp.CSS("#limit"), "100/d"), chromedp.Evaluate[chromedp.Void](`document.querySelector('#limit').dispatchEvent(new Event('change'))`))
	p.wait(`document.querySelector('#lanes').ariaLabel.startsWith('Of 100')`)
	require.True(t, value[bool](p, `document.querySelector('#gone').hidden`))
	require.True(t, value[bool](p, loaded))
	require.NotEmpty(t, value[string](p, `document.querySelector('meta[name=abacus-wasm]').content`))
}
