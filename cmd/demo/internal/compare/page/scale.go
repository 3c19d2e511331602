package page

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
)

// around1 leaves values as they are, on an axis that shows 1 and all of them. A
// value so large that 1 would lie on the ground takes logarithms instead.
func around1(values []float64) ([]float64, float64, float64, plot.ConstantTicks) {
	low, high := min(1, slices.Min(values)), max(1, slices.Max(values))
	if high > 20 {
		return logFromZero(values)
	}
	step := roundUp(max(high-low, 0.5)*20) / 100
	low, high = max(0, low-step), high+step
	var ticks plot.ConstantTicks
	for i := math.Ceil(low / step); i*step <= high+step/1e6; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: number(i*step, decimals(step))})
	}
	return values, low, high, ticks
}

func decimals(step float64) int {
	switch {
	case step < 0.1:
		return 2
	case step < 1:
		return 1
	}
	return 0
}

// logFromZero takes logarithms; zero, which has none, gets a place of its own
// one decade below the least of the others.
func logFromZero(values []float64) ([]float64, float64, float64, plot.ConstantTicks) {
	least, most := math.Inf(1), math.Inf(-1)
	zeros := false
	for _, v := range values {
		if v > 0 {
			least, most = min(least, math.Log10(v)), max(most, math.Log10(v))
		} else {
			zeros = true
		}
	}
	if math.IsInf(least, 1) { // all are zero
		least, most = 0, 0
	}
	least = math.Ceil(least) - 1 // of whole decades, so that there is one below a lone value
	most = max(most, least+1)
	zero := least - 1
	scaled := make([]float64, len(values))
	for i, v := range values {
		scaled[i] = zero
		if v > 0 {
			scaled[i] = math.Log10(v)
		}
	}
	ticks := logTicks(least, most+0.1, func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) })
	low := least - 0.2
	if zeros {
		low = zero - 0.3
		ticks = append(plot.ConstantTicks{{Value: zero, Label: "0"}}, ticks...)
	}
	return scaled, low, most + 0.2, ticks
}
