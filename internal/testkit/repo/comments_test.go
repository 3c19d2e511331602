// Package repo tests the repository itself.
package repo

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	tree  = flag.String("tree", "../../..", "root of the Go files whose comments are measured")
	tests = flag.Bool("tests", true, "measure test files as well")
)

// maxPronouns bounds the pronouns in 100 words of a package's comments.
//
// Five libraries whose documentation is a model (x/time, go-limiter, age,
// gomemcache, log/slog), without their tests, have 3.3, 4.7, 5.2, 3.3 and 4.7 by
// the program below, and no definition by a question word in 700 comments:
//
//	go test ./internal/testkit/repo -run Comments -v -tests=false -tree $(go env GOROOT)/src/log/slog
//
// Two choices bring the models to these numbers: "which" is in the list, and an
// identifier is no word. Relative clauses are not told apart, every "that" counts.
const maxPronouns = 6

var (
	pronoun = regexp.MustCompile(`(?i)^(it|its|itself|they|them|their|this|that|these|those|which|one|ones|some|others|who|whom|whoever|he|him|his|she|her)$`)

	// word matches words of English, and no identifiers such as MaxWindow or os.Args.
	word = regexp.MustCompile(`^[A-Z]?[a-z]*$`)

	// definition matches a sentence such as "Limit is what ..." and a comment that begins
	// with a question word, such as "What a ladder ...".
	definition = regexp.MustCompile(`(?:^|[.;:] )\S+ (?:is|are) (?:what|how|when|where|who|why|those|that)\b` +
		`|(?:^|[.;:] )\S+ \S+ (?:is|are) (?:what|how|when|where|who|why|those)\b` +
		`|^(?:What|How|Who|Whoever|Why|Those)\b`)
)

// prose holds the numbers of the comments of one package.
type prose struct {
	words, pronouns, definitions int

	found []string // a definition each, with its position
	worst []string // a comment each with many pronouns, with its position
}

// rate is the number of pronouns in 100 words. A package of few words may have
// as many pronouns as a package of 100 words.
func (p prose) rate() float64 { return 100 * float64(p.pronouns) / float64(max(p.words, 100)) }

// bound is the highest rate of pronouns and the highest number of definitions
// that a package may have.
type bound struct {
	rate        float64
	definitions int
}

func (p prose) within(b bound) bool { return p.rate() <= b.rate && p.definitions <= b.definitions }

// add counts one comment. Code, printed output and licences are not prose.
func (p *prose) add(position, text string) {
	if strings.HasPrefix(text, "Copyright ") || strings.HasPrefix(text, "Output:") {
		return
	}
	var words []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "    ") {
			words = append(words, strings.Fields(line)...)
		}
	}
	if definition.MatchString(strings.Join(words, " ")) {
		p.definitions++
		p.found = append(p.found, fmt.Sprintf("%s: %s ...", position, strings.Join(words[:min(len(words), 12)], " ")))
	}
	own := 0
	for _, field := range words {
		field, _, _ = strings.Cut(strings.Trim(field, ".,;:!?()\"'`*"), "'")
		if !word.MatchString(field) {
			continue
		}
		p.words++
		if pronoun.MatchString(field) {
			own++
		}
	}
	p.pronouns += own
	if own > 2 && own*100 > 2*maxPronouns*len(words) {
		p.worst = append(p.worst, fmt.Sprintf("%s: %d pronouns in %d words", position, own, len(words)))
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

// measure reads the comments of all Go files below root, by folder. Generated
// files are left out.
func measure(root string, withTests bool) (map[string]*prose, error) {
	packages := map[string]*prose{}
	return packages, walk(root, func(folder, path string) error {
		if !strings.HasSuffix(path, ".go") || !withTests && strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		if packages[folder] == nil {
			packages[folder] = &prose{}
		}
		for _, comment := range file.Comments {
			at := set.Position(comment.Pos())
			packages[folder].add(fmt.Sprintf("%s:%d", at.Filename, at.Line), comment.Text())
		}
		return nil
	})
}

func TestCommentsReadAlone(t *testing.T) {
	packages, err := measure(*tree, *tests)
	require.NoError(t, err)
	require.NotEmpty(t, packages)
	var all prose
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		p := packages[folder]
		all.words, all.pronouns, all.definitions = all.words+p.words, all.pronouns+p.pronouns, all.definitions+p.definitions
		t.Logf("%-34s %6d words  %5.2f pronouns in 100  %3d definitions", folder, p.words, p.rate(), p.definitions)
		if *tree == "../../.." && (p.rate() > maxPronouns || p.definitions > 0) {
			t.Errorf("%s: %.2f pronouns in 100 words, want at most %d; %d definitions by a question word, want none:\n%s",
				folder, p.rate(), maxPronouns, p.definitions, strings.Join(append(p.found, p.worst...), "\n"))
		}
	}
	t.Logf("%-34s %6d words  %5.2f pronouns in 100  %3d definitions", "all", all.words, all.rate(), all.definitions)
}

func TestCommentsThatAreBadAreFound(t *testing.T) {
	for text, want := range map[string]prose{
		"Limit is what a caller asks for.":                          {definitions: 1},
		"Limits are how much a caller gets.":                        {definitions: 1},
		"Limit bounds a window. Per is how\nlong the window is.":    {definitions: 1},
		"Per Max is where the bound stands.":                        {definitions: 1},
		"Config is that of the store.":                              {definitions: 1, pronouns: 1},
		"What a ladder is made of.":                                 {definitions: 1},
		"Limit is the bound of a window. The reason is that a b c.": {pronouns: 1},
		"Somewhat is a whole number of whatever.":                   {},
		"Take adds one, if it can.":                                 {pronouns: 2},
		"It's theirs; that MaxThat is This.one, (these).":           {pronouns: 3},
		"Output:\nthis that it":                                     {},
		"Copyright 2026 those who wrote it":                         {},
		"Sum adds.\n\n\tthis := that.it // which is code\n\nfor it": {pronouns: 1},
	} {
		var got prose
		got.add("", text)
		require.Equal(t, want.definitions, got.definitions, "definitions in %q", text)
		require.Equal(t, want.pronouns, got.pronouns, "pronouns in %q", text)
	}

	// A folder of its own, so that files are found, parsed and skipped as in the repository.
	packages, err := measure("testdata/comments", true)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"bad", "good"}, slices.Collect(maps.Keys(packages)))
	require.True(t, packages["good"].within(bound{maxPronouns, 0}), "%+v", packages["good"])
	require.False(t, packages["bad"].within(bound{maxPronouns, 1}), "pronouns: %+v", packages["bad"])
	require.False(t, packages["bad"].within(bound{100, 0}), "definitions: %+v", packages["bad"])
}
