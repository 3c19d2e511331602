package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

const (
	// patience is spent only on failures.
	patience = time.Minute

	// glance is the time between two looks at a page that is to change.
	glance = 20 * time.Millisecond
)

var shots = flag.String("shots", "", "`directory` for pictures of every page in every window")

// temporary is a folder that is there as long as the tests run.
var temporary string

// inShort is the reason for which the short form needs no browser.
const inShort = "a browser at work: the long form looks at every page, and drives each scene"

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if temporary, err = os.MkdirTemp("", "abacus-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	closeBrowser()
	os.RemoveAll(temporary)
	os.Exit(code)
}

var closeBrowser = func() {}

// chromium is the context of the browser, which starts with the first tab, and runs as long
// as the tests.
var chromium = sync.OnceValues(func() (context.Context, error) {
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		return nil, fmt.Errorf("there is no browser: install chromium (Debian, Fedora, Homebrew); on Debian, make check as root installs it")
	}
	// The browser's sandbox does not run as root, and the pages are our own.
	ctx, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(2*time.Minute))...)
	ctx, closeTabs := chromedp.NewContext(ctx)
	closeBrowser = func() { closeTabs(); end() }
	if err := chromedp.Do(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return ctx, nil
})

// newSite serves the pages until the test ends, and returns their address.
func newSite(t *testing.T) string {
	ctx, end := context.WithCancel(context.Background()) // t.Context would end before the tabs are closed
	site := try.To(serve.New(ctx))(t)
	server := httptest.NewServer(site)
	t.Cleanup(func() {
		end()
		server.Close()
	})
	return server.URL
}

// window is the window in which a page is looked at.
type window struct {
	width  int64
	scheme string // "light" or "dark"
	calm   bool   // the system asks for less motion
	forced bool   // the system has its own colours
}

var desk = window{width: 1200, scheme: "light"}

// tab is a tab of the browser. A test fails for each message that its page leaves
// on the console and the test does not take.
type tab struct {
	*testing.T
	ctx context.Context

	mu      sync.Mutex
	console []string
}

// open opens a page in a tab. Much of a test's time is spent waiting for pages, so
// tests run in parallel, but for TestSoak, which measures this process.
func open(t *testing.T, w window, address string) *tab {
	long.Only(t, inShort)
	p := &tab{T: t}
	ctx, end := chromedp.NewContext(try.To(chromium())(t), chromedp.WithListener(p.hear))
	p.ctx = ctx
	t.Cleanup(func() {
		end()
		require.Empty(t, p.messages(), "messages on the console")
	})
	calm := "no-preference"
	if w.calm {
		calm = "reduce"
	}
	forced := "none"
	if w.forced {
		forced = "active"
	}
	require.NoError(t, chromedp.Do(ctx)) // the tab lives as long as the context of its first action
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: w.scheme}, {Name: "prefers-reduced-motion", Value: calm}, {Name: "forced-colors", Value: forced}}})
	p.do(chromedp.EmulateViewport(w.width, 900), chromedp.Navigate(address))
	return p
}

// hear takes messages of every kind: a log entry is also a breach of the policy, or
// an answer that is an error.
func (p *tab) hear(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			text += string(arg.Value) + arg.Description + " "
		}
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
	case *log.EventEntryAdded:
		if strings.Contains(e.Entry.Text, "status of 429") {
			return // the browser tells of each, although the page wants to be denied
		}
		text = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.console = append(p.console, text)
}

// messages takes the messages since the last call.
func (p *tab) messages() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.console
	p.console = nil
	return all
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p, chromedp.Do(ctx, steps...))
}

// call sends a command to the tab.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	require.NoError(p, err)
	return result
}

// value is the value of an expression on the page.
func value[T any](p *tab, expression string) T {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(p, err, expression)
	return v
}

// wait waits until an expression is true on the page. Unlike chromedp.Poll it makes
// no function of a text, which the policy of the pages forbids.
func (p *tab) wait(expression string) {
	p.Helper()
	for end := time.Now().Add(patience); !value[bool](p, expression); time.Sleep(glance) {
		if time.Now().After(end) {
			p.Fatalf("never true: %s\nThe page says:\n%s", expression, value[string](p, "document.body.innerText"))
		}
	}
}

// text is the text of an element.
func (p *tab) text(selector string) string {
	p.Helper()
	return value[string](p, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// click clicks an element with the mouse.
func (p *tab) click(selector string) {
	p.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// press presses keys.
func (p *tab) press(keys string) {
	p.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// tabTo moves the focus by the Tab key until an element has it.
func (p *tab) tabTo(selector string) {
	p.Helper()
	for range 100 {
		p.press(kb.Tab)
		if value[bool](p, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
	}
	p.Fatalf("the Tab key does not reach %s", selector)
}

// picture leaves a picture of the whole page where the flag asks for pictures.
func (p *tab) picture(name string) {
	if *shots == "" {
		return
	}
	p.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	require.NoError(p, err)
	require.NoError(p, os.MkdirAll(*shots, 0o755))
	require.NoError(p, os.WriteFile(filepath.Join(*shots, strings.NewReplacer("/", "", " ", "-").Replace(name)+".png"), picture, 0o644))
}

// TestConsoleIsHeard makes messages of each kind, none of which open overhears.
func TestConsoleIsHeard(t *testing.T) {
	t.Parallel()
	p := open(t, desk, newSite(t)+"/site")
	for kind, script := range map[string]string{
		"called":                  `console.warn("called")`,
		"thrown":                  `setTimeout(() => { throw Error("thrown") })`,
		"refused":                 `Promise.reject(Error("refused"))`,
		"404":                     `fetch("/none")`,
		"Content Security Policy": `document.body.append(Object.assign(document.createElement("script"), { textContent: "1" }))`,
	} {
		p.do(chromedp.Evaluate[chromedp.Void]("void " + script))
		for end := time.Now().Add(patience); ; time.Sleep(glance) {
			if said := strings.Join(p.messages(), "\n"); strings.Contains(said, kind) {
				break
			} else if said != "" || time.Now().After(end) {
				t.Fatalf("%s is not heard, but %q", kind, said)
			}
		}
	}
}
