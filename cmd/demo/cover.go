package main

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

type coverCmd struct {
	At     cli.Instant `help:"When the window ends: now, 23:30:33 (today, UTC) or 2026-03-02T23:30:33Z. Default: ${default}." default:"now" placeholder:"TIME"`
	Window cli.Span    `help:"How long the window is. Default: ${default}." default:"24h" placeholder:"DURATION"`
	Ladder cli.Ladder  `help:"The tiers, finest first, as width:keep. Default: those that fit the window." placeholder:"TIERS"`
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
}

// Run prints both covers of the window.
func (c *coverCmd) Run(e *cli.Env) error {
	at, window := time.Time(c.At), time.Duration(c.Window)
	l := c.Ladder.OrFor(window)
	fine, err := l.Finest(window)
	if err != nil {
		return cli.Usage(err)
	}
	cover, err := l.Cover(at, window, time.Duration(c.Skew))
	textbook, wrong := classic.TextbookCover(l, at, window)
	if err := cmp.Or(err, wrong); err != nil {
		return cli.Usage(err)
	}
	width := l.At(fine).Width
	x := explained{
		At: at, Window: dur.Format(window), Ladder: l.String(), Skew: dur.Format(time.Duration(c.Skew)),
		Finest: dur.Format(width), Plain: int64((window + width - 1) / width), Textbook: tell(textbook), Abacus: tell(cover),
	}
	return e.Print(c.JSON, x, func() []byte { return c.render(&x, textbook, cover) })
}

// render is the explanation for people.
func (c *coverCmd) render(x *explained, textbook, cover tiers.Cover) []byte {
	var b bytes.Buffer
	at, window := time.Time(c.At), time.Duration(c.Window)
	fmt.Fprintf(&b, "window  %s, up to %s\n", x.Window, at.Format("2006-01-02 15:04:05.999 MST"))
	fmt.Fprintf(&b, "ladder  %s\n", x.Ladder)
	if c.Skew > 0 {
		fmt.Fprintf(&b, "skew    %s\n", x.Skew)
	}
	if lines := drawCovers(drawn{"textbook", textbook}, drawn{"abacus", cover}); lines != nil {
		fmt.Fprintf(&b, "\n%*s\n", cli.Columns, "reads")
		for _, line := range lines {
			fmt.Fprintln(&b, line)
		}
	}
	fmt.Fprintf(&b, "\n%-66s%8s reads\n", "every bucket of "+x.Finest, words.Commas(x.Plain))
	x.Textbook.print(&b, "textbook: both ragged edges added up")
	x.Abacus.print(&b, "abacus: the bucket that holds now is read whole")
	fmt.Fprintf(&b, "\n%s\n%s\n", leftEdge("the textbook cover", textbook, at.Add(-window)), leftEdge("that of abacus", cover, at.Add(-window)))
	return b.Bytes()
}

func tell(c tiers.Cover) coverOf {
	t := coverOf{Reads: c.Reads(), From: c[0].Start().UTC(), To: c[len(c)-1].End().UTC()}
	for _, run := range c {
		t.Runs = append(t.Runs, runOf{dur.Format(run.Width), run.N, run.Start().UTC(), run.End().UTC()})
	}
	return t
}

func (c coverOf) print(b *bytes.Buffer, title string) {
	const instant = "2006-01-02 15:04:05.999"
	fmt.Fprintf(b, "\n%-66s%8s reads\n", title, words.Commas(c.Reads))
	for _, run := range c.Runs {
		fmt.Fprintf(b, "%9s x %-6s %-23s to %s\n", words.Commas(run.Buckets), run.Width, run.From.Format(instant), run.To.Format(instant))
	}
}

// leftEdge tells the start of a cover beside the start of the window, and the
// meaning for the hits in between.
func leftEdge(name string, c tiers.Cover, window time.Time) string {
	switch d := c[0].Start().Sub(window); {
	case d > 0:
		return fmt.Sprintf("At the left edge %s misses the hits of %s.", name, dur.Format(d))
	case d < 0:
		return fmt.Sprintf("At the left edge %s counts the hits of %s too many.", name, dur.Format(-d))
	}
	return fmt.Sprintf("At the left edge %s is exact.", name)
}
