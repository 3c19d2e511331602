package measure

import (
	"runtime"
	"runtime/debug"
	"slices"
)

// Series is the measurement of a contestant: a value for each round.
type Series []float64

// Median is the value in the middle.
func (s Series) Median() float64 {
	v := slices.Sorted(slices.Values(s))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Least is the smallest value.
func (s Series) Least() float64 { return slices.Min(s) }

// Greatest is the largest value.
func (s Series) Greatest() float64 { return slices.Max(s) }

// Quantile is the value that the part q of all is not above.
func (s Series) Quantile(q float64) float64 {
	v := slices.Sorted(slices.Values(s))
	return v[min(int(q*float64(len(v))), len(v)-1)]
}

// Spread is the median, with the least and the greatest: "175 (174-180)".
func (s Series) Spread() string {
	return Num(s.Median()) + " (" + Num(s.Least()) + "-" + Num(s.Greatest()) + ")"
}

// To is the ratio of each round to that of another contestant in the same
// round: a machine whose speed drifts from round to round is in both.
func (s Series) To(base Series) Series {
	ratios := make(Series, len(s))
	for r := range s {
		ratios[r] = s[r] / base[r]
	}
	return ratios
}

// Fastest has the least of each round.
func Fastest(all ...Series) Series {
	least := slices.Clone(all[0])
	for _, s := range all[1:] {
		for r := range s {
			least[r] = min(least[r], s[r])
		}
	}
	return least
}

// Turns lets n contestants take turns, round after round, and calls turn for each.
// Each round begins with another contestant: the order is no advantage.
func Turns(rounds, n int, turn func(contestant, round int)) {
	for round := range rounds {
		for i := range n {
			turn((i+round)%n, round)
		}
	}
}

// Uncollected is Turns with a garbage collection before each round and none
// within: a collection looks at what all contestants hold, and would come in the
// turn of whoever happens to allocate.
func Uncollected(rounds, n int, turn func(contestant, round int)) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	Turns(rounds, n, func(contestant, round int) {
		if contestant == round%n {
			runtime.GC()
		}
		turn(contestant, round)
	})
}
