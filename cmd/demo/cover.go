package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/internal/dur"
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
