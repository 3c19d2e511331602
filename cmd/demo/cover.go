package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

type coverCmd struct {
	At     cli.Instant `help:"When the window ends: now, 23:30:33 (today, UTC) or 2026-03-02T23:30:33Z. Default: ${default}." default:"now" placeholder:"TIME"`
	Window cli.Span    `help:"How long the window is. Default: ${default}." default:"24h" placeholder:"DURATION"`
	Ladder cli.Ladder  `help:"The buckets, finest first, as width:keep, such as 1s:1d,1m:1d,1h:1d. Default: those that fit the window." placeholder:"TIERS"`
	Skew   cli.Span    `help:"How far the clocks of those who count may be apart." default:"0s" placeholder:"DURATION"`
	JSON   bool        `help:"Print one JSON object."`
}

// Help is the part of --help that follows the flags' summary.
func (*coverCmd) Help() string {
	return `Examples:

    demo cover --at 23:30:33 --window 24h
    demo cover --at 2026-03-02T23:30:33Z --window 30d --ladder 1m:30d,1h:30d
    demo cover --window 1h --skew 5s --json`
}

// coverOf is a cover in JSON.
type coverOf struct {
	Reads int64     `json:"reads"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"` // the first instant after the cover
	Runs  []runOf   `json:"runs"`
	Left  string    `json:"-"` // the meaning of From, next to the start of the window
}

type runOf struct {
	Width   string    `json:"width"`
	Buckets int64     `json:"buckets"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

// explained is the output of demo cover --json.
type explained struct {
	At       time.Time `json:"at"`
	Window   string    `json:"window"`
	Ladder   string    `json:"ladder"`
	Skew     string    `json:"skew"`
	Finest   string    `json:"-"`            // the width of the finest tier that the window needs
	Plain    int64     `json:"finest_reads"` // with every bucket of that tier read
	Textbook coverOf   `json:"textbook"`
	Abacus   coverOf   `json:"abacus"`
	Lines    []string  `json:"-"` // both drawn; none if there are too many runs for a line
}

// Run prints both covers of the window.
func (c *coverCmd) Run(e *cli.Env) error {
	at, window := time.Time(c.At), time.Duration(c.Window)
	l := c.Ladder.OrFor(counter.Limit{Per: window})
	fine, _ := l.Finest(window) // the error is that of Cover too
	cover, err := l.Cover(at, window, time.Duration(c.Skew))
	textbook, wrong := classic.TextbookCover(l, at, window)
	if err := cmp.Or(err, wrong); err != nil {
		return cli.Usage(err)
	}
	width := l.At(fine).Width
	x := explained{
		At: at, Window: dur.Format(window), Ladder: l.String(), Skew: dur.Format(time.Duration(c.Skew)),
		Finest: dur.Format(width), Plain: int64((window + width - 1) / width),
		Textbook: tell(textbook, at.Add(-window)), Abacus: tell(cover, at.Add(-window)),
		Lines: drawCovers(drawn{"textbook", textbook}, drawn{"abacus", cover}),
	}
	return e.Print(c.JSON, "cover", x)
}

func tell(c tiers.Cover, window time.Time) coverOf {
	t := coverOf{Reads: c.Reads(), From: c[0].Start().UTC(), To: c[len(c)-1].End().UTC(), Left: "is exact"}
	for _, run := range c {
		t.Runs = append(t.Runs, runOf{dur.Format(run.Width), run.N, run.Start().UTC(), run.End().UTC()})
	}
	if d := t.From.Sub(window); d > 0 {
		t.Left = fmt.Sprintf("misses the hits of %s", dur.Format(d))
	} else if d < 0 {
		t.Left = fmt.Sprintf("counts the hits of %s too many", dur.Format(-d))
	}
	return t
}

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
