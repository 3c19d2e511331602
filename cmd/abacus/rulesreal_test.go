//go:build !race

package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// readReal reads a log of real traffic, lines of time_us, event and feature, from a folder
// next to the project that is not part of it.
func readReal(t *testing.T, name string) [][]string {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "..", "shared", "data", name))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		t.Skipf("real traffic is not there: %v", err)
	}
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	lines, err := csv.NewReader(unzipped).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"time_us", "event", "feature"}, lines[0])
	return lines[1:]
}

// The fullest day of real traffic, counted under a loose rule: a tighter rule
// denies as many of the counted hits as of the log of the admitted ones.
func TestBacktestOfRealTraffic(t *testing.T) {
	type hit struct {
		at      time.Time
		feature string
	}
	days := map[int64][]hit{}
	var fullest int64
	for _, line := range readReal(t, "ciscoasa_vpn_2025.csv.gz") {
		at, err := strconv.ParseInt(line[0], 10, 64)
		require.NoError(t, err)
		h := hit{time.UnixMicro(at), line[2]}
		day := h.at.Unix() / 86_400
		if days[day] = append(days[day], h); len(days[day]) > len(days[fullest]) {
			fullest = day
		}
	}
	var now time.Time
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	loose := limiter.Rule{Event: "login", Kind: "client", Limits: counter.MustLimits("900/h,2000/d")}
	tighter := loose
	tighter.Limits = counter.MustLimits("10/m,50/h,200/d")
	require.Empty(t, looserRule(loose, tighter))
	lim, err := limiter.New(count, limiter.Config{Rules: []limiter.Rule{loose}})
	require.NoError(t, err)
	admitted := map[feature.Feature][]counter.Point{}
	for _, h := range days[fullest] {
		now = h.at
		feature := feature.New("client", h.feature)
		v, err := lim.Allow(t.Context(), "login", feature)
		require.NoError(t, err)
		if v.Allowed {
			admitted[feature] = append(admitted[feature], counter.Point{Start: h.at, Count: 1})
		}
	}
	on, err := count.With(lim.Rules("login")[0].Ladder, nil)
	require.NoError(t, err)
	var hits int
	var byLog, byCounters int64
	for feature, log := range admitted {
		hits += len(log)
		n, err := deniedOf(t.Context(), tighter, feature, log)
		require.NoError(t, err)
		byLog += n
		usage, err := lim.Usage(t.Context(), "login", feature)
		require.NoError(t, err)
		history, err := historyOf(t.Context(), on, usage[0].Key)
		require.NoError(t, err)
		n, err = deniedOf(t.Context(), tighter, feature, history)
		require.NoError(t, err)
		byCounters += n
	}
	require.Greater(t, byLog, int64(1000))
	require.Equal(t, byLog, byCounters)
	t.Logf("%d hits admitted of %d: the log denies %d, the counters %d", hits, len(days[fullest]), byLog, byCounters)
}
