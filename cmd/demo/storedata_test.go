//go:build !race

// The race detector sees the same paths in backendtest; these replays would keep
// the detector busy for minutes.

package main

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

var whole = flag.Bool("whole", false, "replay all of the real traffic on every store (some ten minutes)")

// On every store every decision is right, and the report is the report in memory.
func TestRealTrafficOnStores(t *testing.T) {
	for _, store := range []struct {
		url  string
		most int64 // events of a log, without -whole
	}{
		{"redis://" + servertest.Redis(t), int64(long.Rounds(1_000, 10_000))},
		{"memcached://" + servertest.Memcached(t, "-m", "1024") + "," + servertest.Memcached(t, "-m", "1024"), int64(long.Rounds(1_000, 4_000))},
	} {
		name := try.To(stores.Parse(store.url))(t)
		opened := try.To(stores.Open(name, 30*time.Second))(t)
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
			if row.skew > 0 {
				most *= 2 // less has no denials
			}
			if *whole {
				most = 0
			}
			t.Run(name.Kind.String()+" "+strings.TrimSuffix(row.log, ".csv.gz")+" "+row.limits, func(t *testing.T) {
				cfg := replay.Config{Limits: counter.MustLimits(row.limits), Skew: row.skew}
				here := replayReal(t, openReal(t, row.log), most, cfg)
				cfg.Store, cfg.Prefix = opened.Store, stores.Namespace("test")
				require.Equal(t, here, replayReal(t, openReal(t, row.log), most, cfg))
				require.Positive(t, here.Admitted)
				require.Positive(t, here.Denied)
				try.To(opened.Clean(context.WithoutCancel(t.Context()), cfg.Prefix))(t)
			})
		}
	}
}
