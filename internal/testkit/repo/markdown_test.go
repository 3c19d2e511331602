package repo

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`(?:\]\(|srcset="|src=")([^)"\s]+)[)"]`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unnamed = regexp.MustCompile(`[^\p{L}\p{N} _-]`) // are left out of the name of a heading
)

// headings returns the names under which GitHub finds the headings of a page.
func headings(page []byte) (names []string) {
	for _, match := range heading.FindAllSubmatch(page, -1) {
		name := unnamed.ReplaceAllString(strings.ToLower(string(match[1])), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Every link of a Markdown file to a file of this repository has a target, and
// every line of a paragraph has at most 100 characters.
func TestMarkdown(t *testing.T) {
	const root, width = "../../..", 100
	links := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		code := false
		for i, line := range strings.Split(string(page), "\n") {
			fence := strings.HasPrefix(line, "```")
			code = code != fence
			if code || fence || strings.HasPrefix(line, "    ") {
				continue
			}
			if table := strings.HasPrefix(line, "|"); !table && !strings.Contains(line, "](") && !strings.HasPrefix(strings.TrimSpace(line), "<") {
				require.LessOrEqual(t, utf8.RuneCountInString(line), width, "%s:%d: %s", path, i+1, line)
			}
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
					continue
				}
				links++
				file, name, _ := strings.Cut(match[1], "#")
				target := path
				if file != "" {
					target = filepath.Join(filepath.Dir(path), file)
				}
				_, err := os.Stat(target)
				require.NoError(t, err, "%s:%d: %s", path, i+1, match[1])
				if name != "" {
					text, err := os.ReadFile(target)
					require.NoError(t, err)
					require.Contains(t, headings(text), name, "%s:%d: %s", path, i+1, match[1])
				}
			}
		}
		return nil
	}))
	require.Greater(t, links, 100, "links that were found")
}
