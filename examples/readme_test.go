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

// The README's example compiles as printed.
func TestReadmeExampleCompiles(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\npackage main\n")
	require.True(t, found)
	code, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)

	source := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n"+code), 0o600))
	place, err := filepath.Abs("readme/main.go") // the path of the overlay
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {place: source}})
	require.NoError(t, err)
	list := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))

	said, err := exec.Command("go", "build", "-overlay", list, "-o", os.DevNull, "./readme").CombinedOutput()
	require.NoError(t, err, "%s", said)
	formatted, err := exec.Command("gofmt", "-l", source).CombinedOutput()
	require.NoError(t, err)
	require.Empty(t, string(formatted), "gofmt would change it")
}
