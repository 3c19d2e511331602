package page

import (
	"cmp"
	"math"
	"slices"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/words"
)

// table is all measures of all algorithms.
type table struct {
	Columns []column
	Rows    []row
	Groups  []group
	Notes   []fact
}

// column is a measure in the table.
type column struct {
	Head, Unit string
	First      bool // of its group

	show func(a *compare.Algorithm) (value, small string)
	cost func(a *compare.Algorithm) float64 // less is better; nil if neither is
}

// group is the common head of adjacent columns.
type group struct {
	Head string
	Span int
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

func columnsFor(r *compare.Report) []column {
	const first, other = true, false
	measure := func(head, unit string, first bool, decimals int, of func(a *compare.Algorithm) float64) column {
		return column{head, unit, first, func(a *compare.Algorithm) (string, string) { return number(of(a), decimals), "" }, of}
	}
	decisions := func(head string, first bool, of func(a *compare.Algorithm) int64) column {
		return column{head, "hits", first, func(a *compare.Algorithm) (string, string) {
			if of(a) == 0 {
				return "0", ""
			}
			return words.Commas(of(a)), percent(of(a), r.Events)
		}, func(a *compare.Algorithm) float64 { return float64(of(a)) }}
	}
	// The exact log is the reference: to equal the reference is no merit there.
	unlessExact := func(c column) column {
		cost := c.cost
		c.cost = func(a *compare.Algorithm) float64 {
			if a.Name == r.Reference {
				return math.NaN()
			}
			return cost(a)
		}
		return c
	}
	fullest := measure("Fullest window", "× limit", first, 2, func(a *compare.Algorithm) float64 { return a.WorstWindow })
	fullest.cost = func(a *compare.Algorithm) float64 { return max(0, a.WorstWindow-1) } // a window below the limit breaks no promise
	return []column{
		unlessExact(column{"Admitted", "hits", first, func(a *compare.Algorithm) (string, string) {
			if !finite(a.Relative) { // the exact log admitted nothing
				return words.Commas(a.Admitted), ""
			}
			return words.Commas(a.Admitted), number(a.Relative, 3) + " × exact"
		}, func(a *compare.Algorithm) float64 { return math.Abs(a.Relative - 1) }}),
		fullest,
		{"Promised", "at most", other, func(a *compare.Algorithm) (string, string) { return orUnknown(clean(a.Worst, 24)), "" }, nil},
		decisions("Wrongly admitted", first, func(a *compare.Algorithm) int64 { return a.WronglyAdmitted }),
		decisions("Wrongly denied", other, func(a *compare.Algorithm) int64 { return a.WronglyDenied }),
		unlessExact(decisions("Unlike the exact log", other, func(a *compare.Algorithm) int64 { return a.Differently })),
		measure("Mean", "bytes", first, 0, func(a *compare.Algorithm) float64 { return a.BytesPerKey }),
		measure("Busiest key", "bytes", other, 0, func(a *compare.Algorithm) float64 { return float64(a.BytesWorstKey) }),
		measure("Reads", "", first, 2, func(a *compare.Algorithm) float64 { return a.ReadsPerEvent }),
		measure("Writes", "", other, 2, func(a *compare.Algorithm) float64 { return a.WritesPerEvent }),
		measure("Round trips", "", other, 2, func(a *compare.Algorithm) float64 { return a.TripsPerEvent }),
		measure("Time", "ns", other, 0, func(a *compare.Algorithm) float64 { return a.NanosPerEvent }),
	}
}

func orUnknown(s string) string { return cmp.Or(s, unknown) }

func newTable(r *compare.Report) table {
	t := table{
		Columns: columnsFor(r),
		Groups: []group{
			{"Admission", 1}, {"True window", 2}, {"Decisions", 3}, {"Memory per key", 2}, {"Work per event", 4},
		},
	}
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		out := row{
			Number: i + 1, Name: orUnknown(clean(a.Name, nameLength)), Source: clean(a.Source, nameLength), Kind: "line",
			Reference: a.Name == r.Reference,
		}
		if a.Source == "abacus" {
			out.Kind = "ours"
		}
		for _, c := range t.Columns {
			value, small := c.show(a)
			out.Cells = append(out.Cells, cell{Value: value, Small: small, First: c.First})
		}
		t.Rows = append(t.Rows, out)
	}
	for i, c := range t.Columns {
		if c.cost == nil {
			continue
		}
		costs := make([]float64, len(r.Algorithms))
		for j := range r.Algorithms {
			costs[j] = c.cost(&r.Algorithms[j])
		}
		for j, mark := range marks(costs) {
			t.Rows[j].Cells[i].Mark = mark
		}
	}
	t.Notes = notes(r)
	return t
}

// marks tells the best and the worst costs. A cost common to more than a third of
// the rows does not stand out, and gets no mark.
func marks(costs []float64) []string {
	out := make([]string, len(costs))
	known := slices.DeleteFunc(slices.Clone(costs), func(v float64) bool { return !(v >= 0 && finite(v)) })
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
		out = append(out, fact{"Left out", clean(l.Name, nameLength) + ", " + clean(l.Why, 200) + "."})
	}
	return out
}

// byWay tells each way of the algorithms and, if there are several ways, the
// names for each: all of a source, or a list of algorithms. An empty way is not
// told.
func byWay(r *compare.Report, of func(a *compare.Algorithm) string, tell func(way, names string)) {
	var ways []string
	names, sources, mixed := map[string][]string{}, map[string][]string{}, false
	wayOf := map[string]string{}
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		way := clean(of(a), nameLength)
		if names[way] == nil {
			ways = append(ways, way)
		}
		names[way] = append(names[way], clean(a.Name, nameLength))
		if before, known := wayOf[a.Source]; !known {
			wayOf[a.Source] = way
			sources[way] = append(sources[way], clean(a.Source, nameLength))
		} else if before != way {
			mixed = true
		}
	}
	if !mixed {
		names = sources
	}
	for _, way := range ways {
		switch {
		case way == "":
		case len(ways) == 1:
			tell(way, "")
		default:
			tell(way, ", "+list(names[way]))
		}
	}
}
