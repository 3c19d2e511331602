package browser

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

// deny signs up twice with one address: the second is denied.
func (p *tab) deny() {
	p.Helper()
	p.wait(`!document.querySelector('#signup-other').hidden`)
	p.click("#signup-go")
	p.wait(`document.querySelector('#signup-answer[data-status="200"]') != null`)
	p.click("#signup-go")
	p.wait(`document.querySelector('#signup-answer[data-status="429"]') != null`)
	p.wait(`document.querySelector('#signup-keys canvas') != null`)
}

// TestForm is denied in the form, also when it tries at once again, waits for the
// end of the countdown, and is then admitted, by keyboard alone.
func TestForm(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t)+"/site")
	p.deny()
	denied := time.Now()
	retryAfter := try.To(strconv.Atoi(p.text(`#signup-headers dd[data-name="Retry-After"]`)))(t)
	require.LessOrEqual(t, retryAfter, 15, "one in 15 seconds by address")
	require.Contains(t, p.text("#outcome"), "Denied: 429")
	require.Contains(t, p.text("#signup-countdown"), "Admitted again in ")
	require.LessOrEqual(t, value[int](p, `+document.querySelector('#signup-countdown').dataset.left`), retryAfter)
	p.tabTo("#signup-go")
	p.do(chromedp.Evaluate[chromedp.Void](`(form => { form.requestSubmit(); form.requestSubmit() })(document.querySelector('#signup-form'))`)) // a double press is one
	p.wait(`document.querySelectorAll('#signup-history li[data-status="429"]').length == 2`)
	p.wait(`document.querySelector('#signup-countdown').dataset.left == '0'`)
	require.GreaterOrEqual(t, time.Since(denied), time.Duration(retryAfter-2)*time.Second)
	require.Contains(t, p.text("#outcome"), "Try now")
	p.press(kb.Enter)
	p.wait(`document.querySelectorAll('#signup-history li').length == 4`)
	require.Equal(t, "200", value[string](p, `document.querySelector('#signup-answer').dataset.status`))
	require.Contains(t, p.text("#outcome"), "Admitted: 200")
}

// TestRightToLeft sends text that turns what follows it: the page's own words stay.
func TestRightToLeft(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t)+"/site")
	p.wait(`!document.querySelector('#signup-other').hidden`)
	p.do(chromedp.Evaluate[chromedp.Void](`
		var left = (selector, text) => {
			const walk = document.createTreeWalker(document.querySelector(selector), NodeFilter.SHOW_TEXT), range = new Range()
			while (walk.nextNode()) {
				const at = walk.currentNode.data.indexOf(text)
				if (at < 0) continue
				range.setStart(walk.currentNode, at)
				range.setEnd(walk.currentNode, at + text.length)
				return range.getBoundingClientRect().left
			}
		}
		document.querySelector('#signup-email').value = '\u202eabc'`))
	for n := 1; n <= 4; n++ {
		p.click("#signup-go")
		p.wait(fmt.Sprintf(`document.querySelectorAll('#signup-history li').length == %d`, n))
	}
	require.True(t, value[bool](p, `left('#signup-of', 'abc') < left('#signup-of', '”')`))
	require.True(t, value[bool](p, `left('#signup-history li', 'abc') < left('#signup-history li', 'to wait')`))
	for _, message := range p.messages() {
		require.Contains(t, message, "status of 400") // no mail address
	}
}

// TestWatch finds a denial of the site on the page of the watch, looks for the key
// that was denied, and sees the hit.
func TestWatch(t *testing.T) {
	t.Parallel()
	address := newSite(t)
	open(t, desk, address+"/site").deny()
	p := open(t, desk, address+"/watch")
	p.wait(`document.querySelector('#denied tbody')?.textContent.includes('email:ada@example.org')`)
	p.wait(`document.querySelector('#outcomes tbody').textContent.includes('over-limit')`)
	p.do(chromedp.SetValue(chromedp.ID("key-event"), "signup"))
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#key-event').dispatchEvent(new Event('change', { bubbles: true }))`))
	p.wait(`document.querySelector('#key-kind option[value=email], #key-kind option:nth-child(2)') != null`)
	p.do(chromedp.SetValue(chromedp.ID("key-kind"), "email"))
	p.do(chromedp.SetValue(chromedp.ID("key-value"), "Ada@Example.org"))
	p.click("#key button")
	p.wait(`!document.querySelector('#found').hidden && document.querySelector('#found #limits tbody').textContent.includes('1/15s')`)
	require.Contains(t, p.text("#found-name"), "ada@example.org")
	p.wait(`document.querySelector('#found canvas') != null`)
}
