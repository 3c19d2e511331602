package main

import (
	"bytes"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/inspect"
	"github.com/abacus-go/abacus/cmd/demo/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/words"
)

type inspectCmd struct {
	Event   string  `arg:"" help:"The event of the key, such as signup."`
	Feature string  `arg:"" help:"The feature of the key, such as ip:203.0.113.9 or email:ada@example.org."`
	Keys    keys    `embed:""`
	At      instant `help:"Look as it would be seen then: now (the default), 23:30:33 (today, UTC) or 2026-03-02T23:30:33Z." default:"now" placeholder:"TIME"`
	Limit   int     `help:"Show at most this many buckets of each tier, the newest that are not empty. Default: ${default}." default:"10" placeholder:"ROWS"`
	JSON    bool    `help:"Print one JSON object."`
}

// Help is the part of --help that follows the summary.
func (*inspectCmd) Help() string {
	return `A count is told as low to high if the oldest bucket is only partly in the window; decisions use the high one. It writes nothing.

` + keysHelp + `

` + storeHelp + `

Examples:

    demo inspect --store redis://127.0.0.1:6379/0 signup ip:203.0.113.9
    demo inspect --store memcached://127.0.0.1:11211 --limits 10/h,100/d \
        --ladder 1s:1d,1m:1d,1h:1d --secret-env APP_SECRET mail user:17`
}

// Run prints the buckets and the counts of a key in the store.
func (c *inspectCmd) Run(e *env) error {
	if c.Limit < 0 {
		return usageError{fmt.Errorf("--limit %d: want 0 rows or more", c.Limit)}
	}
	store, count, err := c.Keys.open(e.ctx, func() time.Time { return time.Time(c.At) })
	if err != nil {
		return err
	}
	defer store.Close()
	key, err := c.Keys.key(count, c.Event, c.Feature)
	if err != nil {
		return err
	}
	q := inspect.Query{
		Key: key, At: time.Time(c.At), Limits: counter.Limits(c.Keys.Limits), Rows: c.Limit, Ahead: time.Duration(c.Keys.Program.Skew),
	}
	found, err := inspect.Look(e.ctx, count, q)
	if err != nil && !errors.Is(err, counter.ErrStore) {
		err = usageError{err}
	}
	if err != nil {
		return err
	}
	found.Store, found.Prefix = c.Keys.Store.String(), c.Keys.Program.Prefix
	if c.JSON {
		return printJSON(e.stdout, found)
	}
	_, err = e.stdout.Write(c.render(found))
	return err
}

// render formats f as text.
func (c *inspectCmd) render(f *inspect.Found) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "store   %s\n", f.Store)
	fmt.Fprintf(&b, "key     %s\n", text.Key(f.Event, f.Feature, columns-8))
	fmt.Fprintf(&b, "prefix  %s\n", f.Prefix)
	fmt.Fprintf(&b, "ladder  %s\n", f.Ladder)
	fmt.Fprintf(&b, "at      %s\n", f.At.Format("2006-01-02 15:04:05.999 MST"))
	if f.Empty() {
		b.WriteString("\nNothing is counted. " + otherKey)
		return b.Bytes()
	}
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "\nwindow\thits\n")
	for _, window := range f.Windows {
		hits := words.Commas(window.Low)
		if window.High != window.Low {
			hits += " to " + words.Commas(window.High)
		}
		if window.Room > 0 {
			hits += fmt.Sprintf("\tof %s: room for %s", window.Limit, words.Commas(window.Room))
		} else if window.Limit != "" {
			hits += fmt.Sprintf("\tof %s: full", window.Limit)
		}
		fmt.Fprintf(w, "%s\t%s\n", window.Length, hits)
	}
	w.Flush()
	for _, tier := range f.Tiers {
		if len(tier.Buckets) == 0 {
			continue
		}
		more := ""
		if tier.More {
			more = ", and older ones"
		}
		fmt.Fprintf(&b, "\nbuckets of %s, kept for %s%s\n", tier.Width, tier.Keep, more)
		w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		for _, bucket := range tier.Buckets {
			fmt.Fprintf(w, "  %s\t%s\n", bucket.Start.Format("2006-01-02 15:04:05.999"), words.Commas(bucket.Count))
		}
		w.Flush()
	}
	return b.Bytes()
}
