package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

// drawn is a cover with a name, to be drawn.
type drawn struct {
	name  string
	cover tiers.Cover
}

const (
	nameWidth  = 10 // columns before a time line
	readsWidth = 7  // and after it
	maxSegment = 9  // columns between two instants: room for 23:30:33
	minSegment = 3
)

// drawCovers draws covers below each other on a common time line: runs with the
// same start have the same first column. The line is not to scale: a day of hours
// and a minute of seconds would not fit on a line. The result is nil if there are
// too many runs for a line.
//
//	          23:30:33 23:30:34 23:31    00:00
//	textbook           |26 x 1s-|29 x 1m-|       55
//	abacus    |----27 x 1s------|29 x 1m-|       56
func drawCovers(covers ...drawn) []string {
	var ends []time.Time
	for _, c := range covers {
		for _, run := range c.cover {
			ends = append(ends, run.Start(), run.End())
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	ends = slices.CompactFunc(ends, time.Time.Equal)
	segment := min(maxSegment, (cli.Columns-nameWidth-readsWidth)/max(1, len(ends)-1))
	if segment < minSegment {
		return nil
	}
	column := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(ends, t, time.Time.Compare)
		return nameWidth + i*segment
	}
	axis, free := blank(), 0
	for i, t := range ends {
		label := clock(t, ends[len(ends)-1].Sub(ends[0]) > 2*dur.Day)
		at := min(column(t), cli.Columns-len(label))
		// The end of the line is told even if another label must give way.
		room := i == len(ends)-1 || at+len(label) < column(ends[len(ends)-1])
		if at >= free && room {
			copy(axis[at:], label)
			free = at + len(label) + 1
		}
	}
	lines := []string{string(axis)}
	for _, c := range covers {
		line := blank()
		copy(line, c.name)
		for _, run := range c.cover {
			from, to := column(run.Start()), column(run.End())
			copy(line[from:], "|"+bar(fmt.Sprintf("%d x %s", run.N, dur.Format(run.Width)), run.N, to-from-1)+"|")
		}
		reads := words.Commas(c.cover.Reads())
		copy(line[cli.Columns-len(reads):], reads)
		lines = append(lines, string(line))
	}
	return lines
}

func blank() []byte { return []byte(strings.Repeat(" ", cli.Columns)) }

// bar is the label in the middle of dashes, or its number alone, or dashes.
func bar(label string, n int64, width int) string {
	if len(label) > width {
		label = fmt.Sprint(n)
	}
	if len(label) > width {
		label = ""
	}
	left := (width - len(label)) / 2
	return strings.Repeat("-", left) + label + strings.Repeat("-", width-len(label)-left)
}

// clock is the shortest form of t: the date alone at midnight if dates is set,
// otherwise the time of day.
func clock(t time.Time, dates bool) string {
	t = t.UTC()
	switch {
	case t.Nanosecond() != 0:
		return t.Format("15:04:05.999")
	case t.Second() != 0:
		return t.Format("15:04:05")
	case dates && t.Hour() == 0 && t.Minute() == 0:
		return t.Format("2 Jan")
	}
	return t.Format("15:04")
}
