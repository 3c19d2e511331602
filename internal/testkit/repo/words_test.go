package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// habits bound words that readers of the standard library's documentation rarely meet:
// at most so many in 10,000 words of the README and of docs/*.md, code left out.
var habits = []struct {
	words string
	match *regexp.Regexp
	most  float64
}{
	{"tell", regexp.MustCompile(`(?i)\b(tell|tells|told)\b`), 2.8},
	{"taking back", regexp.MustCompile(`(?i)\b(taking|takings|taken) back\b`), 0.2},
	{"beside", regexp.MustCompile(`(?i)\bbeside\b`), 1},
	{"nobody, anew", regexp.MustCompile(`(?i)\b(nobody|anybody|somebody|anew|in the mean|the begin)\b`), 1},
}

var code = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`|^    .*?$")

func TestWordsOfThePages(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	var all strings.Builder
	for _, page := range append(pages, "../../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		all.WriteString(code.ReplaceAllString(string(text), "x") + "\n")
	}
	words := len(strings.Fields(all.String()))
	require.Greater(t, words, 10_000)
	for _, h := range habits {
		found := h.match.FindAllString(all.String(), -1)
		require.LessOrEqual(t, float64(len(found))*10_000/float64(words), h.most, "%s: %d times in %d words", h.words, len(found), words)
	}
	require.Len(t, habits[0].match.FindAllString(code.ReplaceAllString("He told. `told` us\n```\ntell\n```\n    tells\n", "x"), -1), 1)
}
