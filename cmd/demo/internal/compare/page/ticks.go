package page

import (
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"

	"github.com/abacus-go/abacus/internal/dur"
)

// timeSteps are the distances that people expect between two marks of time.
var timeSteps = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	dur.Day, 2 * dur.Day, dur.Week, 2 * dur.Week, 30 * dur.Day, 90 * dur.Day, 365 * dur.Day, 3650 * dur.Day,
}

// timeTicks are at most about most marks at round times from from to to. A
// mark's value is in seconds after from. Times are told in from's own zone. A
// span of nothing has one mark.
func timeTicks(from, to time.Time, most int) plot.ConstantTicks {
	span := to.Sub(from)
	if span <= 0 {
		return plot.ConstantTicks{{Value: 0, Label: from.Format("15:04:05")}}
	}
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if span/s <= time.Duration(most) {
			step = s
			break
		}
	}
	y, m, d := from.Date()
	midnight := time.Date(y, m, d, 0, 0, 0, 0, from.Location())
	first := midnight.Add(from.Sub(midnight).Truncate(step))
	var ticks plot.ConstantTicks
	for i := range time.Duration(most + 2) {
		t := first.Add(i * step)
		if !t.Before(from) && !t.After(to) {
			ticks = append(ticks, plot.Tick{Value: t.Sub(from).Seconds(), Label: timeLabel(t, step)})
		}
	}
	return ticks
}

func timeLabel(t time.Time, step time.Duration) string {
	switch {
	case step >= 30*dur.Day:
		return t.Format("Jan 2006")
	case step >= dur.Day, step >= time.Hour && t.Hour() == 0:
		return t.Format("2 Jan")
	case step >= time.Minute:
		return t.Format("15:04")
	case step >= time.Second:
		return t.Format("15:04:05")
	}
	return t.Format("05.000")
}

// countTicks are marks at 0 and at whole multiples of unit, at most about most
// of them, up to top. A unit of 0 is none: the marks are at round numbers.
func countTicks(unit, top float64, most int) plot.ConstantTicks {
	if unit <= 0 {
		unit = 1
	}
	step := unit * float64(roundUp(top/unit/float64(most)))
	var ticks plot.ConstantTicks
	for v := 0.0; v <= top; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: short(v)})
	}
	return ticks
}

// roundUp is the next of 1, 2, 5, 10, 20, 50, ...
func roundUp(v float64) float64 {
	for unit := 1.0; unit < 1e18; unit *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if v <= n*unit {
				return n * unit
			}
		}
	}
	return 1e18
}

// logTicks are marks for an axis that carries the logarithms of its values,
// from low to high.
func logTicks(low, high float64, label func(float64) string) plot.ConstantTicks {
	steps := []float64{1}
	switch {
	case high-low <= 1.5:
		steps = []float64{1, 2, 5}
	case high-low <= 3:
		steps = []float64{1, 3}
	}
	apart := max(1, math.Ceil((high-low)/8))
	var ticks plot.ConstantTicks
	for decade := math.Floor(low); decade <= high; decade += apart {
		for _, s := range steps {
			if v := decade + math.Log10(s); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: label(s * math.Pow(10, decade))})
			}
		}
	}
	return ticks
}

// short is v in few characters: 950, 12k, 1.5M.
func short(v float64) string {
	for _, unit := range []struct {
		from, size float64
		letter     string
	}{{1e18, 1e18, "E"}, {1e15, 1e15, "P"}, {1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}} {
		if v >= unit.from {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.letter
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
