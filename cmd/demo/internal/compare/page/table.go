package page

import (
	"math"
	"slices"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// table is all measures of all algorithms.
type table struct {
	Groups []group
	Rows   []row
	Notes  []fact
}

// group is adjacent columns under a common head.
type group struct {
	Head    string
	Columns []column
}

// column is a measure in the table.
type column struct {
	Head, Unit string

	show func(a *compare.Algorithm) (value, small string)
	cost func(a *compare.Algorithm) float64 // less is better, below zero is no cost; nil if neither is
}

type row struct {
	Number             int
	Name, Source, Kind string // Kind is the source as a class: "ours" or "line"
	Reference          bool
	Cells              []cell
}

// cell is a value and the value's rank in the column: "best", "worst" or nothing.
type cell struct {
	Value, Small, Mark string
	First              bool
}

func groupsFor(r *compare.Report) []group {
	measure := func(head, unit string, decimals int, of func(a *compare.Algorithm) float64) column {
		return column{head, unit, func(a *compare.Algorithm) (string, string) { return text.Number(of(a), decimals), "" }, of}
	}
	decisions := func(head string, of func(a *compare.Algorithm) int64) column {
		return column{head, "hits", func(a *compare.Algorithm) (string, string) {
			if of(a) == 0 {
				return "0", ""
			}
			return words.Commas(of(a)), text.Percent(of(a), r.Events)
		}, func(a *compare.Algorithm) float64 { return float64(of(a)) }}
	}
	// The exact log is the reference: to equal the reference is no merit there.
	unlessExact := func(c column) column {
		cost := c.cost
		c.cost = func(a *compare.Algorithm) float64 {
			if a.Name == r.Reference {
				return -1
			}
			return cost(a)
		}
		return c
	}
	fullest := measure("Fullest window", "× limit", 2, func(a *compare.Algorithm) float64 { return a.WorstWindow })
	fullest.cost = func(a *compare.Algorithm) float64 { return max(0, a.WorstWindow-1) } // a window below the limit breaks no promise
	return []group{
		{"Admission", []column{
			unlessExact(column{"Admitted", "hits", func(a *compare.Algorithm) (string, string) {
				return words.Commas(a.Admitted), text.Number(a.Relative, 3) + " × exact"
			}, func(a *compare.Algorithm) float64 { return math.Abs(a.Relative - 1) }}),
		}},
		{"True window", []column{
			fullest,
			{"Promised", "at most", func(a *compare.Algorithm) (string, string) { return text.Clean(a.Worst, 24), "" }, nil},
		}},
		{"Delay", []column{
			{"Mean", "s", func(a *compare.Algorithm) (string, string) { return delay(a, a.MeanDelay), "" }, nil},
			{"Longest", "s", func(a *compare.Algorithm) (string, string) { return delay(a, a.LongestDelay), "" }, nil},
		}},
		{"Decisions", []column{
			decisions("Wrongly admitted", func(a *compare.Algorithm) int64 { return a.WronglyAdmitted }),
			decisions("Wrongly denied", func(a *compare.Algorithm) int64 { return a.WronglyDenied }),
			unlessExact(decisions("Unlike the exact log", func(a *compare.Algorithm) int64 { return a.Differently })),
		}},
		{"Memory per key", []column{
			measure("Mean", "bytes", 0, func(a *compare.Algorithm) float64 { return a.BytesPerKey }),
			measure("Busiest key", "bytes", 0, func(a *compare.Algorithm) float64 { return float64(a.BytesWorstKey) }),
		}},
		{"Work per event", []column{
			measure("Reads", "", 2, func(a *compare.Algorithm) float64 { return a.ReadsPerEvent }),
			measure("Writes", "", 2, func(a *compare.Algorithm) float64 { return a.WritesPerEvent }),
			measure("Round trips", "", 2, func(a *compare.Algorithm) float64 { return a.TripsPerEvent }),
			measure("Time", "ns", 0, func(a *compare.Algorithm) float64 { return a.NanosPerEvent }),
		}},
	}
}

// delay is seconds, or a dash for an algorithm for which nobody waited.
func delay(a *compare.Algorithm, seconds float64) string {
	if a.Delayed == 0 {
		return "–"
	}
	return text.Number(seconds, 1)
}

func newTable(r *compare.Report) table {
	t := table{Groups: groupsFor(r), Notes: notes(r)}
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		out := row{Number: i + 1, Name: name(a), Source: text.Clean(a.Source, nameLength), Kind: "line", Reference: a.Name == r.Reference}
		if a.Source == "abacus" {
			out.Kind = "ours"
		}
		if a.Default {
			out.Source += ", the default ladder"
		}
		t.Rows = append(t.Rows, out)
	}
	for _, group := range t.Groups {
		for i, c := range group.Columns {
			costs := make([]float64, len(r.Algorithms))
			for j := range r.Algorithms {
				if costs[j] = -1; c.cost != nil {
					costs[j] = c.cost(&r.Algorithms[j])
				}
			}
			for j, mark := range marks(costs) {
				value, small := c.show(&r.Algorithms[j])
				t.Rows[j].Cells = append(t.Rows[j].Cells, cell{value, small, mark, i == 0})
			}
		}
	}
	return t
}

// marks tells the best and the worst costs, a number below zero being none. A cost common to more than a third of
// the rows does not stand out, and gets no mark.
func marks(costs []float64) []string {
	out := make([]string, len(costs))
	known := slices.DeleteFunc(slices.Clone(costs), func(v float64) bool { return v < 0 })
	if len(known) < 2 || slices.Min(known) == slices.Max(known) {
		return out
	}
	for mark, v := range map[string]float64{"best": slices.Min(known), "worst": slices.Max(known)} {
		var at []int
		for i, c := range costs {
			if c == v {
				at = append(at, i)
			}
		}
		if len(at) > max(1, len(known)/3) {
			continue
		}
		for _, i := range at {
			out[i] = mark
		}
	}
	return out
}

// notes say how things were measured, in the words of the report.
func notes(r *compare.Report) []fact {
	var out []fact
	memory := func(way string, names string) {
		if r.Sample > 0 {
			way += "; the mean is that of " + words.Plural(int64(r.Sample), "key") + ", each right after its last hit"
		}
		out = append(out, fact{"Memory" + names, way + "."})
	}
	byWay(r, func(a *compare.Algorithm) string { return a.BytesMeasured }, memory)
	byWay(r, func(a *compare.Algorithm) string { return a.Counted }, func(way, names string) {
		out = append(out, fact{"Reads and writes" + names, "counted in " + way + "."})
	})
	for _, l := range r.LeftOut {
		out = append(out, fact{"Left out", text.Clean(l.Name, nameLength) + ", " + text.Clean(l.Why, 200) + "."})
	}
	return out
}

// byWay tells each way of the algorithms and, if there are several ways, the
// names for each: its sources, or its algorithms where a source has several ways.
func byWay(r *compare.Report, of func(a *compare.Algorithm) string, tell func(way, names string)) {
	adjoin := func(all []string, s string) []string {
		if slices.Contains(all, s) {
			return all
		}
		return append(all, s)
	}
	var ways, sources, pairs []string
	for _, a := range r.Algorithms {
		ways, sources, pairs = adjoin(ways, of(&a)), adjoin(sources, a.Source), adjoin(pairs, a.Source+" "+of(&a))
	}
	for _, way := range ways {
		var names []string
		for _, a := range r.Algorithms {
			if of(&a) == way && len(pairs) == len(sources) {
				names = adjoin(names, text.Clean(a.Source, nameLength))
			} else if of(&a) == way {
				names = append(names, name(&a))
			}
		}
		if len(ways) == 1 {
			tell(text.Clean(way, nameLength), "")
		} else {
			tell(text.Clean(way, nameLength), ", "+text.List(names))
		}
	}
}
