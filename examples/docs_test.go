package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

// printed matches a code block below a link to a file.
var printed = regexp.MustCompile("(?s)\\[[^]]+\\]\\((\\.\\./[\\w./]+\\.go)\\)+:?\n\n```go\n(.*?)```")

// The recipes of the pages are parts of compiled and tested files, but for the
// indentation.
func TestPagesPrintFiles(t *testing.T) {
	for page, want := range map[string]int{"../docs/http.md": 1, "../docs/recipes.md": 5, "../docs/rules.md": 1} {
		text := try.To(os.ReadFile(page))(t)
		blocks := printed.FindAllStringSubmatch(string(text), -1)
		require.Len(t, blocks, want, page)
		for _, block := range blocks {
			file := try.To(os.ReadFile(filepath.Join(filepath.Dir(page), block[1])))(t)
			require.Contains(t, "\n"+unindented(string(file)), "\n"+unindented(block[2]), "%s prints %s otherwise", page, block[1])
		}
	}
}

// unindented is text without the tabs at the beginning of lines.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "\n")
}
