package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// wideColumns is the width of a comparison without a terminal and without $COLUMNS.
const wideColumns = 120

// tableWidth is the number of columns of a table on standard output: $COLUMNS, the
// width of the terminal, or wideColumns.
func tableWidth(to io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if file, is := to.(*os.File); is {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return wideColumns
}

// measure is a column of the table.
type measure struct {
	head [2]string
	of   func(a *compare.Algorithm) string
}

func decisionsTold() []measure {
	return []measure{
		{[2]string{"at", "most"}, func(a *compare.Algorithm) string { return a.Worst }},
		{[2]string{"worst", "window"}, func(a *compare.Algorithm) string { return fmt.Sprintf("%.2f", a.WorstWindow) }},
		{[2]string{"admits", "of exact"}, func(a *compare.Algorithm) string { return fmt.Sprintf("%.1f %%", 100*a.Relative) }},
		{[2]string{"wrongly", "admits"}, func(a *compare.Algorithm) string { return words.Commas(a.WronglyAdmitted) }},
		{[2]string{"wrongly", "denies"}, func(a *compare.Algorithm) string { return words.Commas(a.WronglyDenied) }},
		{[2]string{"not as", "exact"}, func(a *compare.Algorithm) string { return words.Commas(a.Differently) }},
	}
}

func costsTold(kind stores.Kind) []measure {
	all := []measure{
		{[2]string{"mean", "delay"}, func(a *compare.Algorithm) string { return briefly(a.MeanDelay) }},
		{[2]string{"bytes", "a key"}, func(a *compare.Algorithm) string { return text.Number(a.BytesPerKey, 0) }},
		{[2]string{"busiest", "key"}, func(a *compare.Algorithm) string { return words.Commas(a.BytesWorstKey) }},
		{[2]string{"", "reads"}, func(a *compare.Algorithm) string { return figure(a.ReadsPerEvent) }},
		{[2]string{"", "writes"}, func(a *compare.Algorithm) string { return figure(a.WritesPerEvent) }},
	}
	if kind != stores.InMemory {
		all = append(all, measure{[2]string{"", "trips"}, func(a *compare.Algorithm) string { return figure(a.TripsPerEvent) }})
	}
	return append(all, measure{[2]string{"", fmt.Sprintf("%*s", nanosWidth, "ns")}, func(a *compare.Algorithm) string { return nanos(a.NanosPerEvent) }})
}

// nanosWidth is the width of the column of times, which is the same on a slow machine.
const nanosWidth = 7

// nanos formats a time in at most nanosWidth cli.Columns, with a unit from a millisecond on.
func nanos(ns float64) string {
	if ns < 999_999.5 {
		return text.Number(ns, 0)
	}
	return briefly(ns / 1e9)
}

// briefly is a delay with two or three digits, in the largest unit that it has.
func briefly(seconds float64) string {
	switch {
	case seconds == 0:
		return "–"
	case seconds < 1:
		return text.Number(1000*seconds, 0) + "ms"
	case seconds < 99.5:
		return text.Number(seconds, 1) + "s"
	case seconds < 99.5*60:
		return text.Number(seconds/60, 1) + "m"
	case seconds < 99.5*3600:
		return text.Number(seconds/3600, 1) + "h"
	}
	return text.Number(seconds/86400, 1) + "d"
}

// title is the name of an algorithm in a table, with a star for the default ladder.
func title(a *compare.Algorithm) string {
	if a.Default {
		return strings.Replace(a.Name, "abacus ", "abacus* ", 1)
	}
	return a.Name
}

// wholeSeconds tells about a log whose stamps are all whole seconds.
const wholeSeconds = "all stamps are whole seconds: no window cuts a bucket of a second, so nothing is proved about such buckets"

// figure is a small number with three significant digits.
func figure(f float64) string {
	switch {
	case f >= 99.95:
		return text.Number(f, 0)
	case f >= 9.995:
		return text.Number(f, 1)
	}
	return text.Number(f, 2)
}

// renderComparison formats the reports for people, in at most width columns: a
// single table for each report if there is room, else a table of the decisions
// and a table of the costs.
func renderComparison(reports []*compare.Report, kind stores.Kind, width int) []byte {
	var b bytes.Buffer
	tell := func(name, s string) {
		for _, line := range text.Wrap(s, max(20, min(width, wideColumns)-7)) {
			fmt.Fprintf(&b, "%-7s%s\n", name, line)
			name = ""
		}
	}
	decisions, costs := decisionsTold(), costsTold(kind)
	for i, r := range reports {
		if i > 0 {
			b.WriteByte('\n')
		} else {
			tellLog(r, tell)
		}
		exact := r.Algorithms[0]
		tell("limit", fmt.Sprintf("%s, store %s, skew %s; of %s the %s admits %s, %s", r.Limit, r.Store, r.Skew,
			words.Plural(r.Events, "event"), r.Reference, words.Commas(exact.Admitted), text.Percent(exact.Admitted, r.Events)))
		if r.OutOfSkew() {
			tell("", fmt.Sprintf("the stamps run back by up to %s: --skew %s allows for that", r.RunsBack, r.RunsBack))
		}
		for i := 0; i < len(r.LeftOut); {
			names, why := []string{}, r.LeftOut[i].Why
			for ; i < len(r.LeftOut) && r.LeftOut[i].Why == why; i++ {
				names = append(names, r.LeftOut[i].Name)
			}
			tell("", fmt.Sprintf("left out: %s, %s", text.List(names), why))
		}
		b.WriteByte('\n')
		if table := tabulate(r.Algorithms, append(append([]measure{}, decisions...), costs...), width, false); table != nil {
			b.Write(table)
			continue
		}
		b.Write(tabulate(r.Algorithms, decisions, width, true))
		b.WriteByte('\n')
		b.Write(tabulate(r.Algorithms, costs, width, true))
	}
	b.WriteByte('\n')
	for _, line := range legend(reports[0], kind) {
		for _, line := range text.Wrap(line, min(width, wideColumns)) {
			b.WriteString(line + "\n")
		}
	}
	return b.Bytes()
}

func tellLog(r *compare.Report, tell func(name, s string)) {
	tell("log", text.Clean(r.Log, 600))
	tell("", fmt.Sprintf("%s of %s in %s, %s to %s", words.Plural(r.Events, "event"), words.Plural(int64(r.Keys), "key"), text.Roughly(r.To.Sub(r.From)),
		r.From.Format(time.DateTime), r.To.Format(time.DateTime+" MST")))
	if r.WholeSeconds {
		tell("", wholeSeconds)
	}
	for _, note := range r.Notes() {
		tell("", note)
	}
}

// tabulate formats a line for each algorithm; the result is nil for a table that
// does not fit, unless must is set.
func tabulate(all []compare.Algorithm, told []measure, width int, must bool) []byte {
	const shortest = 12
	name, total := shortest, 0
	for _, a := range all {
		name = max(name, utf8.RuneCountInString(title(&a)))
	}
	widths := make([]int, len(told))
	for i, m := range told {
		widths[i] = max(len(m.head[0]), len(m.head[1]))
		for j := range all {
			widths[i] = max(widths[i], utf8.RuneCountInString(m.of(&all[j])))
		}
		total += widths[i]
	}
	gap := 2
	if name+total+gap*len(told) > width {
		gap = 1
	}
	const enough = 28 // of a name, to tell one ladder from another
	room := width - total - gap*len(told)
	if room < min(name, enough) && !must {
		return nil
	}
	name = max(shortest, min(name, room))
	var b bytes.Buffer
	line := func(first string, cell func(i int) string) {
		row := fmt.Sprintf("%-*s", name, text.Clean(first, name))
		for i := range told {
			row += fmt.Sprintf("%*s", gap+widths[i], cell(i))
		}
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	line("", func(i int) string { return told[i].head[0] })
	line("", func(i int) string { return told[i].head[1] })
	for j := range all {
		line(title(&all[j]), func(i int) string { return told[i].of(&all[j]) })
	}
	return b.Bytes()
}

// legend explains the columns in a few lines.
func legend(r *compare.Report, kind stores.Kind) []string {
	counted := map[string]string{}
	for _, a := range r.Algorithms {
		counted[a.Source] = a.Counted
	}
	bytes, costs := "estimates of the heap", "states; of tiers, buckets of the covers and those added to (abacus: its store keeps running totals and reads fewer)"
	switch kind {
	case stores.OnMemcached:
		bytes, costs = "sizes of items", "commands; of abacus, buckets of its covers and those added to. The "+r.Reference+" is in memory"
	case stores.OnRedis:
		bytes, costs = "MEMORY USAGE", "commands, those inside of scripts included; abacus remembers a denial for a second"
		if counted["abacus"] != "commands" {
			costs += "; of abacus, buckets of its covers and those added to, since others use the server"
		}
	}
	return []string{
		"worst window: the most hits admitted in a true window, both ends included, in units of the limit; at most: what is promised of it. wrongly: " +
			"by the exact rule on the algorithm's own admitted hits; not as exact: otherwise than the " + r.Reference + ". " +
			"leaky queue, token shaper: a hit may wait, for Per at most, and is judged when it leaves (hits of a busy queue leave Per/Max apart, N+1 with both ends, so the last is wrongly admitted); mean delay: of all admitted hits. abacus*: the default ladder.",
		fmt.Sprintf("bytes: the mean of %s, and of the key with the most hits, each right after its last hit: %s. reads, writes: an event's, %s. "+
			"ns, or the unit that stands there: wall time of an event, the median of chunks of 64, each algorithm alone over the whole log, by one caller.", words.Plural(int64(r.Sample), "key"), bytes, costs),
	}
}
