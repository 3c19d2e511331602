package page

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// WideColumns is the width of a text where there is no terminal.
const WideColumns = 120

// Text formats the reports for people, in at most width columns: a single table for
// each report if there is room, else a table of the decisions and a table of the costs.
func Text(reports []*compare.Report, width int) []byte {
	var b bytes.Buffer
	prose := min(width, WideColumns)
	tell := func(name, format string, args ...any) {
		for _, line := range text.Wrap(fmt.Sprintf(format, args...), max(20, prose-7)) {
			fmt.Fprintf(&b, "%-7s%s\n", name, line)
			name = ""
		}
	}
	for i, r := range reports {
		if i == 0 {
			tell("log", "%s", text.Clean(r.Log, 600))
			tell("", "%s of %s in %s, %s to %s", words.Plural(r.Events, "event"), words.Plural(int64(r.Keys), "key"), text.Roughly(r.To.Sub(r.From)),
				r.From.Format(time.DateTime), r.To.Format(time.DateTime+" MST"))
			for _, note := range r.Notes() {
				tell("", "%s", note)
			}
		} else {
			b.WriteByte('\n')
		}
		exact := r.Algorithms[0]
		tell("limit", "%s, store %s, skew %s; of %s the %s admits %s, %s", r.Limit, r.Store, r.Skew,
			words.Plural(r.Events, "event"), r.Reference, words.Commas(exact.Admitted), text.Percent(exact.Admitted, r.Events))
		for i := 0; i < len(r.LeftOut); {
			names, why := []string{}, r.LeftOut[i].Why
			for ; i < len(r.LeftOut) && r.LeftOut[i].Why == why; i++ {
				names = append(names, r.LeftOut[i].Name)
			}
			tell("", "left out: %s, %s", words.List(names), why)
		}
		b.WriteByte('\n')
		decisions, costs := measures(r)
		all, fits := tabulate(r.Algorithms, slices.Concat(decisions, costs), width)
		if !fits {
			first, _ := tabulate(r.Algorithms, decisions, width)
			second, _ := tabulate(r.Algorithms, costs, width)
			all = first + "\n" + second
		}
		b.WriteString(all)
	}
	for _, line := range text.Wrap(legend(reports[0]), prose) {
		b.WriteString(line + "\n")
	}
	return b.Bytes()
}

// tabulate formats a line for each algorithm, and reports whether names have the room to
// tell one ladder from another.
func tabulate(all []compare.Algorithm, columns []measure, width int) (table string, fits bool) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(m measure) bool { return m.brief == "" })
	lines := make([][]string, 2+len(all))
	lines[0], lines[1] = []string{""}, []string{""}
	for i := range all {
		lines[2+i] = []string{title(&all[i])}
	}
	for _, m := range columns {
		first, second, _ := strings.Cut(m.brief, "\n")
		lines[0], lines[1] = append(lines[0], first), append(lines[1], second)
		for i := range all {
			lines[2+i] = append(lines[2+i], m.of(&all[i]).Value)
		}
	}
	widths, room := make([]int, 1+len(columns)), width
	for i := range widths {
		for _, line := range lines {
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
		room -= widths[i]
	}
	const shortest, enough = 12, 28
	gap := 2
	if room < gap*len(columns) {
		gap = 1
	}
	name := widths[0] + min(0, room-gap*len(columns))
	fits = name >= min(widths[0], enough)
	name = max(shortest, name)
	var b strings.Builder
	for _, line := range lines {
		row := fmt.Sprintf("%-*s", name, text.Clean(line[0], name))
		for i, value := range line[1:] {
			row += fmt.Sprintf("%*s", gap+widths[1+i], value)
		}
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	return b.String(), fits
}

// legend explains the columns.
func legend(r *compare.Report) string {
	var ways, units []string
	for _, a := range r.Algorithms {
		ways, units = append(ways, a.BytesMeasured), append(units, a.Counted)
	}
	distinct := func(all []string) string { slices.Sort(all); return strings.Join(slices.Compact(all), ", ") }
	return "\n\nworst window: the most hits admitted in a true window, both ends included, in units of the limit; at most: what is promised of it. wrongly: " +
		"by the exact rule on the algorithm's own admitted hits; not as exact: otherwise than the " + r.Reference + ". " +
		"leaky queue, token shaper: a hit may wait, for Per at most, and is judged when it leaves (hits of a busy queue leave Per/Max apart, N+1 with both ends, so the last is wrongly admitted); mean delay: of all admitted hits. abacus*: the default ladder.\n" +
		fmt.Sprintf("bytes: the mean of %s, and of the key with the most hits, each right after its last hit; measured: %s. reads, writes: an event's, in %s "+
			"(buckets: those of the covers and those added to, though a store may keep totals and read fewer; commands: those inside of scripts included, and none for a denial that abacus remembers). "+
			"ns, or the unit that stands there: wall time of an event, the median of chunks of 64, each algorithm alone over the whole log, by one caller.",
			words.Plural(int64(r.Sample), "key"), distinct(ways), distinct(units))
}
