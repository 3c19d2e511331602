package page

import (
	"math"
	"slices"
	"strings"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// measure is a column of the tables, on a page and on a terminal.
type measure struct {
	Head, Unit string
	brief      string // the head on a terminal, in two lines; empty: not there
	of         func(a *algorithm) cell
}

type algorithm = compare.Algorithm

// cell is a value, its cost, of which less is better, and the rank in the column: "best",
// "worst" or nothing.
type cell struct {
	Value, Small string
	cost         float64
	Mark         string
}

// none is the cost of a value that is neither good nor bad.
const none = -1

// measures are the columns, those of the decisions first.
func measures(r *compare.Report) (decisions, costs []measure) {
	// The exact log is the reference: to equal the reference is no merit there.
	unlessExact := func(a *algorithm, c cell) cell {
		if a.Name == r.Reference {
			c.cost = none
		}
		return c
	}
	hits := func(n int64) cell {
		if n == 0 {
			return cell{Value: "0"}
		}
		return cell{Value: words.Commas(n), Small: text.Percent(n, r.Events), cost: float64(n)}
	}
	number := func(v float64, small string) cell { return cell{figure(v), text.Clean(small, 40), v, ""} }
	bytes := func(v float64, small string) cell { return cell{text.Number(v, 0), text.Clean(small, 40), v, ""} }
	told := func(s string) cell { return cell{text.Clean(s, 24), "", none, ""} }
	decisions = []measure{
		{"Promised", "at most", "at\nmost", func(a *algorithm) cell { return told(a.Worst) }},
		{"Fullest window", "× limit", "worst\nwindow", func(a *algorithm) cell {
			return cell{text.Number(a.WorstWindow, 2), "", max(0, a.WorstWindow-1), ""} // a window below the limit breaks no promise
		}},
		{"Admitted", "of exact", "admits\nof exact", func(a *algorithm) cell {
			return unlessExact(a, cell{text.Number(100*a.Relative, 1) + " %", words.Commas(a.Admitted), math.Abs(a.Relative - 1), ""})
		}},
		{"Wrongly admitted", "hits", "wrongly\nadmits", func(a *algorithm) cell { return hits(a.WronglyAdmitted) }},
		{"Wrongly denied", "hits", "wrongly\ndenies", func(a *algorithm) cell { return hits(a.WronglyDenied) }},
		{"Unlike the exact log", "hits", "not as\nexact", func(a *algorithm) cell { return unlessExact(a, hits(a.Differently)) }},
	}
	costs = []measure{
		{"Mean delay", "", "mean\ndelay", func(a *algorithm) cell { return told(briefly(a.MeanDelay)) }},
		{"Longest delay", "", "", func(a *algorithm) cell { return told(briefly(a.LongestDelay)) }},
		{"Memory of a key", "bytes", "bytes\na key", func(a *algorithm) cell { return bytes(a.BytesPerKey, a.BytesMeasured) }},
		{"Busiest key", "bytes", "busiest\nkey", func(a *algorithm) cell { return bytes(float64(a.BytesWorstKey), "") }},
		{"Reads", "per event", "\nreads", func(a *algorithm) cell { return number(a.ReadsPerEvent, a.Counted) }},
		{"Writes", "per event", "\nwrites", func(a *algorithm) cell { return number(a.WritesPerEvent, "") }},
		{"Round trips", "per event", "\ntrips", func(a *algorithm) cell { return number(a.TripsPerEvent, "") }},
		{"Time", "ns per event", "\n     ns", func(a *algorithm) cell { return cell{nanos(a.NanosPerEvent), "", a.NanosPerEvent, ""} }},
	}
	if !slices.ContainsFunc(r.Algorithms, func(a algorithm) bool { return a.TripsPerEvent > 0 }) {
		costs = slices.DeleteFunc(costs, func(m measure) bool { return m.Head == "Round trips" })
	}
	return decisions, costs
}

// table is all measures of all algorithms, for a page.
func table(r *compare.Report) (columns []measure, rows [][]cell) {
	columns = slices.Concat(measures(r))
	rows = make([][]cell, len(r.Algorithms))
	for _, m := range columns {
		costs := make([]float64, len(rows))
		for i := range rows {
			c := m.of(&r.Algorithms[i])
			rows[i], costs[i] = append(rows[i], c), c.cost
		}
		for i, mark := range marks(costs) {
			rows[i][len(rows[i])-1].Mark = mark
		}
	}
	return columns, rows
}

// marks tells the best and the worst costs. A cost common to more than a third of the
// rows does not stand out, and gets no mark.
func marks(costs []float64) []string {
	out := make([]string, len(costs))
	known := slices.DeleteFunc(slices.Clone(costs), func(v float64) bool { return v == none })
	if len(known) < 2 || slices.Min(known) == slices.Max(known) {
		return out
	}
	for mark, v := range map[string]float64{"best": slices.Min(known), "worst": slices.Max(known)} {
		others := slices.DeleteFunc(slices.Clone(known), func(c float64) bool { return c == v })
		for i, c := range costs {
			if c == v && len(known)-len(others) <= max(1, len(known)/3) {
				out[i] = mark
			}
		}
	}
	return out
}

// nanos formats a time in at most seven columns, with a unit from a millisecond on.
func nanos(ns float64) string {
	if ns < 999_999.5 {
		return text.Number(ns, 0)
	}
	return briefly(ns / 1e9)
}

// briefly is a delay with two or three digits, in the largest unit that it has.
func briefly(seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	if seconds < 1 {
		return text.Number(1000*seconds, 0) + "ms"
	}
	unit := 0
	for _, size := range []float64{60, 60, 24} {
		if seconds < 99.5 {
			break
		}
		seconds, unit = seconds/size, unit+1
	}
	return text.Number(seconds, 1) + "smhd"[unit:unit+1]
}

// figure is a small number with three significant digits.
func figure(f float64) string {
	decimals := 2
	for _, from := range []float64{9.995, 99.95} {
		if f >= from {
			decimals--
		}
	}
	return text.Number(f, decimals)
}

// title is the name of an algorithm in a table, with a star for the default ladder.
func title(a *compare.Algorithm) string {
	if a.Default {
		return strings.Replace(a.Name, "abacus ", "abacus* ", 1)
	}
	return a.Name
}
