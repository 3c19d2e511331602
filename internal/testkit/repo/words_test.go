// Package repo tests the repository itself.
package repo

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var tree = flag.String("tree", "../../..", "root of the pages and Go files with the words that are counted")

// habits bound what readers of the standard library's documentation rarely meet: at most
// so many in 10,000 words. The bound of the pages is twice the rate of the models, which
// are log/slog, net/http, database/sql and golang.org/x/time/rate, by
//
//	go test ./internal/testkit/repo -run TestWords -v -tree $(go env GOROOT)/src/net/http
//
// The public comments are above the models still: their bound is what they have reached.
var habits = []struct {
	words         string
	pages, public float64
	match         *regexp.Regexp
}{
	{"tell", 2.8, 8.6, regexp.MustCompile(`(?i)\b(tell|tells|told|telling)\b`)},
	{"take back", 0.2, 6.6, regexp.MustCompile(`(?i)\b(take|takes|taking|takings|taken|took) back\b`)},
	{"whose", 4.8, 20, regexp.MustCompile(`(?i)\bwhose\b`)},
	{"has the", 8.4, 23, regexp.MustCompile(`(?i)\bhas (the|its|a|an)\b`)},
	{"beside", 1, 1, regexp.MustCompile(`(?i)\bbeside\b`)},
	{"Of x, y", 1, 2.2, regexp.MustCompile(`(^|[.:;] )Of [^.,:;]+, `)},
	{", and never", 1.2, 9, regexp.MustCompile(`, and (never|not|no)\b`)},
	{"nobody, anew", 1, 1.2, regexp.MustCompile(`(?i)\b(nobody|anybody|somebody|anew|in the mean|the begin)\b|\bin (the )?place of\b`)},
	{"is what", 1, 1, regexp.MustCompile(`(^|[.;:] )\S+ (is|are) (what|how|when|where|who|why|those|that of)\b`)},
}

var (
	code      = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`|^(?:    |\t).*?$|<[^>]*>|\\]\\([^)]*\\)")
	paragraph = regexp.MustCompile(`\n\s*\n|\n(?:\||#|- |\d+\. )`)
)

// prose counts words, and the habits among them.
type prose struct {
	words int
	found [][]string // for each of the habits, with the place and some words around
}

// add counts a page of Markdown or a comment, without its code.
func (p *prose) add(place, text string) {
	if p.found == nil {
		p.found = make([][]string, len(habits))
	}
	for _, part := range paragraph.Split(code.ReplaceAllString(text, "x"), -1) {
		words := strings.Fields(part)
		p.words += len(words)
		part = strings.Join(words, " ")
		for i, h := range habits {
			for _, at := range h.match.FindAllStringIndex(part, -1) {
				p.found[i] = append(p.found[i], place+": ..."+part[max(0, at[0]-40):min(len(part), at[1]+40)])
			}
		}
	}
}

// walk calls visit for all files below root that are neither data nor other people's
// code, with the folder relative to root.
func walk(root string, visit func(folder, path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", "testdata", "vendor", "third_party":
				return filepath.SkipDir
			}
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(folder), path)
	})
}

// read returns the README with the pages in docs, and the documentation of the exported
// identifiers below root.
func read(root string) (pages, public prose, err error) {
	return pages, public, walk(root, func(folder, path string) error {
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".md" && (folder == "docs" || path == filepath.Join(root, "README.md")) {
			pages.add(path, string(src))
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains("/"+folder+"/", "/internal/") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, src, parser.ParseComments)
		if err != nil || file.Name.Name == "main" || ast.IsGenerated(file) || !ast.FileExports(file) && file.Doc == nil {
			return err
		}
		for n := range ast.Preorder(file) {
			if g, ok := n.(*ast.CommentGroup); ok {
				public.add(set.Position(g.Pos()).String(), g.Text())
			}
		}
		return nil
	})
}

func TestWords(t *testing.T) {
	pages, public, err := read(*tree)
	require.NoError(t, err)
	check := func(name string, p prose, most func(i int) float64) {
		for i, h := range habits {
			rate := float64(len(p.found[i])) * 10_000 / float64(p.words)
			t.Logf("%-7s %6d words, %-13s %5.1f in 10,000, at most %.1f", name, p.words, h.words, rate, most(i))
			if *tree == "../../.." && rate > most(i) {
				t.Errorf("%s: %q is above its bound:\n%s", name, h.words, strings.Join(p.found[i], "\n"))
			}
		}
	}
	if *tree == "../../.." {
		require.Greater(t, pages.words, 10_000)
		check("pages", pages, func(i int) float64 { return habits[i].pages })
	}
	require.NotZero(t, public.words)
	check("public", public, func(i int) float64 { return habits[i].public })
}

func TestHabitsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"He told `told` us\n```\ntell\n```\n    tells\n":       "tell",
		"An undo is taken\nback.":                              "take back",
		"A call whose time is over. A hit has its label.":      "whose has the",
		"It stands beside. Of two limits\nthe first, then.":    "beside Of x, y",
		"A denial, and never a hit.\n- Nobody waits. X is how": ", and never nobody, anew is what",
		"A clock has no hands, and notes taken. Offers, too":   "",
	} {
		var p prose
		p.add("", text)
		var got []string
		for i, h := range habits {
			if len(p.found[i]) > 0 {
				require.Len(t, p.found[i], 1)
				got = append(got, h.words)
			}
		}
		require.Equal(t, want, strings.Join(got, " "), text)
	}
}
