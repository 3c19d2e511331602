package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// Every decision is determined by the log, the limits and the ladder; so are the
// numbers below.
func TestRealTraffic(t *testing.T) {
	for _, row := range []struct {
		log      string
		limits   string
		events   int64
		admitted int64
		grid     int64 // denied for the width of a bucket
	}{
		{"ciscoasa_vpn_2025.csv.gz", "10/m,50/h,100/d", 260_505, 200_190, 8},
		{"ciscoasa_vpn_2025.csv.gz", "20/d", 260_505, 53_842, 5},
		{"ciscoasa_vpn_2025.csv.gz", "5/s,1000/7d", 260_505, 250_332, 0},
		{"heralding_2025.csv.gz", "10/m,50/h,100/d", 82_393, 60_659, 9},
		{"heralding_2025.csv.gz", "20/d", 82_393, 16_780, 1},
		{"heralding_2025.csv.gz", "5/s,1000/7d", 82_393, 82_341, 7},
		{"erddap_nginx_2024.csv.gz", "10/m,50/h,100/d", 10_479, 4_363, 0},
		{"erddap_nginx_2024.csv.gz", "20/d", 10_479, 2_998, 0},
		{"erddap_nginx_2024.csv.gz", "5/s,1000/7d", 10_479, 7_357, 0},
	} {
		t.Run(strings.TrimSuffix(row.log, ".csv.gz")+" "+row.limits, func(t *testing.T) {
			report := replayReal(t, openReal(t, row.log), replay.Config{Limits: counter.MustLimits(row.limits)})
			require.Equal(t, row.events, report.Events)
			require.Equal(t, row.admitted, report.Admitted)
			require.Equal(t, row.grid, report.GridDenied)
		})
	}
}

// Nine sensors whose clocks are up to 1,380 s apart.
const (
	driftingLog  = "aws_honeypot_2013.csv.gz"
	driftingSkew = 1440 * time.Second
)

func TestDriftingClocks(t *testing.T) {
	report := replayReal(t, openReal(t, driftingLog), replay.Config{Limits: counter.MustLimits("10/m,50/h,100/d"), Skew: driftingSkew})
	require.EqualValues(t, 451_581, report.Events)
	require.EqualValues(t, 406_329, report.Admitted)
	require.Equal(t, "23m", report.RunsBack)
}

// The same attackers, each under a single limit at all sensors together: now nine
// clocks stamp the same key.
func TestDriftingClocksOnOneKey(t *testing.T) {
	zipped := openReal(t, driftingLog)
	log, out := io.Pipe()
	defer log.Close()
	go func() { out.CloseWithError(oneEvent(out, zipped)) }()
	report := replayReal(t, log, replay.Config{Limits: counter.MustLimits("10/m,50/h,100/d"), Skew: driftingSkew})
	require.EqualValues(t, 451_581, report.Events)
	require.Equal(t, 69_602, report.Keys)
}

// oneEvent copies a compressed log with all events renamed to attack.
func oneEvent(w io.Writer, zipped io.Reader) error {
	log, err := gzip.NewReader(zipped)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	in := bufio.NewScanner(log)
	for in.Scan() {
		fields := strings.Split(in.Text(), ",")
		if fields[1] != "event" {
			fields[1] = "attack"
		}
		if _, err := out.WriteString(strings.Join(fields, ",") + "\n"); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return err
	}
	return out.Flush()
}
