package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// On real traffic the exact log is exact, abacus decides as in a replay, and no
// limiter breaks its promise.
func TestCompareRealTraffic(t *testing.T) {
	const name = "erddap_nginx_2024.csv.gz"
	limits := counter.MustLimits("20/d,50/h")
	log, err := compare.Load(t.Context(), eventlog.NewReader(openReal(t, name), name, eventlog.Auto), name, false, nil)
	require.NoError(t, err)
	store, err := stores.Open(stores.Name{}, time.Second)
	require.NoError(t, err)
	run, err := compare.New(compare.Config{Limits: limits, Store: store})
	require.NoError(t, err)
	reports, err := run.Run(t.Context(), log)
	require.NoError(t, err)
	for i, r := range reports {
		require.NoError(t, r.Broken())
		replayed := replayReal(t, openReal(t, name), 0, replay.Config{Limits: limits[i : i+1]})
		require.Equal(t, replayed.Events, r.Events)
		require.Equal(t, replayed.Keys, r.Keys)
		promised := map[string]float64{"N": 1, "N+1": 1 + 1/float64(limits[i].Max), "2N-1": 2, "2N": 2}
		onDefault := 0
		for _, a := range r.Algorithms {
			require.LessOrEqual(t, a.WorstWindow, promised[a.Worst], a.Name)
			require.Positive(t, a.WorstWindow, a.Name)
			require.Positive(t, a.BytesPerKey, a.Name)
			if a.Name == "abacus "+tiers.Default.String() {
				onDefault++
				require.Equal(t, replayed.Admitted, a.Admitted)
				require.Equal(t, replayed.GridDenied, a.WronglyDenied)
				require.Equal(t, replayed.Worst[0].Ratio, a.WorstWindow)
			}
		}
		require.Equal(t, 1, onDefault)
	}
}

// The output of --json is the reports, and no more.
func TestCompareJSON(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log.csv")
	require.NoError(t, os.WriteFile(name, []byte("time_us,event,feature\n1772494199000000,<b>,\x1b[2J\n1772494199000001,<b>,\x1b[2J\n"), 0o666))
	cmd, stderr := clitest.Process(t, "demo", "compare", "--limits", "1/m,9/d", "--json", name)
	out, err := cmd.Output()
	require.NoError(t, err, stderr)
	var got compared
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&got))
	require.Len(t, got.Reports, 2)
	r := got.Reports[0]
	require.Equal(t, name, r.Log)
	require.Equal(t, "1/m", r.Limit)
	require.EqualValues(t, 2, r.Events)
	require.EqualValues(t, 1, r.Algorithms[0].Admitted)
	require.Equal(t, "<b> of \x1b[2J", r.Curve.Key)
	require.EqualValues(t, 2, r.Heat.Hits[0][29])
}

// The table keeps to its width, whatever the numbers.
func TestComparisonFits(t *testing.T) {
	for _, big := range []bool{false, true} {
		a := compare.Algorithm{Name: "abacus 1s:366d, 1m:366d, 1h:366d, 1d:366d", Source: "abacus", Worst: "N", Relative: 1, WorstWindow: 1, Counted: "commands", NanosPerEvent: 54_321}
		if big {
			a.Relative, a.WorstWindow = 12.5, 1000
			a.WronglyAdmitted, a.WronglyDenied, a.Differently = 12_345_678, 12_345_678, 12_345_678
			a.BytesPerKey, a.BytesWorstKey, a.ReadsPerEvent, a.NanosPerEvent = 12_345_678, 12_345_678, 8_900, 12_345_678
		}
		r := &compare.Report{
			Log: strings.Repeat("a long name/", 20), Limit: "5/d", Store: "redis://h", Reference: "sliding log", Events: 1_000_000, Keys: 9,
			Algorithms: []compare.Algorithm{{Name: "sliding log", Source: "classic", Worst: "N", Relative: 1, WorstWindow: 1}, a},
			LeftOut:    []compare.LeftOut{{Name: "textbook tiers", Why: "Per is 1500ms, want whole seconds"}},
		}
		for _, width := range []int{300, 120, 100, 80, 64} {
			if big && width == 64 {
				continue // ten million wrong decisions have no room there
			}
			for _, kind := range []stores.Kind{stores.InMemory, stores.OnRedis} {
				lines := strings.Split(string(renderComparison([]*compare.Report{r, r}, kind, width)), "\n")
				tables := 0
				for _, line := range lines {
					require.LessOrEqual(t, utf8.RuneCountInString(line), width, "%q", line)
					require.Equal(t, strings.TrimRight(line, " "), line)
					if strings.HasPrefix(line, "sliding log ") {
						tables++
					}
				}
				want := 4 // two for each limit
				if width >= 120 && !big || width == 300 {
					want = 2
				}
				require.Equal(t, want, tables, "%d columns", width)
			}
		}
	}
}

// The speed of the machine does not change the form of the table.
func TestComparisonOnASlowMachine(t *testing.T) {
	form := func(width int, nanos float64) (widths []int) {
		r := &compare.Report{Limit: "5/d", Store: "redis://h", Reference: "sliding log", Events: 1_000_000, Keys: 9, Algorithms: []compare.Algorithm{
			{Name: "abacus 1s:1d, 1m:1d, 1h:1d", Source: "abacus", Worst: "N", BytesPerKey: 12_345_678, BytesWorstKey: 12_345_678, NanosPerEvent: nanos}}}
		for line := range strings.Lines(string(renderComparison([]*compare.Report{r}, stores.OnRedis, width))) {
			widths = append(widths, utf8.RuneCountInString(line))
		}
		return widths
	}
	for width := 80; width <= 150; width++ {
		for nanos := 0.5; nanos < 1e14; nanos *= 3 {
			require.Equal(t, form(width, 1), form(width, nanos), "%d cli.Columns, %f ns", width, nanos)
		}
	}
}
