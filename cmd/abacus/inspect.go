package main

import (
	"context"
	"slices"
	"time"

	"github.com/abacus-go/abacus/cmd/abacus/internal/inspect"
	"github.com/abacus-go/abacus/cmd/abacus/internal/rulesdiff"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

type inspectCmd struct {
	Event   string      `arg:"" help:"The event of the key, such as signup."`
	Feature string      `arg:"" help:"The feature of the key, such as ip:203.0.113.9 or email:ada@example.org."`
	Terms   terms       `embed:""`
	Plan    string      `help:"With --rules: judge by the limits of this plan." placeholder:"NAME"`
	Keys    keys        `embed:""`
	At      cli.Instant `help:"Look as it would be seen then: now (the default), 23:30:33 (today, UTC) or 2026-03-02T23:30:33Z." default:"now" placeholder:"TIME"`
	Limit   int         `help:"Show at most this many buckets of each tier, the newest that are not empty. Default: ${default}." default:"10" placeholder:"ROWS"`
	JSON    bool        `help:"Print one JSON object."`
}

// Help is the part of --help that follows the summary.
func (*inspectCmd) Help() string {
	return `A count is told as low to high if the oldest bucket is only partly in the window; decisions use the high one. It writes nothing.

` + keysHelp + `

` + cli.StoreHelp + `

Examples:

    abacus inspect --rules rules.yaml --store redis://127.0.0.1:6379/0 \
        signup email:Ada@Example.org
    abacus inspect --limits 10/h,100/d --store memcached://127.0.0.1:11211 \
        --ladder 1s:1d,1m:1d,1h:1d --secret-env APP_SECRET jobs 17`
}

// Run prints the buckets and the counts of a key in the store.
func (c *inspectCmd) Run(e *cli.Env) error {
	if c.Limit < 0 {
		return cli.Usagef("--limit %d: want 0 rows or more", c.Limit)
	}
	store, err := c.Keys.open(e.Ctx, c.Terms, func() time.Time { return time.Time(c.At) })
	if err != nil {
		return err
	}
	defer store.Close()
	q := inspect.Query{
		Key: counter.Key{Event: c.Event, Feature: c.Feature}, At: time.Time(c.At), Limits: counter.Limits(c.Terms.Limits), Rows: c.Limit, Ahead: time.Duration(c.Keys.Program.Skew),
	}
	count := store.count
	var usage limiter.Usage
	if store.lim != nil {
		if usage, count, err = c.usage(e.Ctx, store); err != nil {
			return err
		}
		q.Key = usage.Key
		for _, l := range usage.Limits {
			q.Limits = append(q.Limits, l.Limit)
		}
	}
	seen, err := inspect.Look(e.Ctx, count, q)
	if err != nil {
		return notStore(err)
	}
	seen.Store, seen.Prefix = c.Keys.Store.String(), c.Keys.Program.Prefix
	ruledBy(seen, usage)
	err = e.Print(c.JSON, "inspect", seen)
	if err == nil && seen.Empty() {
		err = found([]string{text.Key(c.Event, c.Feature, cli.Columns)})
	}
	return err
}

// usage asks the limiter of the program, and returns its counter for the key.
func (c *inspectCmd) usage(ctx context.Context, store *opened) (u limiter.Usage, count *counter.Counter, err error) {
	f, err := c.Keys.Program.feature(c.Feature)
	if err != nil {
		return u, nil, err
	}
	if c.Plan != "" {
		plan := store.set.Plan(c.Event, f.Kind(), c.Plan)
		if plan == nil {
			return u, nil, cli.Usagef("--plan %s: no plan of a rule %s", c.Plan, limiter.Rule{Event: c.Event, Kind: f.Kind()})
		}
		f = limiter.Under(f, plan)
	}
	all, err := store.lim.Usage(ctx, c.Event, f)
	if err != nil {
		return u, nil, notStore(err)
	}
	rules := store.lim.Rules(c.Event)
	rule := rules[slices.IndexFunc(rules, func(r limiter.Rule) bool { return by(r, f.Kind()) })]
	count, err = store.count.With(rule.Ladder, rule.Former)
	return all[0], count, err
}

// ruledBy adds the findings of a limiter.
func ruledBy(f *inspect.Found, u limiter.Usage) {
	if u.Banned > 0 {
		f.Banned = text.Rest(u.Banned)
	}
	if u.Override != nil {
		f.Override = u.Override.String() + ": " + rulesdiff.Effect(*u.Override)
	}
	for _, l := range u.Limits {
		for i := range f.Windows {
			if w := &f.Windows[i]; w.Limit == l.Limit.String() && l.RetryAfter > 0 {
				w.Free = text.Rest(l.RetryAfter)
			}
		}
	}
}
