package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// realData is the folder of real traffic, beside the project and not part of the
// project.
var realData = filepath.Join("..", "..", "..", "shared", "data")

func openReal(t *testing.T, name string) io.Reader {
	t.Helper()
	file, err := os.Open(filepath.Join(realData, name))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		t.Skipf("real traffic is not there: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

// errEnough ends a replay before the end of the log.
var errEnough = errors.New("enough")

// replayReal replays the first events of a log, or all if most is zero, in memory unless
// cfg has a store. The replay holds every decision to a log of all hits. The report has
// no times of the machine.
func replayReal(t *testing.T, log io.Reader, most int64, cfg replay.Config) *replay.Report {
	if cfg.Store == nil {
		cfg.Store = memory.New(memory.Config{})
	}
	cfg.Ladder = cfg.Limits.Ladder()
	var events int64
	cfg.Decided = func(eventlog.Event, bool) error {
		if events++; events == most {
			return errEnough
		}
		return nil
	}
	run := try.To(replay.New(cfg))(t)
	report, err := run.Run(t.Context(), &eventlog.Log{Source: log, Name: "real traffic", Format: eventlog.Auto})
	if !errors.Is(err, errEnough) {
		require.NoError(t, err)
	}
	require.Equal(t, events, report.Events)
	if report.Back <= cfg.Skew {
		require.Zero(t, report.WrongAdmitted)
		require.Zero(t, report.WrongDenied)
		for _, worst := range report.Worst {
			require.LessOrEqual(t, worst.Admitted, worst.Max, "in the worst window of %s", worst.Limit)
		}
	}
	report.Seconds, report.Rate = 0, 0
	return report
}
