package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
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

// replayReal replays a log and compares every decision with the test's own log of
// every hit.
func replayReal(t *testing.T, log io.Reader, cfg replay.Config) *replay.Report {
	t.Helper()
	cfg.Store = memory.New(memory.Config{})
	cfg.Ladder = tiers.For(cfg.Limits.Windows()...)
	judge := oracle.Judge{Ladder: cfg.Ladder, Skew: cfg.Skew}
	logs := map[counter.Key]*oracle.Log{}
	var events, differ int64
	cfg.Decided = func(e eventlog.Event, allowed bool) error {
		key := counter.Key{Event: e.Event, Feature: e.Feature}
		if logs[key] == nil {
			logs[key] = &oracle.Log{}
		}
		right, err := judge.Allowed(logs[key], e.At, 1, cfg.Limits)
		if allowed {
			logs[key].Add(e.At, 1)
		}
		events++
		if right != allowed {
			differ++
			if differ <= 5 {
				t.Errorf("event %d, %s at %s: allowed %t, the log of every hit says %t", events, key, e.At.UTC().Format(time.RFC3339Nano), allowed, right)
			}
		}
		return err
	}
	run, err := replay.New(cfg)
	require.NoError(t, err)
	report, err := run.Run(t.Context(), eventlog.NewReader(log, "real traffic", eventlog.Auto))
	require.NoError(t, err)
	require.Zero(t, differ, "decisions that are wrong")
	require.Equal(t, events, report.Events)
	require.Len(t, logs, report.Keys)
	require.Zero(t, report.WrongAdmitted)
	require.Zero(t, report.WrongDenied)
	for i, limit := range cfg.Limits {
		var worst int64
		for _, log := range logs {
			worst = max(worst, log.Worst(limit.Per))
		}
		require.LessOrEqual(t, worst, limit.Max, "in the worst window of %s", limit)
		require.Equal(t, worst, report.Worst[i].Admitted)
	}
	return report
}
