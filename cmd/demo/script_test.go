package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/cmd/internal/stores"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"demo": main,
		// The demo on a store that admits everything.
		"demo-lenient": func() {
			cli.Open = func(stores.Name, time.Duration) (*stores.Opened, error) {
				return &stores.Opened{Store: newLenient()}, nil
			}
			main()
		},
	})
}

type lenient struct{ backend.Store }

func (lenient) Together([]backend.TakeKey) bool { return true }
func (lenient) Take(_ context.Context, t *backend.TakeRequest) error {
	t.Allowed = true
	return nil
}

func newLenient() backend.Atomic {
	return lenient{backend.FromDo(func(context.Context, *backend.Request) error { return nil })}
}

func TestScripts(t *testing.T) {
	clitest.Scripts(t, 12, map[string]clitest.Command{"mask": mask, "gzip": zip, "cut": cut, "longline": longLine})
}

// masks are the parts of an output that differ between runs.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(events per second) +[\d,]+ +[\d.]+ s`), "${1} RATE TIME s"},
	{regexp.MustCompile(`\d+ ns each`), "TIME ns each"},
	{regexp.MustCompile(`keys begin with demo[a-z2-7]{8};`), "keys begin with PREFIX;"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`("seconds": )[\d.e+-]+`), "${1}TIME"},
	{regexp.MustCompile(`("events_per_second": )[\d.e+-]+`), "${1}RATE"},
}

// mask writes the output of the last command to a file, without its timings:
//
//	mask file
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mask file")
	}
	text := ts.ReadFile("stdout")
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.with)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o666))
}

// zip compresses a file:
//
//	gzip from to
func zip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: gzip from to")
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(w.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o666))
}

// cut leaves the last three bytes off a file:
//
//	cut file
func cut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: cut file")
	}
	text := ts.ReadFile(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text[:len(text)-3]), 0o666))
}

// longLine replaces the word LONG in a file by two million letters:
//
//	longline file
func longLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: longline file")
	}
	text := ts.ReadFile(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, "LONG", strings.Repeat("x", 2_000_000), 1)), 0o666))
}
