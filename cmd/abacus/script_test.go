package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/abacus-go/abacus/cmd/internal/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"abacus": main, "count": count, "ask": ask, "dump": dump})
}

func TestScripts(t *testing.T) { clitest.Scripts(t, 8, nil) }
