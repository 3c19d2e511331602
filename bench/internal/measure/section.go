// Package measure is common to the benchmarks: sizes, turns, distinct keys, and the
// sections of the page.
//
// A benchmark is a Go test that measures in rounds, asserts that its counts are
// right, and fills a [Section]. The flag -size sets the amount of work, so the same
// code is a test of a few seconds and a benchmark of minutes.
package measure

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	size = flag.String("size", "tiny", "tiny: a test, whose numbers say nothing; short: a few minutes in all; full: as in README.md")
	out  = flag.String("out", "", "`directory` for the sections of the page; default: they are printed by -v only")
)

// Pick returns the value for the size of the flag. Tests call Pick, after flags are
// parsed.
func Pick[T any](tiny, short, full T) T {
	switch *size {
	case "tiny":
		return tiny
	case "short":
		return short
	case "full":
		return full
	}
	panic(fmt.Sprintf("measure: -size %q, want tiny, short or full", *size))
}

// Tiny reports whether this is a test of the benchmark, whose numbers say nothing.
func Tiny() bool { return Pick(true, false, false) }

// Section is one section of the page, in Markdown: fixed prose, tables and a chart. What
// was found is for people to write elsewhere: prose here must be true of every
// run.
type Section struct {
	t    *testing.T
	text strings.Builder
}

// Open begins the section of a test. It is written when the test has passed: to
// -out, in a file by the name of the test.
func Open(t *testing.T, title string) *Section {
	t.Helper()
	s := &Section{t: t}
	fmt.Fprintf(&s.text, "## %s\n", title)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if testing.Verbose() {
			fmt.Println(s.text.String())
		}
		if *out == "" {
			return
		}
		if err := os.WriteFile(filepath.Join(*out, t.Name()+".md"), []byte(s.text.String()), 0o644); err != nil {
			t.Errorf("measure: %v", err)
		}
	})
	return s
}

// Say adds a paragraph.
func (s *Section) Say(format string, args ...any) {
	fmt.Fprintf(&s.text, "\n%s\n", fmt.Sprintf(format, args...))
}

// Table adds a table under a heading of its own; an empty heading is none.
func (s *Section) Table(heading string, t Table) {
	if heading != "" {
		fmt.Fprintf(&s.text, "\n### %s\n", heading)
	}
	s.text.WriteByte('\n')
	t.write(&s.text)
}
