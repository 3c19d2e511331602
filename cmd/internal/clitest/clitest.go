// Package clitest tests the command lines of the programs: by scripts, and as processes
// of their own.
package clitest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// raceEnv spares every process built with -race the second of sleep before the
// exit.
const raceEnv = "atexit_sleep_ms=0"

var update = flag.Bool("update", false, "write what the commands print into the scripts that compare it")

// Command is a command of a script next to those of testscript.
type Command = func(ts *testscript.TestScript, neg bool, args []string)

// Scripts runs the scripts of testdata/script, and fails if there are less than least.
// The commands of a script are more, and server and holds.
func Scripts(t *testing.T, least int, more map[string]Command) {
	scripts, err := os.ReadDir("testdata/script")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(scripts), least)
	commands := map[string]Command{
		"server": func(ts *testscript.TestScript, neg bool, args []string) { server(t, ts, neg, args) },
		"holds":  holds,
	}
	maps.Copy(commands, more)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", raceEnv)
			return nil
		},
		Cmds: commands,
	})
}

// server starts a server of its own for the script, and sets a variable to its
// host:port:
//
//	server redis|memcached variable [argument...]
func server(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: server redis|memcached variable [argument...]")
	}
	start := map[string]func(testing.TB, ...string) string{"redis": servertest.Redis, "memcached": servertest.Memcached}[args[0]]
	ts.Setenv(args[1], start(t, args[2:]...))
}

// holds checks how many keys or items the server of a store has:
//
//	[!] holds store number
func holds(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] holds store number")
	}
	n, err := Stored(args[0])
	ts.Check(err)
	if got := strconv.FormatInt(n, 10); (got == args[1]) == neg {
		ts.Fatalf("%s holds %s, %s: %t", args[0], got, args[1], !neg)
	}
}

// Stored is the number of keys or items on the servers of a store, whatever their
// owners.
func Stored(store string) (n int64, err error) {
	name, err := stores.Parse(store)
	if err != nil {
		return 0, err
	}
	opened, err := stores.Open(name, time.Second)
	if err != nil {
		return 0, err
	}
	defer opened.Close()
	for _, l := range opened.Look(context.Background()) {
		if l.Err != nil {
			return n, l.Err
		}
		items := cmp.Or(l.Facts["curr_items"], strings.TrimPrefix(strings.Split(l.Facts["db0"], ",")[0], "keys="), "0")
		more, err := strconv.ParseInt(items, 10, 64)
		if err != nil {
			return n, err
		}
		n += more
	}
	return n, nil
}

// Process is a program of testscript.Main as a process of its own: a script cannot show the
// effects of a signal and of a broken pipe.
func Process(t *testing.T, program string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(cmd.Environ(), "GORACE="+raceEnv)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

// ExitCode is the exit status of a process that failed.
func ExitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	return exit.ExitCode()
}

// Stores are the stores on servers of their own.
func Stores(t *testing.T) map[string]string {
	return map[string]string{"redis": "redis://" + servertest.Redis(t), "memcached": "memcached://" + servertest.Memcached(t)}
}

// AwaitStored waits until more keys or items than few are stored.
func AwaitStored(t *testing.T, url string, few int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := Stored(url)
		return err == nil && n > few
	}, 30*time.Second, time.Millisecond)
}
