//go:build !race

// The race detector sees the same paths in backendtest; these replays would keep
// the detector busy for minutes.

package main

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/tiers"
)

var whole = flag.Bool("whole", false, "replay all of the real traffic on every store (some ten minutes)")

// errEnough ends a replay before the end of the log.
var errEnough = errors.New("enough")

// decide replays the first events of a log, or all events if most is zero, and
// tells each decision in turn.
func decide(t *testing.T, log string, most int, cfg replay.Config, decided func(i int, e eventlog.Event, allowed bool)) *replay.Report {
	t.Helper()
	cfg.Ladder = tiers.For(cfg.Limits.Windows()...)
	i := 0
	cfg.Decided = func(e eventlog.Event, allowed bool) error {
		decided(i, e, allowed)
		if i++; i == most {
			return errEnough
		}
		return nil
	}
	run, err := replay.New(cfg)
	require.NoError(t, err)
	report, err := run.Run(t.Context(), eventlog.NewReader(openReal(t, log), "real traffic", eventlog.Auto))
	if !errors.Is(err, errEnough) {
		require.NoError(t, err)
	}
	return report
}

// On every store every decision is the decision in memory, and the right
// decision.
func TestRealTrafficOnStores(t *testing.T) {
	for _, store := range []struct {
		url  string
		most int // events of a log, without -whole
	}{
		{"redis://" + servertest.Redis(t), 10_000},
		{"memcached://" + servertest.Memcached(t, "-m", "1024") + "," + servertest.Memcached(t, "-m", "1024"), 4_000},
	} {
		name, err := stores.Parse(store.url)
		require.NoError(t, err)
		opened, err := stores.Open(name, 30*time.Second)
		require.NoError(t, err)
		t.Cleanup(func() { opened.Close() })
		for _, row := range []struct {
			log, limits string
			skew        time.Duration
			long        bool // only with -whole
		}{
			{"erddap_nginx_2024.csv.gz", "10/m,50/h,100/d", 0, false},
			{"erddap_nginx_2024.csv.gz", "20/d", 0, false},
			{"erddap_nginx_2024.csv.gz", "5/s,1000/7d", 0, false},
			{"heralding_2025.csv.gz", "10/m,50/h,100/d", 0, false},
			{"heralding_2025.csv.gz", "20/d", 0, true},
			{"heralding_2025.csv.gz", "5/s,1000/7d", 0, true},
			{"ciscoasa_vpn_2025.csv.gz", "10/m,50/h,100/d", 0, true},
			{"ciscoasa_vpn_2025.csv.gz", "20/d", 0, false},
			{"ciscoasa_vpn_2025.csv.gz", "5/s,1000/7d", 0, true},
			{driftingLog, "10/m,50/h,100/d", driftingSkew, false},
			{driftingLog, "10/m,50/h,100/d", 0, true},
		} {
			if row.long && !*whole {
				continue
			}
			most := store.most
			if *whole {
				most = 0
			}
			t.Run(name.Kind.String()+" "+strings.TrimSuffix(row.log, ".csv.gz")+" "+row.limits, func(t *testing.T) {
				cfg := replay.Config{Limits: counter.MustLimits(row.limits), Skew: row.skew}
				var right []bool
				cfg.Store = memory.New(memory.Config{})
				decide(t, row.log, most, cfg, func(_ int, _ eventlog.Event, allowed bool) { right = append(right, allowed) })
				differ := 0
				cfg.Store, cfg.Prefix = opened.Store, stores.Namespace("test")
				report := decide(t, row.log, most, cfg, func(i int, e eventlog.Event, allowed bool) {
					if i < len(right) && right[i] == allowed {
						return
					}
					if differ++; differ <= 5 {
						t.Errorf("event %d, %s of %s at %s: allowed %t, in memory it is not so", i+1, e.Event, e.Feature, e.At.UTC().Format(time.RFC3339Nano), allowed)
					}
				})
				require.Zero(t, differ)
				require.EqualValues(t, len(right), report.Events)
				require.Positive(t, report.Admitted)
				require.Positive(t, report.Denied)
				_, err := opened.Clean(context.WithoutCancel(t.Context()), cfg.Prefix)
				require.NoError(t, err)
			})
		}
	}
}
