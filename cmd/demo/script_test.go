package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
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
	clitest.Scripts(t, 12, map[string]clitest.Command{"gzip": zip, "cut": cut, "longline": longLine})
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
