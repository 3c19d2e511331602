package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// browserPatience is spent only on failures.
const browserPatience = 5 * time.Minute

// browse opens a page in a browser without a window, and returns the document as
// the scripts left it, and the messages on the console.
func browse(t *testing.T, path string) (document string, console []string) {
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	require.NotEmpty(t, program, "there is no browser: install chromium (Debian, Fedora, Homebrew); on Debian, make test as root installs it")

	profile := try.To(os.MkdirTemp("", "browser"))(t)
	// Not t.TempDir: a process of the browser may still write there for a moment,
	// and the test must not fail for that.
	t.Cleanup(func() { os.RemoveAll(profile) })
	ctx, cancel := context.WithTimeout(t.Context(), browserPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program,
		"--headless", "--dump-dom", "--enable-logging=stderr", "--hide-scrollbars", "--user-data-dir="+profile,
		"--no-sandbox", // the browser's sandbox does not run as root; the page is our own
		"--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
		"--disable-extensions", "--disable-sync", "--no-first-run", "--no-default-browser-check",
		"file://"+path)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &log, 5*time.Second
	require.NoError(t, cmd.Run(), "%s\n%s", program, &log)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, strings.TrimSpace(line))
		}
	}
	return out.String(), console
}

// view is a page in a window.
type view struct {
	name   string
	page   []byte
	width  int
	scheme string
	charts int // in sight
}

// frames is a page with the views as frames, and with a script that measures the
// frames. Each frame is the page unchanged, policy included, so that the
// measurement loosens nothing; another frame is loaded from a file, as by a
// reader.
func frames(t *testing.T, views []view) string {
	layout := try.To(os.ReadFile(filepath.Join("..", "..", "..", "..", "internal", "web", "testdata", "layout.js")))(t)
	measure := try.To(os.ReadFile(filepath.Join("testdata", "measure.js")))(t)
	dir := t.TempDir()
	var b bytes.Buffer
	b.WriteString("<!DOCTYPE html><meta charset=utf-8><pre id=result></pre>\n")
	for i, v := range views {
		file := filepath.Join(dir, fmt.Sprintf("%d.html", i))
		require.NoError(t, os.WriteFile(file, v.page, 0o644))
		if i == 0 {
			fmt.Fprintf(&b, "<iframe src=%q></iframe>\n", filepath.Base(file))
		}
		fmt.Fprintf(&b, "<iframe title=\"%s\" width=%d height=900 data-scheme=%s data-charts=%d style=\"border:0;color-scheme:%s\" srcdoc=\"%s\"></iframe>\n",
			v.name, v.width, v.scheme, v.charts, v.scheme, html.EscapeString(string(v.page)))
	}
	fmt.Fprintf(&b, "<script>%s%s</script>\n", layout, measure)
	wrapper := filepath.Join(dir, "frames.html")
	require.NoError(t, os.WriteFile(wrapper, b.Bytes(), 0o644))
	return wrapper
}

var resultPattern = regexp.MustCompile(`<pre id="result">([^<]*)</pre>`)

// TestInABrowser looks at the page as readers do: in narrow and wide windows, on
// light and dark ground; and uses the charts with a mouse.
func TestInABrowser(t *testing.T) {
	long.Only(t, "a browser of its own: the short form reads the page without one")
	var views []view
	add := func(name string, charts int, widths []int, schemes []string, reports ...*compare.Report) {
		out := written(t, reports...)
		if long.Rounds(1, 3) == 1 { // nor is the browser's work watched for races
			widths, schemes = widths[:1], schemes[:1]
		}
		for _, width := range widths {
			for _, scheme := range schemes {
				views = append(views, view{fmt.Sprintf("%s, %d, %s", name, width, scheme), out, width, scheme, charts})
			}
		}
	}
	all, both := []int{375, 768, 1400}, []string{"light", "dark"}
	add("a day", 17, all, both, sample(t, 0))
	odd := edges(t)
	add("two limits", 34, []int{1000}, both[:1], sample(t, 0), sample(t, 1))
	add("long names", 17, []int{375, 1400}, both[:1], odd["long names"])
	add("one event", 2, []int{375, 1400}, both[1:], odd["one event"])
	add("memory that is not told", 16, []int{375, 1400}, both[:1], odd["memory that is not told"])
	add("no log on the store", 17, []int{375, 1400}, both[1:], odd["no log on the store"])

	document, console := browse(t, frames(t, views))
	found := resultPattern.FindStringSubmatch(document)
	require.NotNil(t, found, "nothing was measured; the console says %q", console)
	text := try.To(url.PathUnescape(found[1]))(t)
	var wrong map[string][]string
	require.NoError(t, json.Unmarshal([]byte(text), &wrong))
	require.Len(t, wrong, len(views))
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) {
			require.Empty(t, wrong[v.name], strings.Join(wrong[v.name], "\n"))
		})
	}
	require.Len(t, console, 1, "the console says %s", strings.Join(console, "\n"))
	require.Contains(t, console[0], "control: this message is seen")
}
