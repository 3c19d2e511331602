package browser

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// cell is the selector of a number of a limiter.
func cell(limiter, of string) string {
	return fmt.Sprintf(`tr[data-racer="%s"] td[data-of=%s]`, limiter, of)
}

// started brings the sandbox into sight, and waits until it has shown a frame of a race.
func (p *tab) started() {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`byID('sandbox').scrollIntoView()`))
	p.wait(`document.querySelectorAll('#racers tbody tr').length == 5 && document.querySelector('#rods canvas') != null`)
}

// newest is the expression of the last event.
const newest = `byID('said').textContent`

// TestBurstAtABoundary bursts at a boundary under each limit, with the mouse and
// with the keyboard alone, and reads both limiters off the table and off the text of
// what happened.
func TestBurstAtABoundary(t *testing.T) {
	address := newSite(t)
	for i, limit := range []struct {
		n      int
		window string
		keys   string // "" for the mouse
	}{{10, "minute", ""}, {20, "hour", kb.Enter}, {100, "day", " "}} {
		t.Run(limit.window, func(t *testing.T) {
			t.Parallel()
			p := open(t, desk, address)
			p.started()
			if limit.keys == "" {
				p.do(chromedp.ScrollIntoView(chromedp.ID("burst")))
				p.click("#burst")
			} else {
				p.tabTo("#limit")
				for range i {
					p.press(kb.ArrowDown)
				}
				p.wait(fmt.Sprintf(`document.querySelector('.unit').textContent == %q`, limit.window))
				p.tabTo("#burst")
				p.wait(newest + `.startsWith('A burst')`) // of the new race
				p.press(limit.keys)
			}
			p.wait(fmt.Sprintf(`%[1]s.includes('%[2]d attempts before') && %[1]s.includes('In the last %[3]s: abacus %[2]d, fixed window %[4]d,')`, newest, limit.n, limit.window, 2*limit.n))
			p.click("#play")
			p.wait(`document.querySelector('#play').textContent == 'Play'`)
			require.Equal(t, fmt.Sprint(2*limit.n), p.text(cell("fixed window", "peak")))
			require.Equal(t, fmt.Sprint(limit.n), p.text(cell("abacus", "peak")))
			require.Equal(t, fmt.Sprint(limit.n), p.text(cell("log of every hit", "peak")))
			require.Equal(t, fmt.Sprint(limit.n), p.text(cell("abacus", "admitted")))
			require.True(t, value[bool](p, fmt.Sprintf(`document.querySelector(%q).classList.contains('over') && !document.querySelector(%q).classList.contains('over')`,
				cell("fixed window", "peak"), cell("abacus", "peak"))))
		})
	}
}

// TestFetched reads off the page how many counts memcached would have been asked for.
func TestFetched(t *testing.T) {
	t.Parallel()
	p := open(t, window{width: 1200, scheme: "light", calm: true}, newSite(t))
	p.started()
	p.do(chromedp.Focus(chromedp.ID("limit")))
	p.press(strings.Repeat(kb.ArrowDown, 2))
	p.wait(`document.querySelector('.unit').textContent == 'day' && document.querySelector('#reads').textContent.includes('counts')`)
	p.click("#hit")
	p.wait(`document.querySelector('#fetched').textContent.startsWith('The last attempt fetched 24, all so far 24.00 on average')`)
}

// TestStepByStep steps through a burst with the keyboard, on a system that asks for
// less motion: the page stands still until it is asked.
func TestStepByStep(t *testing.T) {
	t.Parallel()
	p := open(t, window{width: 1200, scheme: "light", calm: true}, newSite(t))
	p.started()
	require.Contains(t, value[string](p, newest), "Paused")
	require.Equal(t, "Play", p.text("#play"))
	labels := value[string](p, canvasLabels)
	p.tabTo("#step")
	for p.text(cell("fixed window", "admitted")) != "20" {
		before := value[string](p, newest)
		p.press(kb.Enter)
		p.wait(fmt.Sprintf(`%s != %q`, newest, before))
	}
	require.Equal(t, "20", p.text(cell("fixed window", "peak")))
	require.Equal(t, "10", p.text(cell("abacus", "peak")))
	require.Equal(t, "Play", p.text("#play"))
	require.NotEqual(t, labels, value[string](p, canvasLabels))
}

// canvasLabels are the texts in place of the drawings.
const canvasLabels = `[...document.querySelectorAll('canvas[role=img]')].map(c => c.ariaLabel).join('\n')`

// TestSpeed moves the slider with the keyboard, and reads the speed off the
// limiters.
func TestSpeed(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t))
	p.started()
	require.Equal(t, "× 10: a minute in 6.0 s", p.text("#pace"))
	p.tabTo("#speed")
	p.press(kb.ArrowRight)
	p.wait(`document.querySelector('#pace').textContent.startsWith('× 13:')`)
	require.Equal(t, p.text("#pace"), value[string](p, `document.querySelector('#speed').ariaValueText`))
	p.press(kb.End)
	p.wait(`document.querySelector('#pace').textContent == '× 10,000: a minute in 0.01 s'`)
	p.click("#crowd")
	p.wait(`document.querySelector('#crowd').getAttribute('aria-pressed') == 'true'`)
	// At the former speed that takes ten minutes.
	p.wait(fmt.Sprintf(`+document.querySelector(%q).textContent.replace(',', '') > 1000`, cell("abacus", "admitted")))
	require.Equal(t, "10", p.text(cell("abacus", "peak")))
}

// TestSandbox uses each control of the sandbox by the mouse, with a finger, on files, and
// by the keyboard.
func TestSandbox(t *testing.T) {
	click := func(p *tab, selector string, part float64) {
		x, y := p.middle(selector, part)
		p.do(chromedp.MouseClickXY(x, y))
	}
	keys := func(keys string) func(p *tab, selector string, part float64) {
		return func(p *tab, selector string, _ float64) {
			p.do(chromedp.Focus(chromedp.CSS(selector)))
			p.press(keys)
		}
	}
	for _, way := range []struct {
		name       string
		press      func(p *tab, selector string, part float64) // a button
		slide, bar func(p *tab, selector string, part float64) // a range, up to a part
	}{{"mouse", click, click, click}, {"touch", (*tab).tap, (*tab).tap, (*tab).tap}, {"keyboard", keys(kb.Enter), keys(strings.Repeat(kb.ArrowRight, 27)), keys(kb.ArrowUp)}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			serve, touch := newSite, way.name == "touch"
			if touch {
				serve = newFiles
			}
			p := open(t, window{width: 768, scheme: "light", calm: true}, serve(t))
			call(p, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: touch})
			p.started()
			press := func(selector string) { way.press(p, selector, 0.5) }
			press("#hit")
			p.wait(newest + `.includes('an attempt, admitted by abacus')`)
			press("#step")
			p.wait(newest + `.includes('no attempt')`)
			press("#play")
			p.wait(`document.querySelector('#play').textContent == 'Pause'`)
			press("#play")
			p.wait(`document.querySelector('#play').textContent == 'Play'`)
			way.slide(p, "#speed", 0.9)
			p.wait(`+document.querySelector('#speed').value > 3`)
			press("#crowd")
			p.wait(`document.querySelector('#crowd').ariaPressed == 'true' && document.querySelector('#play').textContent == 'Pause'`)
			press("#burst")
			p.wait(newest + `.includes('attempts before')`)
			way.bar(p, ".bars input:nth-child(5)", 0.5)
			p.wait(`document.querySelector('#pattern output').textContent != '0 attempts'`)
			press("#pattern button:not([type])")
			p.wait(newest + `.includes('the pattern of')`)
			press("#pattern [type=reset]")
			p.wait(`document.querySelector('#pattern output').textContent == '0 attempts'`)
			press("#limit") // opens the list
			p.press(kb.ArrowDown)
			p.press(kb.Enter)
			p.wait(`document.querySelector('.unit').textContent == 'hour'`)
		})
	}
}

// TestPattern draws a pattern with the mouse, and plays the pattern.
func TestPattern(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t))
	p.started()
	p.do(chromedp.ScrollIntoView(chromedp.CSS(".bars")))
	board := value[struct{ X, Y, Width, Height float64 }](p, `document.querySelector('.bars').getBoundingClientRect().toJSON()`)
	p.do(chromedp.DragAndDropXY(board.X+2, board.Y+board.Height/2, board.X+board.Width-2, board.Y+board.Height/2, 48))
	bars := value[[]int](p, `[...document.querySelectorAll('.bars input')].map(b => +b.value)`)
	require.Len(t, bars, 24)
	sum := 0
	for _, height := range bars {
		require.InDelta(t, 10, height, 1, "half of twice the limit: %v", bars)
		sum += height
	}
	require.Equal(t, fmt.Sprintf("%d attempts", sum), p.text("#pattern output"))
	p.tabTo(".bars input")
	p.press(kb.ArrowUp)
	p.wait(fmt.Sprintf(`document.querySelector('#pattern output').textContent == '%d attempts'`, sum+1))
	p.click("#pattern button:not([type])")
	p.wait(newest + `.includes('The pattern begins')`)
	p.do(chromedp.Focus(chromedp.ID("speed")))
	p.press(strings.Repeat(kb.ArrowRight, 10)) // ten times as fast
	p.wait(fmt.Sprintf(`%s.includes('the pattern of %d attempts around')`, newest, sum+1))
	p.click("#pattern [type=reset]")
	p.wait(`document.querySelector('#pattern output').textContent == '0 attempts'`)
}

// TestReload chooses a limit and a speed, and loads the page again: all is as at
// first.
func TestReload(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t))
	p.started()
	for range 3 {
		p.do(chromedp.Focus(chromedp.ID("limit")))
		p.press(kb.ArrowDown)
		p.wait(`document.querySelector('.unit').textContent == 'hour'`)
		p.do(chromedp.Reload())
		p.started()
		require.Equal(t, "minute", p.text(".unit"))
		require.True(t, value[bool](p, `document.querySelector('#gone').hidden`))
	}
}

// TestServerGoesAway ends the program and starts it again at the same address: the
// page tells, and goes on by itself.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	// Both end after the tab, on whose console the end of a stream is a message.
	ctx, end := context.WithCancel(context.Background())
	stop := func() {}
	t.Cleanup(func() { end(); stop() })
	start := func(address string) (string, func()) {
		site := try.To(serve.New(ctx))(t)
		listener := try.To(net.Listen("tcp", address))(t)
		server := &http.Server{Handler: site}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.Serve(listener)
		}()
		return listener.Addr().String(), func() {
			_ = server.Close()
			<-done
		}
	}
	var address string
	address, stop = start("127.0.0.1:0")
	p := open(t, desk, "http://"+address)
	p.started()
	stop()
	p.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, document.body.scrollHeight)`))
	p.wait(`document.querySelector('#gone').innerText.includes('does not answer')`)
	p.wait(`(({ top, bottom }) => top > 0 && bottom <= innerHeight)(document.querySelector('#gone').getBoundingClientRect()) && document.title.startsWith('No answer')`)
	p.click("#burst")
	_, stop = start(address)
	p.wait(`document.querySelector('#gone').hidden && !document.title.startsWith('No answer')`)
	p.click("#burst")
	p.wait(newest + `.includes('attempts before')`)
	for _, message := range p.messages() {
		require.Contains(t, message, "net::ERR_")
	}
}

// TestManyPages shows more pages at once than the browser has connections: a press has
// its effect on each, and further pages answer.
func TestManyPages(t *testing.T) {
	t.Parallel()
	address := newSite(t)
	all := make([]*tab, 7)
	for i := range all {
		all[i] = open(t, desk, address)
	}
	open(t, desk, address+"/site").deny()
	p := open(t, desk, address+"/watch")
	p.wait(`document.querySelector('#outcomes tbody').textContent.includes('over-limit')`)
	for _, p := range all {
		p.started()
		p.do(chromedp.Evaluate[chromedp.Void](`byID('hit').click()`))
		p.wait(fmt.Sprintf(`document.querySelector(%q).textContent != '0'`, cell("abacus", "admitted")))
		require.True(t, value[bool](p, `document.querySelector('#gone').hidden`))
	}
}

// TestHiddenPage hides a page: it gives its connection back, and its race stands still
// until the page is shown.
func TestHiddenPage(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(context.Background())
	site := try.To(serve.New(ctx))(t)
	var streams atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/race" {
			streams.Add(1)
			defer streams.Add(-1)
		}
		site.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { end(); server.Close() })
	p := open(t, desk, server.URL)
	until := func(n int64) {
		for end := time.Now().Add(patience); streams.Load() != n; time.Sleep(glance) {
			require.True(t, time.Now().Before(end), "%d streams, want %d", streams.Load(), n)
		}
	}
	show := func(is bool) {
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`
			Object.defineProperty(document, 'hidden', { value: %t, configurable: true })
			document.dispatchEvent(new Event('visibilitychange'))`, !is)))
	}
	p.started()
	until(1)
	p.click("#crowd")
	admitted := fmt.Sprintf(`+document.querySelector(%q).textContent`, cell("abacus", "admitted"))
	p.wait(admitted + ` >= 10`)
	show(false)
	until(0)
	p.frame()
	before := value[int](p, admitted)
	show(true)
	until(1)
	p.wait(fmt.Sprintf(`%s > %d`, admitted, before)) // a new race would admit 10, and pause
	require.True(t, value[bool](p, `document.querySelector('#gone').hidden`))
}
