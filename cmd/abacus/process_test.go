package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Ctrl-C in the middle of a check leaves no key behind: a check always cleans.
func TestInterruptedCheckCleans(t *testing.T) {
	for kind, url := range clitest.Stores(t) {
		t.Run(kind, func(t *testing.T) {
			cmd, stderr := clitest.Process(t, "abacus", "check", "--store", url, "--json")
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			require.NoError(t, cmd.Start())
			clitest.AwaitStored(t, url, 1) // the first is a probe's, which goes by itself within seconds
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			require.Equal(t, cli.ExitInterrupted, clitest.ExitCode(t, cmd.Wait()))
			require.Equal(t, "abacus: interrupted\n", stderr.String())
			require.Contains(t, stdout.String(), `"error": "interrupted"`)
			require.Zero(t, try.To(clitest.Stored(url))(t))
		})
	}
}

// A server without answers soon leads to an error with the store's name.
func TestServerWithoutAnswers(t *testing.T) {
	for kind, server := range map[string]*servertest.Server{"redis": servertest.StartRedis(t), "memcached": servertest.StartMemcached(t)} {
		t.Run(kind, func(t *testing.T) {
			url := kind + "://" + server.Addr
			server.Pause()
			began := time.Now()
			cmd, stderr := clitest.Process(t, "abacus", "check", "--store", url)
			require.Equal(t, cli.ExitInput, clitest.ExitCode(t, cmd.Run()))
			require.Less(t, time.Since(began), time.Minute)
			require.Equal(t, "abacus: store "+url+": no answer within 1.5s\n", stderr.String())
			server.Resume()
		})
	}
}
