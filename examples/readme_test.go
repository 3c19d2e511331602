// Package examples holds programs that show the library at work, and tests of
// the README's example and of the list of modules that a user gets.
package examples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README's examples compile as printed, and the test among them passes.
func TestReadmeExamples(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	block := func(start string) string {
		_, rest, found := strings.Cut(string(readme), "```go\n"+start)
		require.True(t, found, start)
		code, _, found := strings.Cut(rest, "```\n")
		require.True(t, found, start)
		return start + code
	}
	const testHead = `package main

import (
	"net/netip"
	"testing"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

`
	dir := t.TempDir()
	replace := map[string]string{}
	for name, source := range map[string]string{"main.go": block("package main\n"), "main_test.go": testHead + block("func Test")} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		place, err := filepath.Abs("readme/" + name) // the path of the overlay
		require.NoError(t, err)
		replace[place] = file
		formatted, err := exec.Command("gofmt", "-l", file).CombinedOutput()
		require.NoError(t, err)
		require.Empty(t, string(formatted), "gofmt would change it")
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	require.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))

	said, err := exec.Command("go", "build", "-overlay", list, "-o", os.DevNull, "./readme").CombinedOutput()
	require.NoError(t, err, "%s", said)
	tests := filepath.Join(dir, "readme.test")
	said, err = exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-o", tests, "./readme").CombinedOutput()
	require.NoError(t, err, "%s", said)
	said, err = exec.Command(tests, "-test.v").CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "--- PASS: Test")
}
