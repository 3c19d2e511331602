package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxFunction is the number of lines of a function, from the first to the last,
// above which the function counts as long.
const maxFunction = 60

// size is the size of one folder, without tests.
type size struct {
	code    int      // lines that hold more than blanks and comments, of Go and of Lua
	long    []string // the functions above maxFunction lines, with their position
	types   []string // exported
	methods []string // exported, of a type called Counter
}

// measureSizes returns the sizes of all folders below root, by folder.
func measureSizes(root string) (map[string]*size, error) {
	sizes := map[string]*size{}
	return sizes, walk(root, func(folder, path string) error {
		isGo := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if !isGo && filepath.Ext(path) != ".lua" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s := sizes[folder]
		if s == nil {
			s = &size{}
			sizes[folder] = s
		}
		if !isGo {
			s.code += linesOfLua(src)
			return nil
		}
		s.code += linesOfGo(src)
		return s.declarations(path, src)
	})
}

// linesOfGo returns the number of lines with a token. A comment is no token, and a
// string covers all its lines.
func linesOfGo(src []byte) (lines int) {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for last := 0; ; {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // inserted by the scanner
		}
		first := file.Line(pos)
		end := first + strings.Count(text, "\n")
		lines += end - max(last, first-1)
		last = end
	}
}

// linesOfLua returns the number of lines that are neither empty nor a comment.
func linesOfLua(src []byte) (lines int) {
	for line := range strings.Lines(string(src)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines++
		}
	}
	return lines
}

// declarations adds the long functions, and the exported types and methods of a file.
func (s *size) declarations(path string, src []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if n := set.Position(d.End()).Line - set.Position(d.Pos()).Line + 1; n > maxFunction {
				s.long = append(s.long, fmt.Sprintf("%s: %s has %d lines", set.Position(d.Pos()), d.Name.Name, n))
			}
			if d.Name.IsExported() && isMethodOfCounter(d) {
				s.methods = append(s.methods, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, is := spec.(*ast.TypeSpec); is && t.Name.IsExported() {
					s.types = append(s.types, t.Name.Name)
				}
			}
		}
	}
	return nil
}

func isMethodOfCounter(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return false
	}
	receiver := f.Recv.List[0].Type
	if pointer, is := receiver.(*ast.StarExpr); is {
		receiver = pointer.X
	}
	name, is := receiver.(*ast.Ident)
	return is && name.Name == "Counter"
}

// budgetOf returns the index of the budget for a folder: a budget with the name of the
// folder, else the budget "x/..." with the longest x above the folder, else -1.
func budgetOf(folder string, budgets []budget) int {
	found, nearest := -1, ""
	for i, b := range budgets {
		for pattern := range strings.FieldsSeq(b.folders) {
			if pattern == folder {
				return i
			}
			above, group := strings.CutSuffix(pattern, "...")
			if group && strings.HasPrefix(folder+"/", above) && len(above) > len(nearest) {
				found, nearest = i, above
			}
		}
	}
	return found
}

// excesses returns a sentence for each budget that is exceeded, and for each folder
// without one.
func excesses(sizes map[string]*size, budgets []budget) (sentences []string) {
	sums := make([]size, len(budgets))
	for _, folder := range slices.Sorted(maps.Keys(sizes)) {
		if i := budgetOf(folder, budgets); i >= 0 {
			sums[i].add(sizes[folder])
			continue
		}
		sentences = append(sentences, fmt.Sprintf("%s has %d lines of code and no budget: give it one in %s", folder, sizes[folder].code, table))
	}
	for i, b := range budgets {
		check := func(n int, what string, budget int, found []string) {
			if n > budget {
				sentences = append(sentences, strings.TrimSpace(fmt.Sprintf("%s has %d %s, its budget is %d: make it smaller, or raise the budget in %s with a decision that says why\n%s",
					b.folders, n, what, budget, table, strings.Join(found, "\n"))))
			}
		}
		if sums[i].code == 0 {
			sentences = append(sentences, fmt.Sprintf("%s has a budget and no code: remove the budget from %s", b.folders, table))
		}
		check(sums[i].code, "lines of code", b.code, nil)
		check(len(sums[i].long), fmt.Sprintf("functions above %d lines", maxFunction), b.long, sums[i].long)
		if b.types > 0 {
			check(len(sums[i].types), "exported types", b.types, sums[i].types)
			check(len(sums[i].methods), "exported methods of Counter", b.methods, sums[i].methods)
		}
	}
	return sentences
}

// longPages returns a sentence for each exceeded budget of pages below root, and for each
// budget without a page.
func longPages(root string, budgets []pageBudget) (sentences []string, err error) {
	for _, b := range budgets {
		paths, err := filepath.Glob(filepath.Join(root, b.pages))
		if err != nil {
			return nil, err
		}
		lines := 0
		for _, path := range paths {
			page, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			lines += strings.Count(string(page), "\n")
		}
		if len(paths) == 0 {
			sentences = append(sentences, fmt.Sprintf("%s has a budget and no page: remove the budget from %s", b.pages, table))
		}
		if lines > b.lines {
			sentences = append(sentences, fmt.Sprintf("%s has %d lines, its budget is %d: make it shorter", b.pages, lines, b.lines))
		}
	}
	return sentences, nil
}

func (s *size) add(t *size) {
	s.code += t.code
	s.long = append(s.long, t.long...)
	s.types = append(s.types, t.types...)
	s.methods = append(s.methods, t.methods...)
}

func TestSizes(t *testing.T) {
	sizes, err := measureSizes("../../..")
	require.NoError(t, err)
	require.NotEmpty(t, sizes)
	for _, folder := range slices.Sorted(maps.Keys(sizes)) {
		t.Logf("%-36s %6d lines of code  %2d long functions", folder, sizes[folder].code, len(sizes[folder].long))
	}
	for _, sentence := range excesses(sizes, budgets) {
		t.Error(sentence)
	}
	for _, b := range budgets {
		for page := range strings.FieldsSeq(b.decision) {
			require.FileExists(t, filepath.Join("../../../docs/decisions", page), b.folders)
		}
	}
}

func TestTestsHaveABudget(t *testing.T) {
	lines := 0
	require.NoError(t, walk("../../..", func(_, path string) error {
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		lines += linesOfGo(src)
		return err
	}))
	require.LessOrEqual(t, lines, maxTests, "lines of tests: say it in fewer, or raise maxTests in %s", table)
}

func TestPagesAreShort(t *testing.T) {
	sentences, err := longPages("../../..", pageBudgets)
	require.NoError(t, err)
	require.Empty(t, sentences)

	for _, row := range []struct {
		budget pageBudget
		want   []string
	}{
		{pageBudget{"*.md", 7}, nil},
		{pageBudget{"*.md", 6}, []string{"*.md has 7 lines, its budget is 6: make it shorter"}},
		{pageBudget{"short.md", 2}, nil},
		{pageBudget{"gone.md", 2}, []string{"gone.md has a budget and no page: remove the budget from " + table}},
	} {
		sentences, err := longPages("testdata/pages", []pageBudget{row.budget})
		require.NoError(t, err)
		require.Equal(t, row.want, sentences)
	}
}

func TestSizesAreMeasured(t *testing.T) {
	sizes, err := measureSizes("testdata/sizes")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"core", "core/lua", "core/room"}, slices.Collect(maps.Keys(sizes)))
	core := sizes["core"]
	require.Equal(t, 72, core.code)
	require.Equal(t, []string{"testdata/sizes/core/core.go:28:1: long has 61 lines"}, core.long)
	require.Equal(t, []string{"Counter", "Alias", "Pair"}, core.types)
	require.Equal(t, []string{"Take", "Max"}, core.methods)
	require.Equal(t, 2, sizes["core/lua"].code)

	fits := budget{folders: "core/...", code: 76, long: 1, types: 4, methods: 2}
	require.Empty(t, excesses(sizes, []budget{fits}))
	for _, row := range []struct {
		change func(b *budget)
		want   string
	}{
		{func(b *budget) { b.code-- }, "core/... has 76 lines of code, its budget is 75: make it smaller, or raise the budget in " + table + " with a decision that says why"},
		{func(b *budget) { b.long-- }, "core/... has 1 functions above 60 lines, its budget is 0: make it smaller, or raise the budget in " + table + " with a decision that says why\n" + core.long[0]},
		{func(b *budget) { b.types-- }, "core/... has 4 exported types, its budget is 3: make it smaller, or raise the budget in " + table + " with a decision that says why\nCounter\nAlias\nPair\nRoom"},
		{func(b *budget) { b.methods-- }, "core/... has 2 exported methods of Counter, its budget is 1: make it smaller, or raise the budget in " + table + " with a decision that says why\nTake\nMax"},
	} {
		b := fits
		row.change(&b)
		require.Equal(t, []string{row.want}, excesses(sizes, []budget{b}))
	}

	rows := []budget{{folders: "core core/lua", code: 74, long: 1}}
	require.Equal(t, []string{"core/room has 2 lines of code and no budget: give it one in " + table}, excesses(sizes, rows))
	require.Empty(t, excesses(sizes, append(rows, budget{folders: "core/... other", code: 2})), "the budget that names a folder comes first")
	require.Equal(t, -1, budgetOf("corelike", []budget{fits}))
	require.Equal(t, []string{"core/gone has a budget and no code: remove the budget from " + table}, excesses(sizes, []budget{fits, {folders: "core/gone", code: 1}}))
}
