package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// command is the program as a process of its own: what a signal and a pipe that
// breaks do to it cannot be seen from a script.
func command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "demo", args...)
	cmd.Env = append(cmd.Environ(), "GORACE="+raceEnv)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	return exit.ExitCode()
}

// Ctrl-C while the log still grows: the report of what was read.
func TestInterruptedProcess(t *testing.T) {
	for flag, told := range map[string]string{"--json=false": "STOPPED: interrupted\n", "--json": `"stopped": "interrupted"`} {
		cmd, stderr := command(t, "replay", "-", flag)
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		log, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		// More than a pipe holds: once it is written, the process is reading, and
		// has long since asked to be told of signals.
		_, err = log.Write([]byte("time_us,event,feature\n" + strings.Repeat("1772494233000000,signup,203.0.113.9\n", 20_000)))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Equal(t, exitInterrupted, exitCode(t, cmd.Wait()))
		require.Equal(t, "demo: interrupted\n", stderr.String())
		require.Contains(t, stdout.String(), told)
	}
}

// Nobody reads: neither silence nor success.
func TestBrokenPipe(t *testing.T) {
	for _, args := range [][]string{{}, {"cover"}, {"cover", "--json"}, {"replay", os.DevNull, "--format", "clf"}, {"replay", os.DevNull, "--format", "clf", "--json"}} {
		cmd, stderr := command(t, args...)
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		cmd.Stdout = write
		require.Equal(t, exitInput, exitCode(t, cmd.Run()), "%v", args)
		require.NoError(t, write.Close())
		require.Equal(t, "demo: write /dev/stdout: broken pipe\n", stderr.String(), "%v", args)
	}
}
