//go:build !race

package main

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/backtest"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// The fullest day of real traffic, counted under a loose rule: a tighter rule
// denies as many of the counted hits as of the log of the admitted ones.
func TestBacktestOfRealTraffic(t *testing.T) {
	log := eventlog.NewReader(openReal(t, "ciscoasa_vpn_2025.csv.gz"), "real traffic", eventlog.Auto)
	days := map[int64][]eventlog.Event{}
	var fullest int64
	for {
		e, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		day := e.At.Unix() / 86_400
		if days[day] = append(days[day], e); len(days[day]) > len(days[fullest]) {
			fullest = day
		}
	}
	var now time.Time
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	loose := limiter.Rule{Event: "login", Kind: "client", Limits: counter.MustLimits("900/h,2000/d")}
	tighter := loose
	tighter.Limits = counter.MustLimits("10/m,50/h,200/d")
	require.Empty(t, backtest.Looser(loose, tighter))
	lim, err := limiter.New(count, limiter.Config{Rules: []limiter.Rule{loose}})
	require.NoError(t, err)
	admitted := map[feature.Feature][]counter.Point{}
	for _, e := range days[fullest] {
		now = e.At
		feature := feature.New("client", e.Feature)
		v, err := lim.Allow(t.Context(), "login", feature)
		require.NoError(t, err)
		if v.Allowed {
			admitted[feature] = append(admitted[feature], counter.Point{Start: e.At, Count: 1})
		}
	}
	on, err := count.With(lim.Rules("login")[0].Ladder, nil)
	require.NoError(t, err)
	var hits int
	var byLog, byCounters int64
	for feature, log := range admitted {
		hits += len(log)
		n, err := backtest.Denied(t.Context(), tighter, feature, log)
		require.NoError(t, err)
		byLog += n
		usage, err := lim.Usage(t.Context(), "login", feature)
		require.NoError(t, err)
		history, err := backtest.History(t.Context(), on, usage[0].Key)
		require.NoError(t, err)
		n, err = backtest.Denied(t.Context(), tighter, feature, history)
		require.NoError(t, err)
		byCounters += n
	}
	require.Greater(t, byLog, int64(1000))
	require.Equal(t, byLog, byCounters)
	t.Logf("%d hits admitted of %d: the log denies %d, the counters %d", hits, len(days[fullest]), byLog, byCounters)
}
