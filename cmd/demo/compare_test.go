package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// On real traffic the exact log is exact, abacus decides as in a replay, and no
// limiter breaks its promise.
func TestCompareRealTraffic(t *testing.T) {
	const name = "erddap_nginx_2024.csv.gz"
	limits := counter.MustLimits("20/d,50/h")
	log := try.To(compare.Load(t.Context(), &eventlog.Log{Source: openReal(t, name), Name: name, Format: eventlog.Auto}))(t)
	store := try.To(stores.Open(stores.Name{}, time.Second))(t)
	run := try.To(compare.New(compare.Config{Limits: limits, Store: store}))(t)
	reports := try.To(run.Run(t.Context(), log))(t)
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
	require.Equal(t, "sliding log", r.Growth.Lines[0].Name)
}
