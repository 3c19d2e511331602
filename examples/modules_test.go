package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "github.com/abacus-go/abacus"

// The smallest user, of counter and backend/memory, lists few modules, builds
// with this module alone, and gets no version of a router from here. So does one of
// the textbooks' limiters in memory.
func TestModulesOfTheSmallestUser(t *testing.T) {
	checkout, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.org/user\n\ngo 1.25.0\n\nrequire "+root+" v0.0.0\n\nreplace "+root+" => "+checkout+"\n")
	write("main.go", "package main\n\nimport (\n\t_ \""+root+"/backend/memory\"\n\t_ \""+root+"/classic\"\n\t_ \""+root+"/counter\"\n)\n\nfunc main() {}\n")
	list := func(args ...string) []string {
		c := exec.Command("go", append([]string{"list"}, args...)...)
		c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		said, err := c.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return strings.Fields(string(said))
	}

	listed := list("-m", "-f", "{{.Path}}", "all")
	require.Subset(t, listed, []string{"example.org/user", root})
	require.LessOrEqual(t, len(listed), 21, "%s", strings.Join(listed, "\n"))
	for _, path := range listed {
		require.NotRegexp(t, `/(chi|mux|gin|echo|fiber|httprouter|connect|grpc)(/v\d+)?$|prometheus|opentelemetry`, path)
	}

	built := list("-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	require.Subset(t, []string{"example.org/user", root}, built)
}
