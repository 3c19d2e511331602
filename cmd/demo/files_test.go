package main

import (
	"bufio"
	"encoding/csv"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// A decision is a line, and a key with a comma is in quotes. The former content of
// the file goes.
func TestDecisions(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out.csv")
	require.NoError(t, os.WriteFile(name, make([]byte, 1000), 0o666))
	d := try.To(createDecisions(name, nil))(t)
	require.NoError(t, d.decided(eventlog.Event{At: time.Unix(10, 0), Event: "login", Feature: "ann"}, false))
	require.NoError(t, d.decided(eventlog.Event{At: time.UnixMicro(10_200_000), Event: "login", Feature: "b,b"}, true))
	require.NoError(t, d.close())
	text := try.To(os.ReadFile(name))(t)
	require.Equal(t, "time_us,event,feature,allowed\n10000000,login,ann,0\n10200000,login,\"b,b\",1\n", string(text))
}

// A file that is full stops the replay, and is told once more at the end.
func TestDecisionsThatCannotBeWritten(t *testing.T) {
	file, err := os.Open(os.DevNull) // for reading only
	require.NoError(t, err)
	out := &output{file: file, flag: "--decisions"}
	d := decisions{csv.NewWriter(bufio.NewWriterSize(out, 1<<16)), out}
	for range 10_000 {
		if err = d.decided(eventlog.Event{Event: "a", Feature: "b"}, true); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "--decisions: write ")
	require.Equal(t, err, d.close())
}
