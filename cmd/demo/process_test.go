package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// replaying starts a replay of the standard input, and writes lines of an event to it.
func replaying(t *testing.T, lines int, args ...string) (cmd *exec.Cmd, log io.Writer, stdout, stderr *bytes.Buffer) {
	cmd, stderr = clitest.Process(t, "demo", append([]string{"replay", "-"}, args...)...)
	stdout = new(bytes.Buffer)
	cmd.Stdout = stdout
	log = try.To(cmd.StdinPipe())(t)
	require.NoError(t, cmd.Start())
	try.To(io.WriteString(log, "time_us,event,feature\n"+strings.Repeat(event, lines)))(t)
	return cmd, log, stdout, stderr
}

const event = "1772494233000000,signup,203.0.113.9\n"

// interrupt presses Ctrl-C, and waits for the end.
func interrupt(t *testing.T, cmd *exec.Cmd, stderr *bytes.Buffer) {
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, clitest.ExitCode(t, cmd.Wait()))
	require.Equal(t, "demo: interrupted\n", stderr.String())
}

// After Ctrl-C while the log still grows, the report has all events read.
func TestInterruptedProcess(t *testing.T) {
	for flag, told := range map[string]string{"--json=false": "STOPPED: interrupted\n", "--json": `"stopped": "interrupted"`} {
		// More than a pipe holds: after the write, the process is reading, and has long
		// since asked to be told of signals.
		cmd, _, stdout, stderr := replaying(t, 20_000, flag)
		interrupt(t, cmd, stderr)
		require.Contains(t, stdout.String(), told)
	}
}

// An interrupt ends the page, also with streams open.
func TestServeEnds(t *testing.T) {
	cmd, stderr := clitest.Process(t, "demo", "serve", "--listen", "localhost:0")
	stdout := try.To(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	line := try.To(bufio.NewReader(stdout).ReadString('\n'))(t)
	_, rest, _ := strings.Cut(line, "Open ")
	site, _, _ := strings.Cut(rest, " ")
	stream := try.To(http.Get(site + "/race?limit=10/m"))(t)
	defer stream.Body.Close()
	require.Equal(t, http.StatusOK, stream.StatusCode)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, try.Err(io.Copy(io.Discard, stream.Body)), "the stream ends, and is not cut")
	require.NoError(t, cmd.Wait())
	require.Empty(t, stderr.String())
}

// With nobody to read the output, the program neither succeeds nor falls silent.
func TestBrokenPipe(t *testing.T) {
	for _, args := range [][]string{{}, {"cover"}, {"cover", "--json"}, {"replay", os.DevNull, "--format", "clf"}, {"replay", os.DevNull, "--format", "clf", "--json"}} {
		cmd, stderr := clitest.Process(t, "demo", args...)
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		cmd.Stdout = write
		require.Equal(t, cli.ExitInput, clitest.ExitCode(t, cmd.Run()), "%v", args)
		require.NoError(t, write.Close())
		require.Equal(t, "demo: write /dev/stdout: broken pipe\n", stderr.String(), "%v", args)
	}
}

// Ctrl-C in the middle of a replay with --clean leaves no key behind.
func TestInterruptedReplayCleans(t *testing.T) {
	for kind, url := range clitest.Stores(t) {
		t.Run(kind, func(t *testing.T) {
			cmd, _, stdout, stderr := replaying(t, 2000, "--clean", "--store", url)
			clitest.AwaitStored(t, url, 0)
			interrupt(t, cmd, stderr)
			require.Contains(t, stdout.String(), "STOPPED: interrupted\n")
			require.Zero(t, try.To(clitest.Stored(url))(t))
		})
	}
}

// A server that dies in the middle soon leads to an error with the store's name.
func TestServerThatIsGone(t *testing.T) {
	for kind, server := range map[string]*servertest.Server{"redis": servertest.StartRedis(t), "memcached": servertest.StartMemcached(t)} {
		t.Run(kind, func(t *testing.T) {
			url := kind + "://" + server.Addr
			cmd, log, _, stderr := replaying(t, 1, "--store", url)
			clitest.AwaitStored(t, url, 0)
			server.Kill()
			// The first event may have failed already, and ended the program.
			_, _ = io.WriteString(log, event)
			require.Equal(t, cli.ExitInput, clitest.ExitCode(t, cmd.Wait()))
			require.Regexp(t, "^demo: event [12]: ", stderr.String())
			require.Contains(t, stderr.String(), server.Addr)
		})
	}
}

// Ctrl-C on a Redis leaves no key, and no page without a report.
func TestInterruptedCompare(t *testing.T) {
	url := "redis://" + servertest.Redis(t)
	page := filepath.Join(t.TempDir(), "page.html")
	cmd, stderr := clitest.Process(t, "demo", "compare", "--store", url, "--html", page)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	require.NoError(t, cmd.Start())
	clitest.AwaitStored(t, url, 0)
	require.FileExists(t, page)
	interrupt(t, cmd, stderr)
	require.Empty(t, stdout.String())
	require.NoFileExists(t, page)
	require.Zero(t, try.To(clitest.Stored(url))(t))
}
