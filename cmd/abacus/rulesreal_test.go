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
	"github.com/abacus-go/abacus/internal/testkit/try"
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
	unzipped := try.To(gzip.NewReader(file))(t)
	lines := try.To(csv.NewReader(unzipped).ReadAll())(t)
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
		at := try.To(strconv.ParseInt(line[0], 10, 64))(t)
		h := hit{time.UnixMicro(at), line[2]}
		day := h.at.Unix() / 86_400
		if days[day] = append(days[day], h); len(days[day]) > len(days[fullest]) {
			fullest = day
		}
	}
	var now time.Time
	count := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }}))(t)
	loose := limiter.Rule{Event: "login", Kind: "client", Limits: counter.MustLimits("900/h,2000/d")}
	tighter := loose
	tighter.Limits = counter.MustLimits("10/m,50/h,200/d")
	require.Empty(t, looserRule(loose, tighter))
	lim := try.To(limiter.New(count, limiter.Config{Rules: []limiter.Rule{loose}}))(t)
	admitted := map[feature.Feature][]counter.Point{}
	for _, h := range days[fullest] {
		now = h.at
		feature := feature.New("client", h.feature)
		v := try.To(lim.Allow(t.Context(), "login", feature))(t)
		if v.Allowed {
			admitted[feature] = append(admitted[feature], counter.Point{Start: h.at, Count: 1})
		}
	}
	on := try.To(count.With(lim.Rules("login")[0].Ladder, nil))(t)
	var hits int
	var byLog, byCounters int64
	for feature, log := range admitted {
		hits += len(log)
		n := try.To(deniedOf(t.Context(), tighter, feature, log))(t)
		byLog += n
		usage := try.To(lim.Usage(t.Context(), "login", feature))(t)
		history := try.To(historyOf(t.Context(), on, usage[0].Key))(t)
		n = try.To(deniedOf(t.Context(), tighter, feature, history))(t)
		byCounters += n
	}
	require.Greater(t, byLog, int64(1000))
	require.Equal(t, byLog, byCounters)
	t.Logf("%d hits admitted of %d: the log denies %d, the counters %d", hits, len(days[fullest]), byLog, byCounters)
}
