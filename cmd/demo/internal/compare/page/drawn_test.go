package page

import (
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
)

// TestAbove: what is filled begins and ends on the limit, wherever the curve
// crosses it.
func TestAbove(t *testing.T) {
	for _, c := range []struct {
		name  string
		curve []point
		want  [][]point
	}{
		{"never", []point{{0, 1}, {1, 10}, {2, 3}}, nil},
		{"a peak", []point{{0, 0}, {2, 20}, {4, 0}}, [][]point{{{1, 10}, {2, 20}, {3, 10}}}},
		{"from the beginning", []point{{0, 20}, {1, 20}, {2, 0}}, [][]point{{{0, 10}, {0, 20}, {1, 20}, {1.5, 10}}}},
		{"to the end", []point{{0, 0}, {1, 20}}, [][]point{{{0.5, 10}, {1, 20}, {1, 10}}}},
		{"twice", []point{{0, 20}, {1, 0}, {2, 20}}, [][]point{{{0, 10}, {0, 20}, {0.5, 10}}, {{1.5, 10}, {2, 20}, {2, 10}}}},
		{"touching", []point{{0, 20}, {1, 10}, {2, 20}}, [][]point{{{0, 10}, {0, 20}, {1, 10}}, {{1, 10}, {2, 20}, {2, 10}}}},
		{"nothing", nil, nil},
	} {
		require.Equal(t, c.want, above(c.curve, 10), c.name)
	}
}

// TestThin: a peak of one point among many survives, and order does.
func TestThin(t *testing.T) {
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	times, counts := make([]time.Time, 100_000), make([]int64, 100_000)
	for i := range times {
		times[i], counts[i] = begin.Add(time.Duration(i)*time.Second), 50
	}
	counts[77_777], counts[77_790], counts[3] = 99, 1, -5
	got := thin(times, counts)
	require.LessOrEqual(t, len(got), curvePoints+2)
	require.Contains(t, got, point{77_777, 99})
	require.Contains(t, got, point{77_790, 1})
	require.Contains(t, got, point{3, 0}, "no count is below nothing")
	for i := 1; i < len(got); i++ {
		require.Less(t, got[i-1].at, got[i].at)
	}
	require.Len(t, thin(times[:500], counts[:500]), 500, "few points are all drawn")
}

func TestShades(t *testing.T) {
	require.Equal(t, []int64{1}, shades(1))
	require.Equal(t, []int64{1, 2, 3, 4}, shades(4))
	require.Equal(t, []int64{1, 3, 5, 11, 25, 54}, shades(118))
	require.Len(t, shades(math.MaxInt64), heatSteps)
	from := shades(118)
	for count, step := range map[int64]int{-3: -1, 0: -1, 1: 0, 2: 0, 3: 1, 10: 2, 11: 3, 118: 5, 1e9: 5} {
		require.Equal(t, step, shadeOf(count, from), count)
	}
	for n := 1; n <= heatSteps; n++ {
		for s := 1; s < n; s++ {
			require.Less(t, shadeInk(s-1, n), shadeInk(s, n))
		}
		require.Less(t, int(shadeInk(n-1, n)), inks)
	}
}

func TestFullest(t *testing.T) {
	hits := make([][60]int64, 10)
	hits[4][3], hits[6][59], hits[9][0] = 5, 5, 9
	require.Equal(t, 4, fullest(hits, 3))
	require.Equal(t, 9, fullest(hits, 1))
	require.Equal(t, 0, fullest(hits, 20))
	require.Equal(t, 0, fullest(nil, 20))
}

// TestScales: all values are on the axis, zero too where the axis is
// logarithmic, and order is kept.
func TestScales(t *testing.T) {
	for _, c := range []struct {
		name   string
		scale  func([]float64) ([]float64, float64, float64, plot.ConstantTicks)
		values []float64
		labels []string
	}{
		{"windows", around1, []float64{1, 1.98, 1.3}, []string{"0.8", "1.0", "1.2", "1.4", "1.6", "1.8", "2.0"}},
		{"all at the limit", around1, []float64{1, 1}, []string{"0.9", "1.0", "1.1"}},
		{"nothing admitted", around1, []float64{0, 0}, []string{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2"}},
		{"far beyond", around1, []float64{1, 500}, []string{"0.1", "1", "10", "100"}},
		{"shares", logFromZero, []float64{0, 0.02, 3}, []string{"0", "0.01", "0.03", "0.1", "0.3", "1", "3"}},
		{"no share is zero", logFromZero, []float64{100, 100}, []string{"10", "20", "50", "100"}},
		{"all are", logFromZero, []float64{0, 0}, []string{"0", "0.1", "0.2", "0.5", "1"}},
	} {
		scaled, low, high, ticks := c.scale(c.values)
		var labels []string
		for _, tick := range ticks {
			labels = append(labels, tick.Label)
		}
		require.Equal(t, c.labels, labels, c.name)
		for i := range scaled {
			require.Greater(t, high, scaled[i], c.name)
			require.LessOrEqual(t, low, scaled[i], c.name)
			if c.values[i] == 0 {
				require.Equal(t, ticks[0].Value, scaled[i], "%s: zero is where its mark is", c.name)
			}
			for j := range scaled {
				require.Equal(t, c.values[i] < c.values[j], scaled[i] < scaled[j], c.name)
			}
		}
	}
}

func TestUnbeaten(t *testing.T) {
	require.Equal(t, []string{"small", "exact", "between", "twin"}, unbeaten([]dot{
		{name: "small", x: 1, wrong: 9}, {name: "exact", x: 9, wrong: 0}, {name: "between", x: 4, wrong: 4}, {name: "twin", x: 4, wrong: 4},
		{name: "beaten", x: 5, wrong: 5}, {name: "as small", x: 1, wrong: 10}, {name: "as exact", x: 10, wrong: 0},
	}))
}

// TestTheLimitIsALine: dots on it are exact, and so are those below it, on a
// logarithmic axis too.
func TestTheLimitIsALine(t *testing.T) {
	r := &compare.Report{Algorithms: []compare.Algorithm{
		{Name: "never full", WorstWindow: 0.5, BytesPerKey: 100}, {Name: "full", WorstWindow: 1, BytesPerKey: 50}, {Name: "beyond", WorstWindow: 1.5, BytesPerKey: 70},
	}}
	for range 2 {
		c, err := newCost(r, worstAxis)
		require.NoError(t, err)
		require.Contains(t, c.Caption, "less beyond the limit than full.")
		at := regexp.MustCompile(`d="M[\d.]+,([\d.]+)L[\d.]+,[\d.]+"[^>]+stroke-dasharray`).FindStringSubmatch(string(c.Drawings[0]))
		require.NotNil(t, at)
		require.Regexp(t, `d="M[\d.]+,`+at[1]+`[LA][^"]*Z" class="f-line"`, string(c.Drawings[0]), "a dot is on it")
		r.Algorithms[2].WorstWindow = 500
	}
}

func TestTogether(t *testing.T) {
	require.Equal(t, [][]int{{0, 2, 4}, {1}, {3}}, together([]vg.Point{{X: 10, Y: 10}, {X: 10, Y: 16}, {X: 12, Y: 9}, {X: 90, Y: 10}, {X: 10, Y: 10}}))
	dots := []dot{{number: 1, name: "a"}, {number: 2, name: "b"}, {number: 3, name: "c"}}
	require.Equal(t, []string{"1 a", "3 c"}, wideCost.nameOf(dots, []int{0, 2}))
	require.Equal(t, []string{"1, 3"}, narrowCost.nameOf(dots, []int{0, 2}))
}

func TestRoundUp(t *testing.T) {
	for v, want := range map[float64]float64{-1: 1, 0: 1, 1: 1, 1.5: 2, 3: 5, 7: 10, 21: 50, 1e300: 1e18} {
		require.Equal(t, want, roundUp(v))
	}
	require.Len(t, countTicks(100, 212, 3), 3)
	require.LessOrEqual(t, len(countTicks(-1, math.MaxInt64, 3)), 10)
	require.LessOrEqual(t, len(logTicks(-300, 300, short)), 10)
}
