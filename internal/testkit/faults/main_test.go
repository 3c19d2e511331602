package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parentVariable makes the test binary run a campaign, and print the ids of its
// processes.
const parentVariable = "ABACUS_FAULTS_PARENT"

func parent() {
	code := run([]string{"--for", "1m", "--only", "redis"}, io.Discard, os.Stderr)
	os.Exit(code)
}

func TestProcessesEndWithTheCampaign(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+t.TempDir()) // what is killed tidies nothing up
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(stderr).ReadString('\n') // the seed
	require.NoError(t, err)
	var children []int
	require.Eventually(t, func() bool {
		children = childrenOf(t, cmd.Process.Pid)
		return len(children) == 4 // three callers and a server
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait() // the error is that it was killed
	require.Eventually(t, func() bool {
		for _, pid := range children {
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond)
}

// childrenOf are the processes that a process has started.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(t, err)
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			children = append(children, child)
		}
	}
	return children
}

func TestCommandLine(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, run([]string{"--help"}, &out, os.Stderr))
	require.Contains(t, out.String(), "--seed")
	for _, args := range [][]string{{"--for", "-1s"}, {"--for", "0s"}, {"--only", "nothing"}, {"--what"}, {"more"}} {
		require.Equal(t, 2, run(args, io.Discard, io.Discard), args)
	}
}

func TestPageIsWrapped(t *testing.T) {
	c := &campaign{seed: 1}
	for i, line := range strings.Split(c.page("go run ./internal/testkit/faults"), "\n") {
		if !strings.HasPrefix(line, "|") {
			require.LessOrEqual(t, len(line), 100, "line %d: %s", i+1, line)
		}
	}
}
