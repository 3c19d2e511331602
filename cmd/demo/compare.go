package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/term"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/compare/page"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/counter"
)

type compareCmd struct {
	File    string      `arg:"" optional:"" help:"The log, - for standard input. What is compressed by gzip is read as it is. Without it, traffic is generated." placeholder:"FILE"`
	Limits  cli.Sliding `help:"The limits on every key: 10/m, 5/90s, 1000/7d. Several, with commas, are compared one after the other. Default: ${default}." default:"100/d" placeholder:"LIMITS"`
	Store   cli.Store   `help:"Where to count: memory (the default), or the URL of Redis or memcached servers." default:"memory" env:"ABACUS_STORE" placeholder:"STORE"`
	HTML    string      `name:"html" help:"Write a page with charts to this file; it is overwritten." placeholder:"OUT.html"`
	JSON    bool        `help:"Print one JSON object."`
	Seed    *uint64     `help:"Of generated traffic: another seed is another log, the same one the same. Default: 1." placeholder:"NUMBER"`
	Skew    cli.Span    `help:"How far the stamps of the log may run back, for abacus." default:"0s" placeholder:"DURATION"`
	Timeout cli.Span    `help:"How long a call of the store may take. Default: ${default}." default:"5s" placeholder:"DURATION"`
	Log     logFlags    `embed:""`
}

// Help is the part of --help that follows the summary.
func (*compareCmd) Help() string {
	return `All are given the same hits, the clock being the log's: a log of every hit, which is exact, fixed and sliding windows, token and leaky buckets, GCRA, the textbook's tiers (hours, minutes and seconds), and abacus with buckets from fine to coarse. The report shows what each admitted, the fullest true window, the decisions that the exact rule takes otherwise, memory, reads and writes, round trips and time. A queue and a shaper let a hit wait, for the time of a window at most: the report shows the delay, and the hit is judged when it leaves.

A log has the forms that demo replay reads. It is held in memory, 24 bytes an event, and every algorithm is given all of it, alone and from nothing. On Redis each counts under a prefix that nobody else has and that is removed when its turn is over, also after an interrupt; that takes a SCAN of all keys for each. On memcached only the textbook's tiers and abacus count; the exact log is in memory. Memory, commands and time mean most on a server that nobody else uses at the time.

Exit codes: 0 all was compared, 1 the log is bad, the store failed, the output cannot be written, or abacus admitted too many, 2 the call is wrong, 130 interrupted.

Examples:

    demo compare
    demo compare --limits 10/h,100/d --html compare.html access.log.gz
    demo compare --limits 5/h --event 'POST /login' access.log
    demo compare --store redis://127.0.0.1:6379/0 --limits 100/d events.csv
    demo compare --store memcached://127.0.0.1:11211 --limits 100/d events.csv`
}

// compared is the output of demo compare --json.
type compared struct {
	Reports []*compare.Report `json:"reports"` // of each limit
}

// Run compares and prints the reports, or the error alone.
func (c *compareCmd) Run(e *cli.Env) (err error) {
	if err := c.Timeout.Check("--timeout", 0); err != nil {
		return err
	}
	if c.File != "" && c.Seed != nil {
		return cli.Usagef("--seed %d: a seed is for generated traffic, but there is the log %s", *c.Seed, c.File)
	}
	store, err := c.Store.Open(c.Timeout)
	if err != nil {
		return err
	}
	defer store.Close()
	bar := e.Progress()
	run, err := compare.New(compare.Config{
		Limits: counter.Limits(c.Limits), Store: store, Skew: time.Duration(c.Skew), Timeout: time.Duration(c.Timeout), Growth: c.HTML != "" || c.JSON, Progress: bar.Update,
	})
	if err != nil {
		return cli.Usage(err)
	}
	var in *input
	if c.File != "" {
		if in, err = openInput(c.File, e.Stdin); err != nil {
			return err
		}
		defer in.close()
	}
	if err := cli.Identify(e.Ctx, store); err != nil {
		return err
	}
	html, err := createOutput("--html", c.HTML, in)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, html.close()) }()
	defer bar.Clear()
	log, err := c.log(e.Ctx, in, bar)
	if err != nil {
		return err
	}
	bar.Show("compare", run.Steps(log), false)
	reports, err := run.Run(e.Ctx, log)
	bar.Clear()
	if err != nil {
		return err
	}
	if html != nil {
		if err := page.Write(html, reports); err != nil {
			return err
		}
	}
	if c.JSON {
		err = e.Print(true, "", compared{reports})
	} else {
		_, err = e.Stdout.Write(page.Text(reports, width(e.Stdout)))
	}
	for _, r := range reports {
		err = cmp.Or(err, r.Broken())
	}
	return err
}

// width is the number of columns of standard output: $COLUMNS, or the width of the
// terminal.
func width(to io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if file, is := to.(*os.File); is {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return page.WideColumns
}

func (c *compareCmd) log(ctx context.Context, in *input, bar *cli.Progress) (*compare.Log, error) {
	if in == nil {
		seed := uint64(1)
		if c.Seed != nil {
			seed = *c.Seed
		}
		return compare.Generate(seed, counter.Limits(c.Limits))
	}
	bar.Show("read", in.size, true)
	log, err := compare.Load(ctx, c.Log.log(in, bar))
	bar.Clear()
	return log, err
}
