package browser

import (
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
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
	retryAfter, err := strconv.Atoi(p.text(`#signup-headers dd[data-name="Retry-After"]`))
	require.NoError(t, err)
	require.LessOrEqual(t, retryAfter, 15, "one in 15 seconds by address")
	require.Contains(t, p.text("#outcome"), "Denied: 429")
	require.Contains(t, p.text("#signup-countdown"), "Admitted again in ")
	p.tabTo("#signup-go")
	p.press(kb.Enter)
	p.wait(`document.querySelectorAll('#signup-history li[data-status="429"]').length == 2`)
	p.wait(`document.querySelector('#signup-countdown').dataset.left == '0'`)
	require.GreaterOrEqual(t, time.Since(denied), time.Duration(retryAfter-2)*time.Second)
	require.Contains(t, p.text("#outcome"), "Try now")
	p.press(kb.Enter)
	p.wait(`document.querySelectorAll('#signup-history li').length == 4`)
	require.Equal(t, "200", value[string](p, `document.querySelector('#signup-answer').dataset.status`))
	require.Contains(t, p.text("#outcome"), "Admitted: 200")
}
