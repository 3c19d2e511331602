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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// The programs of the README, docs/getting-started.md and docs/http.md compile as
// printed, and the test among them passes.
func TestReadmeExamples(t *testing.T) {
	block := func(page, start, holds string) string { return blockOf(t, page, "go", start, holds) }
	const testHead = `package main

import (
	"net/netip"
	"testing"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

`
	dir := t.TempDir()
	replace := map[string]string{}
	for name, source := range map[string]string{
		"count/main.go":      block("docs/getting-started.md", "package main\n", "c.Take"),
		"serve/main.go":      block("README.md", "package main\n", "httplimit.ByIP"),
		"serve/main_test.go": testHead + block("docs/getting-started.md", "func Test", ""),
		"full/main.go":       block("docs/http.md", "package main\n", "httplimit.New"),
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		place, err := filepath.Abs("readme/" + name) // the path of the overlay
		require.NoError(t, err)
		replace[place] = file
		formatted, err := exec.Command("gofmt", "-l", file).CombinedOutput()
		require.NoError(t, err)
		require.Empty(t, string(formatted), "gofmt would change it")
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	require.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))

	said, err := exec.Command("go", "run", "-ldflags=-w", "-overlay", list, "./readme/count").CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Regexp(t, `^true 3/m 2 0s <nil>\ntrue 3/m 1 0s <nil>\ntrue 3/m 0 0s <nil>\nfalse 3/m 0 (59|1m0)\.\d+s <nil>\n$`, string(said))
	for _, program := range []string{"./readme/serve", "./readme/full"} {
		said, err = exec.Command("go", "build", "-overlay", list, "-o", os.DevNull, program).CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
	tests := filepath.Join(dir, "readme.test")
	said, err = exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay", list, "-o", tests, "./readme/serve").CombinedOutput()
	require.NoError(t, err, "%s", said)
	said, err = exec.Command(tests, "-test.v").CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "--- PASS: Test")
}

// blockOf returns the code block of a page that begins with start and contains holds.
func blockOf(t *testing.T, page, language, start, holds string) string {
	t.Helper()
	text, err := os.ReadFile("../" + page)
	require.NoError(t, err)
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
		said, err := exec.Command("sh", "-c", at+strings.ReplaceAll(script, "redis-cli", "redis_cli")).CombinedOutput()
		require.NoError(t, err, "%s", said)
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		return lines[len(lines)-1]
	}
	start := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	for i, after := range []time.Duration{0, 0, time.Second, time.Minute, time.Hour, 24*time.Hour - time.Second} {
		require.Equal(t, fmt.Sprint(i+1), sum(start.Add(after)), "after %s", after)
	}
	require.Equal(t, "5", sum(start.Add(24*time.Hour)), "the two hits of the first second have left")
}
