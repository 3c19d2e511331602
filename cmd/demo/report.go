package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// renderReport is the report of a replay for people.
func renderReport(r *replay.Report, skew time.Duration) []byte {
	var b bytes.Buffer
	renderHead(&b, r, skew)
	b.WriteByte('\n')
	count := func(name string, n int64, rest string) {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("%-32s%14s   %s", name, words.Commas(n), rest), " "))
	}
	count("admitted", r.Admitted, text.Percent(r.Admitted, r.Events))
	count("denied", r.Denied, text.Percent(r.Denied, r.Events))
	count("  though an exact log had room", r.GridDenied, "the price of buckets and skew")
	count("wrongly denied beyond the grid", r.WrongDenied, "must be 0")
	count("wrongly admitted", r.WrongAdmitted, "must be 0")

	b.WriteString("\nworst true window\n")
	for _, w := range r.Worst {
		row := fmt.Sprintf("  %-10s%17s   %4.2f x Max", w.Limit, words.Commas(w.Admitted)+" of "+words.Commas(w.Max), w.Ratio)
		if w.Admitted > 0 {
			row += "   " + text.Key(w.Event, w.Feature, max(20, cli.Columns-len(row)-3))
		}
		b.WriteString(row + "\n")
	}

	b.WriteString("\nper event\n")
	fmt.Fprintf(&b, "  %-30s%14.1f   in the covers of all limits\n", "buckets read", r.BucketsRead)
	fmt.Fprintf(&b, "  %-30s%14.2f   a denied hit writes none\n", "buckets written", r.BucketsWritten)
	fmt.Fprintf(&b, "%-32s%14s   %.2f s, reading included\n", "events per second", words.Commas(int64(r.Rate)), r.Seconds)

	if len(r.MostDenied) > 0 {
		fmt.Fprintf(&b, "\n%12s%12s   %s\n", "denied most", "admitted", "key")
		for _, k := range r.MostDenied {
			fmt.Fprintf(&b, "%12s%12s   %s\n", words.Commas(k.Denied), words.Commas(k.Admitted), text.Key(k.Event, k.Feature, 52))
		}
	}
	return b.Bytes()
}

// renderHead tells about the log and the store.
func renderHead(b *bytes.Buffer, r *replay.Report, skew time.Duration) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-14s", name)
		fmt.Fprintf(b, format+"\n", args...)
	}
	line("log", "%s (%s)", text.Clean(r.File, 50), r.Format)
	if r.Events > 0 {
		line("", "%s of %s in %s,", words.Plural(r.Events, "event"), words.Plural(int64(r.Keys), "key"), text.Roughly(r.Last.Sub(r.First)))
		line("", "%s to %s", r.First.Format("2006-01-02 15:04:05"), r.Last.Format("2006-01-02 15:04:05 MST"))
	} else {
		line("", "no events")
	}
	for _, note := range r.Notes(skew) {
		for _, part := range text.Wrap(note, cli.Columns-14) {
			line("", "%s", part)
		}
	}
	if r.Stopped != "" {
		line("", "STOPPED: %s", r.Stopped)
	}
	line("limits", "%s", r.Limits)
	line("ladder", "%s", r.Ladder)
	line("store", "%s, skew %s", r.Store, r.Skew)
	if k := r.Kept; k != nil {
		line("", "keys begin with %s; they expire by themselves within %s", k.Prefix, k.Within)
		if k.Removed != nil {
			line("", "%s removed at the end", words.Plural(*k.Removed, "item"))
		}
	}
}
