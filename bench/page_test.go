package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestPage(t *testing.T) {
	m := try.To(look(options{size: "full"}))(t)
	m.begin()
	m.end()
	text := page(m, []string{"## One\n\ntable\n\n", "## Two\n"})
	require.True(t, strings.HasPrefix(text, "# Benchmarks\n"))
	require.True(t, strings.HasSuffix(text, "\n\n## One\n\ntable\n\n## Two\n"))
	for _, row := range []string{"command", "processor", "kernel", "Go", "redis-server", "memcached", "date"} {
		require.Regexp(t, "(?m)^\\| "+row+" \\| .+ \\|$", text)
	}
	for _, peer := range peers {
		require.Regexp(t, regexp.QuoteMeta(strings.TrimPrefix(peer, "github.com/"))+" v[0-9]", text)
	}
}

func TestWrap(t *testing.T) {
	words := func(n int) string { return strings.TrimSuffix(strings.Repeat("limiter ", n), " ") }
	long, row, block := words(30), "| "+words(30)+" |", "```\n"+words(30)+"\n```"
	wrapped := wrap("# " + long + "\n\n" + long + "\n- " + long + "\n" + row + "\n" + block + "\n")
	require.Equal(t, strings.Join([]string{
		"# " + long, "", words(12), words(12), words(6),
		"- " + words(12), "  " + words(12), "  " + words(6), row, block, "",
	}, "\n"), wrapped)
	require.Equal(t, wrapped, wrap(wrapped))

	broken := words(5) + "\n" + words(9) + "\n\n- " + words(5) + "\n  " + words(9) + "\n- " + words(1) + "\n"
	require.Equal(t, strings.Join([]string{
		words(12), words(2), "", "- " + words(12), "  " + words(2), "- " + words(1), "",
	}, "\n"), wrap(broken))

	written := try.To(os.ReadFile("../docs/reports/bench.md"))(t)
	require.Equal(t, string(written), wrap(string(written)))
}

func TestVersionsAreFound(t *testing.T) {
	require.Equal(t, "7.0.15", firstVersion("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"))
	require.Equal(t, "1.6.18", firstVersion("memcached 1.6.18"))
	require.Equal(t, "none", firstVersion("none"))
}

func TestStolen(t *testing.T) {
	before := []float64{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}
	_, ok := stolen(before, before)
	require.False(t, ok, "no time has passed")
	part, ok := stolen(before, []float64{61, 1, 1, 31, 1, 1, 1, 11, 60, 0})
	require.True(t, ok)
	require.InDelta(t, 0.1, part, 1e-9)
	_, ok = stolen(nil, nil)
	require.False(t, ok)
}

// A part without a name here would never be on the page.
func TestEveryBenchmarkIsAPart(t *testing.T) {
	var named, found []string
	for _, p := range parts {
		named = append(named, p.pkg+"/"+p.test)
	}
	files := try.To(filepath.Glob("*/*_test.go"))(t)
	require.Greater(t, len(files), 8)
	test := regexp.MustCompile(`(?ms)^func (Test\w+)\(t \*testing\.T\) \{.*?^\}`)
	for _, file := range files {
		text := try.To(os.ReadFile(file))(t)
		for _, match := range test.FindAllSubmatch(text, -1) {
			if strings.Contains(string(match[0]), "measure.Open(") {
				found = append(found, filepath.Dir(file)+"/"+string(match[1]))
			}
		}
	}
	slices.Sort(named)
	slices.Sort(found)
	require.Equal(t, named, found)
}

// The charts are those that the page's tables give, in the colours of today.
func TestChartsAreThoseOfThePage(t *testing.T) {
	text := try.To(os.ReadFile("../docs/reports/bench.md"))(t)
	page := filepath.Join(t.TempDir(), "bench.md")
	require.NoError(t, os.WriteFile(page, text, 0o644))
	require.NoError(t, render(page))
	drawn := try.To(filepath.Glob(filepath.Join(filepath.Dir(page), "charts", "*")))(t)
	require.Len(t, drawn, 6)
	for _, name := range drawn {
		got := try.To(os.ReadFile(name))(t)
		want := try.To(os.ReadFile(filepath.Join("../docs/reports/charts", filepath.Base(name))))(t)
		require.Equal(t, string(got), string(want), "%s: cd bench && go run . -render ../docs/reports/bench.md", name)
	}
}

func TestChartsOfThePageAreThere(t *testing.T) {
	text := try.To(os.ReadFile("../docs/reports/bench.md"))(t)
	charts := regexp.MustCompile(`!\[[^\]]+\]\(([^)]+)\)`).FindAllSubmatch(text, -1)
	require.NotEmpty(t, charts)
	for _, chart := range charts {
		require.FileExists(t, filepath.Join("../docs/reports", string(chart[1])))
	}
	files := try.To(filepath.Glob("../docs/reports/charts/*"))(t)
	require.Len(t, files, len(charts), "charts that no section shows")
}
