package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/inspect"
	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/cmd/demo/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

type inspectCmd struct {
	Event     string    `arg:"" help:"The event of the key, such as signup."`
	Feature   string    `arg:"" help:"The feature of the key, such as ip:203.0.113.9."`
	Store     storeName `help:"The store to look into." required:"" env:"ABACUS_STORE" placeholder:"STORE"`
	Ladder    ladder    `help:"The tiers of the program that counts, as width:keep. Default: those of counter.Config." placeholder:"TIERS"`
	Prefix    string    `help:"Its counter.Config.Prefix. Default: ${default}." default:"ab" placeholder:"PREFIX"`
	SecretEnv string    `help:"The environment variable that holds its counter.Config.Secret." placeholder:"VARIABLE"`
	Limits    limits    `help:"Limits to count by as well, such as 10/h,100/d." placeholder:"LIMITS"`
	At        instant   `help:"Look as it would be seen then: now (the default), 23:30:33 (today, UTC) or 2026-03-02T23:30:33Z." default:"now" placeholder:"TIME"`
	Skew      span      `help:"Its counter.Config.Skew, part of the stored key on memcached. Default: ${default}." default:"${skew}" placeholder:"DURATION"`
	Settle    span      `help:"Its counter.Config.Settle, likewise. Default: ${default}." default:"${settle}" placeholder:"DURATION"`
	Limit     int       `help:"Show at most this many buckets of each tier, the newest that are not empty. Default: ${default}." default:"10" placeholder:"ROWS"`
	Timeout   span      `help:"How long a call of the store may take. Default: ${default}." default:"10s" placeholder:"DURATION"`
	JSON      bool      `help:"Print one JSON object."`
}

// Help is the part of --help that follows the summary.
func (*inspectCmd) Help() string {
	return `A count is told as low to high if the oldest bucket is only partly in the window; decisions use the high one. Ladder, prefix and secret, and on memcached skew and settle, are part of the stored key: with another one nothing is found. It writes nothing.

` + storeHelp + `

Examples:

    demo inspect --store redis://127.0.0.1:6379/0 signup ip:203.0.113.9
    demo inspect --store memcached://127.0.0.1:11211 --limits 10/h,100/d \
        --ladder 1s:1d,1m:1d,1h:1d --secret-env APP_SECRET mail user:17`
}

// Run prints the buckets and the counts of a key in the store.
func (c *inspectCmd) Run(e *env) error {
	cfg, err := c.config()
	if err != nil {
		return usageError{err}
	}
	store, err := openStore(c.Store, time.Duration(c.Timeout))
	if err != nil {
		return err
	}
	defer store.Close()
	count, err := counter.New(store.Store, cfg)
	if err != nil {
		return usageError{err}
	}
	if err := identify(e.ctx, store); err != nil {
		return err
	}
	q := inspect.Query{
		Key: counter.Key{Event: c.Event, Feature: c.Feature}, At: time.Time(c.At),
		Limits: counter.Limits(c.Limits), Rows: c.Limit, Ahead: time.Duration(c.Skew),
	}
	found, err := inspect.Look(e.ctx, count, q)
	if err != nil && !errors.Is(err, counter.ErrStore) {
		err = usageError{err}
	}
	if err != nil {
		return err
	}
	found.Store, found.Prefix = c.Store.String(), c.Prefix
	if c.JSON {
		return printJSON(e.stdout, found)
	}
	_, err = e.stdout.Write(c.render(found))
	return err
}

func (c *inspectCmd) config() (counter.Config, error) {
	cfg := counter.Config{
		Ladder: c.Ladder.Ladder, Prefix: c.Prefix, Skew: cmp.Or(time.Duration(c.Skew), -1), Settle: cmp.Or(time.Duration(c.Settle), -1),
		Patience: -1, // nobody waits for a verdict: the store's own timeout holds
		Now:      func() time.Time { return time.Time(c.At) },
	}
	if cfg.Ladder.Len() == 0 {
		cfg.Ladder = tiers.Default
	}
	if c.SecretEnv != "" {
		if cfg.Secret = []byte(os.Getenv(c.SecretEnv)); len(cfg.Secret) == 0 {
			return cfg, fmt.Errorf("--secret-env %s: the environment variable is empty or not set, want the secret in it", c.SecretEnv)
		}
	}
	switch {
	case c.Store.Kind == stores.InMemory:
		return cfg, errors.New("--store memory: such a store belongs to its process and has nothing here, want a Redis or a memcached")
	case c.Limit < 0:
		return cfg, fmt.Errorf("--limit %d: want 0 rows or more", c.Limit)
	}
	return cfg, c.Timeout.check("--timeout", 0)
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
		b.WriteString("\nNothing is counted. Ladder, prefix and secret, and on memcached skew and settle,\nmust be those of the program that counts: they are part of the stored key.\n")
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
