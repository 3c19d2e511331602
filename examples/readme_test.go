// Package examples holds programs that show the library at work, and tests of
// the README's example and of the list of modules that a user gets.
package examples

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The programs of the README, docs/getting-started.md and docs/http.md run as printed, the
// one for a server without its store, and the test among them passes.
func TestReadmeExamples(t *testing.T) {
	guide := func(holds string) string { return blockOf(t, "docs/getting-started.md", "go", "package main\n", holds) }
	handler := blockOf(t, "README.md", "go", "package main\n", "httplimit.ByIP")
	dir, replace := t.TempDir(), map[string]string{}
	for name, source := range map[string]string{
		"count/main.go":      guide("c.Take"),
		"decide/main.go":     guide("limiter.Config"),
		"serve/main.go":      handler,
		"serve/main_test.go": guide("func Test"),
		"server/main.go":     onServer(t, handler, blockOf(t, "README.md", "go", "store, err", "redis.Open")),
		"full/main.go":       blockOf(t, "docs/http.md", "go", "package main\n", "httplimit.New"),
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		replace[try.To(filepath.Abs("readme/"+name))(t)] = file // the path of the overlay
	}
	require.Empty(t, output(t, "gofmt", "-l", dir), "gofmt would change it")
	overlay := try.To(json.Marshal(map[string]map[string]string{"Replace": replace}))(t)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))

	run := func(program string) string {
		return output(t, "go", "run", "-ldflags=-w", "-overlay", list, "./readme/"+program)
	}
	require.Regexp(t, `^true 3/m 2 0s <nil>\ntrue 3/m 1 0s <nil>\ntrue 3/m 0 0s <nil>\nfalse 3/m 0 (59|1m0)\.\d+s <nil>\n$`, run("count"))
	require.Regexp(t, `^admitted .*\nadmitted .*\nover-limit "signup" by "email": 2/d, 0 left, retry in .* <nil>\n$`, run("decide"))
	page := try.To(os.ReadFile("../docs/getting-started.md"))(t)
	shown := regexp.MustCompile(`(?s)    \$ curl [^\n]*\n(.*?)\n\n.*?    (WARN [^\n]*)`).FindSubmatch(page)
	require.Len(t, shown, 3)
	for _, lines := range shown[1:] {
		want := strings.NewReplacer(`\.\.\.`, ".*", "\n    ", "\r?\n", "Retry-After: 1", "Retry-After: [12]").Replace(regexp.QuoteMeta(strings.TrimSpace(string(lines))))
		require.Regexp(t, want, run("server"))
	}
	output(t, "go", "build", "-overlay", list, "-o", os.DevNull, "./readme/full")
	tests := filepath.Join(dir, "readme.test")
	output(t, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay", list, "-o", tests, "./readme/serve")
	require.Contains(t, output(t, tests, "-test.v"), "--- PASS: Test")
}

// output runs a program, which must succeed, and returns what it writes.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	said, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return string(said)
}

// onServer is the program of a handler with another begin, on a Redis that refuses
// connections. It prints the answer to a request, and ends.
func onServer(t *testing.T, handler, begin string) string {
	program := strings.NewReplacer(
		"backend/memory", "backend/redis", "\"net/http\"\n", "\"net/http\"\n\t\"net/http/httptest\"\n",
		`limit, err := httplimit.ByIP(memory.New(memory.Config{}), "signup", "5/h, 20/d")`, strings.ReplaceAll(strings.TrimSpace(begin), "\n", "\n\t"),
		`log.Fatal(http.ListenAndServe("localhost:8080", nil))`, "w := httptest.NewRecorder()\n"+
			"\thttp.DefaultServeMux.ServeHTTP(w, httptest.NewRequest(`POST`, `/signup`, nil))\n"+
			"\tfmt.Fprintln(log.Writer(), `HTTP/1.1`, w.Code, http.StatusText(w.Code))\n\t_ = w.Header().Write(log.Writer())",
	).Replace(handler)
	require.NotContains(t, program, "ListenAndServe")
	return strings.Replace(program, "10.0.0.5:6379", "127.0.0.1:1", 1)
}

// blockOf returns the code block of a page that begins with start and contains holds.
func blockOf(t *testing.T, page, language, start, holds string) string {
	t.Helper()
	text := try.To(os.ReadFile("../" + page))(t)
	for part := range strings.SplitSeq(string(text), "```"+language+"\n") {
		if code, _, closed := strings.Cut(part, "```\n"); closed && strings.HasPrefix(code, start) && strings.Contains(code, holds) {
			return code
		}
	}
	require.FailNow(t, "no such example", "%s with %s in %s", start, holds, page)
	return ""
}

// The idea in a few lines of shell counts on a Redis, and sums up the textbook's cover.
func TestTheIdea(t *testing.T) {
	_, port, err := net.SplitHostPort(servertest.Redis(t))
	require.NoError(t, err)
	script := blockOf(t, "README.md", "sh", "now=", "MGET")
	sum := func(now time.Time) string {
		t.Helper()
		at := fmt.Sprintf("date() { echo %d; }\nredis_cli() { command redis-cli -p %s \"$@\"; }\n", now.Unix(), port)
		said := output(t, "sh", "-c", at+strings.ReplaceAll(script, "redis-cli", "redis_cli"))
		lines := strings.Split(strings.TrimSpace(said), "\n")
		return lines[len(lines)-1]
	}
	start := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	for i, after := range []time.Duration{0, 0, time.Second, time.Minute, time.Hour, 24*time.Hour - time.Second} {
		require.Equal(t, fmt.Sprint(i+1), sum(start.Add(after)), "after %s", after)
	}
	require.Equal(t, "5", sum(start.Add(24*time.Hour)), "the two hits of the first second have left")
}
