//go:build !race

// One goroutine replays the logs: the race detector would find nothing that the
// smaller replays do not show it, and would need a minute more.

package main

import (
	"bufio"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
)

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
		{"heralding_2025.csv.gz", "5/s,1000/7d", 82_393, 82_342, 6},
		{"erddap_nginx_2024.csv.gz", "10/m,50/h,100/d", 10_479, 4_363, 0},
		{"erddap_nginx_2024.csv.gz", "20/d", 10_479, 2_998, 0},
		{"erddap_nginx_2024.csv.gz", "5/s,1000/7d", 10_479, 7_357, 0},
	} {
		t.Run(strings.TrimSuffix(row.log, ".csv.gz")+" "+row.limits, func(t *testing.T) {
			if row.events > 200_000 {
				long.Only(t, "a large log: the small ones have all limits")
			}
			report := replayReal(t, openReal(t, row.log), 0, replay.Config{Limits: counter.MustLimits(row.limits)})
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
	long.Only(t, "half a million events: scripts against the oracle have clocks that differ")
	report := replayReal(t, openReal(t, driftingLog), 0, replay.Config{Limits: counter.MustLimits("10/m,50/h,100/d"), Skew: driftingSkew})
	require.EqualValues(t, 451_581, report.Events)
	require.EqualValues(t, 406_329, report.Admitted)
	require.Equal(t, "23m", report.RunsBack)
}

// The same attackers, each under a single limit at all sensors together: now nine
// clocks stamp the same key.
func TestDriftingClocksOnOneKey(t *testing.T) {
	long.Only(t, "half a million events: scripts against the oracle have clocks that differ")
	zipped := openReal(t, driftingLog)
	log, out := io.Pipe()
	defer log.Close()
	go func() { out.CloseWithError(oneEvent(out, zipped)) }()
	report := replayReal(t, log, 0, replay.Config{Limits: counter.MustLimits("10/m,50/h,100/d"), Skew: driftingSkew})
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
