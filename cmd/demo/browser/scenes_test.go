package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
)

// scenes are the scenes by their name, with words of their last state.
var scenes = []struct{ name, last string }{
	{"promise", "in the last hour"},
	{"clock", "the fixed window admits 20 in one hour"},
	{"repairs", "in one hour fixed window 20, two counters 19, token bucket 19, log 10, abacus 10"},
	{"beads", "10,000 hits: a log takes "},
	{"day", "a call reads 24 numbers first, usually enough"},
	{"error", "Finest bucket 10 minutes: "},
}

// says is the expression of what a scene says.
func says(scene string) string {
	return fmt.Sprintf(`document.querySelector('#%s svg').ariaLabel`, scene)
}

// state is the expression of the state of a scene.
func state(scene string) string { return fmt.Sprintf(`+byID('%s').dataset.state`, scene) }

// drawn waits until all scenes are drawn.
func (p *tab) drawn() {
	p.Helper()
	p.wait(`[...document.querySelectorAll('.scene')].every(s => s.dataset.state != null)`)
}

// middle is a point of an element, some part of its width from the left.
func (p *tab) middle(selector string, part float64) (x, y float64) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).scrollIntoView({ block: 'center', behavior: 'instant' })`, selector)))
	p.frame() // a click sees what is drawn
	box := value[struct{ X, Y, Width, Height float64 }](p, fmt.Sprintf(`document.querySelector(%q).getBoundingClientRect().toJSON()`, selector))
	return box.X + box.Width*part, box.Y + box.Height/2
}

// TestScenes sets each scene by mouse and by keyboard, of the program and of files.
func TestScenes(t *testing.T) {
	address, files := newSite(t), newFiles(t)
	windows := []window{{width: 360, scheme: "light"}, {width: 360, scheme: "dark", calm: true}, {width: 1280, scheme: "light", calm: true}, {width: 1280, scheme: "dark"}}
	for _, w := range windows {
		t.Run(fmt.Sprintf("%d %s calm %t", w.width, w.scheme, w.calm), func(t *testing.T) {
			t.Parallel()
			from := address
			if w.calm && w.scheme == "light" {
				from = files
			}
			p := open(t, w, from)
			p.drawn()
			for _, s := range scenes[1:] {
				control := "#" + s.name + " input"
				x, y := p.middle(control, 0.3)
				p.do(chromedp.MouseClickXY(x, y))
				p.wait(near(s.name, 0.3, value[float64](p, fmt.Sprintf(`+document.querySelector(%q).max`, control))))
			}
			for _, s := range scenes[1:] {
				control := "#" + s.name + " input"
				most := value[float64](p, fmt.Sprintf(`+document.querySelector(%q).max`, control))
				p.do(chromedp.Focus(chromedp.CSS(control)))
				p.press(kb.End)
				p.wait(fmt.Sprintf(`%s == %f && %s.includes(%q)`, state(s.name), most, says(s.name), s.last))
				p.press(kb.ArrowLeft)
				p.wait(fmt.Sprintf(`%s == %f`, state(s.name), most-1))
				p.press(kb.Home)
				p.wait(state(s.name) + ` == 0`)
				p.press(" ") // again; a scene that plays ends in the state in which a calm one stands
				p.wait(fmt.Sprintf(`%s > 0 || %q == 'error'`, state(s.name), s.name))
			}
			button := "#promise button"
			p.middle(button, 0.5)
			p.wait(state("promise") + ` == 11`) // it has played
			p.do(chromedp.Focus(chromedp.CSS(button)))
			for i := range 3 {
				p.press(kb.Enter)
				p.wait(fmt.Sprintf(`%s == %d`, state("promise"), 12+i))
			}
			p.wait(fmt.Sprintf(`document.querySelector(%q).textContent == 'Begin again'`, button))
			x, y := p.middle(button, 0.5)
			p.do(chromedp.MouseClickXY(x, y))
			p.wait(state("promise") + ` == 0`)
			p.press(" ")
			p.wait(says("promise") + `.startsWith('1 of 10 in the last hour')`)
			require.Empty(t, value[[]string](p, `[...document.querySelectorAll('.picture *')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 || e.getBoundingClientRect().left < -1).map(e => e.outerHTML)`))
			require.True(t, value[bool](p, `document.documentElement.scrollWidth <= document.documentElement.clientWidth`))
		})
	}
}

// tap touches a part of an element with a finger, and lifts it.
func (p *tab) tap(selector string, part float64) {
	p.Helper()
	x, y := p.middle(selector, part)
	call(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: []*input.TouchPoint{{X: x, Y: y}}})
	call(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchEnd, TouchPoints: []*input.TouchPoint{}})
}

// drag draws a finger over an element, from a part of its width to another, and lifts it.
func (p *tab) drag(selector string, from, to float64) {
	p.Helper()
	x, y := p.middle(selector, from)
	end, _ := p.middle(selector, to)
	touch := func(kind input.DispatchTouchEventType, at ...*input.TouchPoint) {
		p.Helper()
		call(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: append([]*input.TouchPoint{}, at...)})
	}
	touch(input.DispatchTouchEventTypeTouchStart, &input.TouchPoint{X: x, Y: y})
	for part := range 4 {
		touch(input.DispatchTouchEventTypeTouchMove, &input.TouchPoint{X: x + (end-x)*float64(part+1)/4, Y: y})
	}
	touch(input.DispatchTouchEventTypeTouchEnd)
}

// TestScenesByTouch touches each control, and drags the pictures that can be dragged.
func TestScenesByTouch(t *testing.T) {
	t.Parallel()
	p := open(t, window{width: 360, scheme: "light", calm: true}, newSite(t))
	call(p, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true})
	p.drawn()
	var dragged []string
	for _, s := range scenes[1:] {
		most := value[float64](p, fmt.Sprintf(`+document.querySelector('#%s input').max`, s.name))
		p.tap("#"+s.name+" input", 0.6)
		p.wait(near(s.name, 0.6, most))
		if value[bool](p, fmt.Sprintf(`document.querySelector('#%s svg').matches('.drag')`, s.name)) {
			p.drag("#"+s.name+" svg", 0.3, 0.95)
			p.wait(near(s.name, 0.95, most))
			dragged = append(dragged, s.name)
		}
	}
	require.Equal(t, []string{"clock", "repairs", "day"}, dragged)
	// At the first step of the clock the second ten are nearest to the first.
	p.do(chromedp.Evaluate[chromedp.Void](`{ const i = document.querySelector('#clock input'); i.value = 0; i.dispatchEvent(new Event('input')) }`))
	require.Equal(t, []float64{20, 0}, value[[]float64](p, `(() => {
		const beads = [...document.querySelectorAll('#clock ellipse')].map(e => ({ x: e.cx.baseVal.value, r: e.rx.baseVal.value }))
		return [beads.length, beads.filter(b => beads.some(o => o.x > b.x && o.x - o.r < b.x + b.r)).length]
	})()`), "beads, and those that another column covers")
	for i := range 3 {
		p.tap("#promise button", 0.5)
		p.wait(fmt.Sprintf(`%s == %d`, state("promise"), 12+i))
	}
}

// near says that a range is set to about a part of the most.
func near(scene string, part, most float64) string {
	return fmt.Sprintf(`Math.abs(%s - %f) <= %f && document.querySelector('#%s input').ariaValueText == %s`, state(scene), part*most, 1+most/10, scene, says(scene))
}

// TestScenesPlay brings each scene into sight, and waits until it has played, once.
func TestScenesPlay(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t))
	p.drawn()
	// The last scene ends where it began: the furthest state is noted.
	p.do(chromedp.Evaluate[chromedp.Void](`new MutationObserver(() => { const d = byID('error').dataset; d.most = Math.max(d.most ?? 0, d.state) }).observe(byID('error'), { attributeFilter: ['data-state'] })`))
	for _, s := range scenes {
		p.middle("#"+s.name+" svg", 0.5)
		end := map[string]int{"promise": 11, "day": 60, "error": 0}[s.name]
		if end == 0 && s.name != "error" {
			end = value[int](p, fmt.Sprintf(`+document.querySelector('#%s input').max`, s.name))
		}
		if s.name == "error" {
			p.wait(`byID('error').dataset.most == 2`)
		}
		p.wait(fmt.Sprintf(`%s == %d`, state(s.name), end))
	}
	require.Contains(t, value[string](p, says("day")), "23:30:33: abacus adds up 80 numbers, the textbook 142")
}

// TestReadAloud counts the words of headings, sentences and controls: read aloud, at 150 a
// minute, they take three minutes at most. A number has as many words as digits.
func TestReadAloud(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t))
	p.drawn()
	words, digits := 0, regexp.MustCompile(`\d`)
	for _, text := range value[[]string](p, `[...document.querySelectorAll('main :is(h1, h2, h3, p, figcaption, label, button)')].filter(e => !e.querySelector('label, button'))
		.map(e => e.querySelector('select')?.selectedOptions[0].text ?? e.innerText)`) {
		for _, word := range strings.Fields(text) {
			words += max(1, len(digits.FindAllString(word, -1)))
		}
	}
	t.Logf("%d words", words)
	require.Greater(t, words, 300)
	require.LessOrEqual(t, words, 450)
}

// TestFirstRead lights the counts of a day, and at the end of the control those alone that
// a call on memcached reads first.
func TestFirstRead(t *testing.T) {
	t.Parallel()
	p := open(t, window{width: 1200, scheme: "light", calm: true}, newSite(t))
	p.drawn()
	lit := func() int { return value[int](p, `document.querySelectorAll('#day rect.ours').length`) }
	require.Equal(t, 80, lit())
	require.Positive(t, value[int](p, `document.querySelectorAll('#day rect.r1').length`))
	p.do(chromedp.Focus(chromedp.CSS("#day input")))
	p.press(kb.End)
	p.wait(fmt.Sprintf(`%s.includes('a call reads 24 numbers first')`, says("day")))
	require.Equal(t, 24, lit())
	require.Equal(t, 24, value[int](p, `document.querySelectorAll('#day rect.ours:not(.half)').length`), "hours")
	require.Zero(t, value[int](p, `document.querySelectorAll('#day rect.r1').length`))
}

// TestScenesStandStill opens the page where motion is unwanted: each scene shows at once
// what it has to say. A picture that has no width is no error.
func TestScenesStandStill(t *testing.T) {
	t.Parallel()
	p := open(t, window{width: 1200, scheme: "light", calm: true}, newSite(t))
	p.drawn()
	for _, want := range []string{
		"10 of 10 in the last hour; the next is denied", "admits 20 in one hour", "two counters 19, token bucket 19, log 10, abacus 10",
		"10,000 hits", "adds up 80 numbers, the textbook 142", "1 of 46,721 wrongly denied",
	} {
		require.Contains(t, value[string](p, `[...document.querySelectorAll('.picture')].map(s => s.ariaLabel).join('\n')`), want)
	}
	for _, hidden := range []string{"true", "false"} {
		p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('main').hidden = ` + hidden))
		p.frame()
	}
}

// TestNoStreamBeforeTheSandbox reads the scenes without a stream; the sandbox has one
// as soon as it is in sight.
func TestNoStreamBeforeTheSandbox(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(context.Background())
	site, err := serve.New(ctx)
	require.NoError(t, err)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/race") && r.URL.Path != "/race.js" {
			asked.Add(1)
		}
		site.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { end(); server.Close() })
	p := open(t, desk, server.URL)
	p.drawn()
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#clock').scrollIntoView({ behavior: 'instant' })`))
	p.wait(state("clock") + ` > 3`) // it has been in sight for a while
	require.Zero(t, asked.Load())
	p.started()
	require.Positive(t, asked.Load())
}

// TestScenesByDragging drags the pictures with the mouse; a click on the control goes on
// from there.
func TestScenesByDragging(t *testing.T) {
	t.Parallel()
	p := open(t, window{width: 1280, scheme: "light", calm: true}, newSite(t))
	p.drawn()
	mouse := func(kind input.DispatchMouseEventType, x, y float64, buttons int64) {
		p.Helper()
		call(p, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, Buttons: buttons, ClickCount: 1})
	}
	for _, name := range []string{"clock", "repairs", "day"} {
		most := value[float64](p, fmt.Sprintf(`+document.querySelector('#%s input').max`, name))
		from, y := p.middle("#"+name+" svg", 0.3)
		to, _ := p.middle("#"+name+" svg", 0.95)
		mouse(input.DispatchMouseEventTypeMousePressed, from, y, 1)
		for part := range 4 {
			mouse(input.DispatchMouseEventTypeMouseMoved, from+(to-from)*float64(part+1)/4, y, 1)
		}
		mouse(input.DispatchMouseEventTypeMouseReleased, to, y, 0)
		p.wait(near(name, 0.95, most))
		x, y := p.middle("#"+name+" input", 0.3)
		p.do(chromedp.MouseClickXY(x, y))
		p.wait(near(name, 0.3, most))
	}
	x, y := p.middle("#promise button", 0.5)
	p.do(chromedp.MouseClickXY(x, y))
	p.wait(state("promise") + ` == 12`)
}
