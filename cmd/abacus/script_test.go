package main

import (
	"math/rand/v2"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/internal/testkit/long"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"abacus": main, "count": count, "ask": ask, "dump": dump})
}

func TestScripts(t *testing.T) { clitest.Scripts(t, 8, map[string]clitest.Command{"drawn": drawn}) }

// drawn is exec in the long form, and in one of three runs of the short form:
//
//	drawn program [argument...]
func drawn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: drawn program [argument...]")
	}
	if rand.IntN(long.Rounds(3, 1)) == 0 {
		ts.Check(ts.Exec(args[0], args[1:]...))
	}
}
