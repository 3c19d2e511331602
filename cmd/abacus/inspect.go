package main

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
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
	return `A count is shown as low to high if the oldest bucket is only partly in the window; decisions use the high one. It writes nothing.

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
	key, limits, count := counter.Key{Event: c.Event, Feature: c.Feature}, counter.Limits(c.Terms.Limits), store.count
	var usage limiter.Usage
	if store.lim != nil {
		if usage, count, err = c.usage(e.Ctx, store); err != nil {
			return err
		}
		key = usage.Key
		for _, l := range usage.Limits {
			limits = append(limits, l.Limit)
		}
	}
	seen, err := c.look(e.Ctx, count, key, limits, usage)
	if err != nil {
		return notStore(err)
	}
	seen.Store, seen.Prefix = c.Keys.Store.String(), c.Keys.Program.Prefix
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

// inspected is the data of a key in a store, and the output of abacus inspect --json.
type inspected struct {
	Store   string       `json:"store"`
	Event   string       `json:"event"`
	Feature string       `json:"feature"`
	Prefix  string       `json:"prefix"`
	Ladder  string       `json:"ladder"`
	At      time.Time    `json:"at"`
	Windows []windowSeen `json:"windows"` // the shortest first
	Tiers   []tierSeen   `json:"tiers"`   // the finest first

	// By a limiter.
	Banned   string `json:"banned,omitempty"`   // the rest of a ban
	BanStep  int    `json:"ban_step,omitempty"` // of the last ban that is remembered
	Override string `json:"override,omitempty"` // that holds, and its effect
}

// windowSeen is the count of a window that ends now.
type windowSeen struct {
	Length string `json:"length"`
	Low    int64  `json:"low"`
	High   int64  `json:"high"`
	Limit  string `json:"limit,omitempty"`
	Room   int64  `json:"room,omitempty"` // hits still admitted by the limit
	Free   string `json:"free,omitempty"` // the time until the limit has room, by a limiter
}

// tierSeen is the nonempty buckets of a width.
type tierSeen struct {
	Width   string       `json:"width"`
	Keep    string       `json:"keep"`
	Buckets []bucketSeen `json:"buckets"` // the newest first
	More    bool         `json:"more"`    // there may be older buckets
}

// bucketSeen is the count of a bucket.
type bucketSeen struct {
	Start time.Time `json:"start"`
	Count int64     `json:"count"`
}

// Empty reports whether nothing was found.
func (f *inspected) Empty() bool {
	return f.BanStep == 0 && !slices.ContainsFunc(f.Windows, func(w windowSeen) bool { return w.High > 0 }) &&
		!slices.ContainsFunc(f.Tiers, func(t tierSeen) bool { return len(t.Buckets) > 0 })
}

// look asks count, whose clock must stand at c.At, for the windows of limits besides the
// usual ones. u is what a limiter says of the key.
func (c *inspectCmd) look(ctx context.Context, count *counter.Counter, key counter.Key, limits counter.Limits, u limiter.Usage) (*inspected, error) {
	l, at := count.Config().Ladder, time.Time(c.At)
	f := &inspected{Event: key.Event, Feature: key.Feature, Ladder: l.String(), At: at.UTC(), Tiers: make([]tierSeen, l.Len())}
	for _, w := range windows(l, limits) {
		hits, err := hitsOf(ctx, count, key, w)
		if err != nil {
			return nil, err
		}
		found := windowSeen{Length: cmp.Or(w.Period.String(), dur.Format(w.Per)), Low: hits.Low, High: hits.High}
		if w.Max > 0 {
			found.Limit, found.Room = w.String(), max(0, w.Max-hits.High)
		}
		for _, l := range u.Limits {
			if l.Limit == w {
				found.Free = text.Rest(l.RetryAfter)
			}
		}
		f.Windows = append(f.Windows, found)
	}
	f.BanStep, f.Banned = u.BanStep, text.Rest(u.Banned)
	if u.Override != nil {
		f.Override = u.Override.String() + ": " + effectOf(*u.Override)
	}
	// Only the filled spans of a tier are searched in the next finer tier.
	spans := []span{{at.Add(-l.At(l.Len() - 1).Keep), at.Add(time.Duration(c.Keys.Program.Skew) + 1)}}
	for i := l.Len() - 1; i >= 0; i-- {
		var err error
		if spans, err = f.tier(ctx, count, key, c.Limit, i, spans); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// windows lists the windows of the limits and the usual windows that l can count,
// the shortest first; without a limit Max is zero.
func windows(l tiers.Ladder, limits counter.Limits) []counter.Limit {
	all := slices.Clone(limits)
	longest := l.At(l.Len() - 1).Keep
	for _, per := range []time.Duration{time.Second, time.Minute, time.Hour, dur.Day, dur.Week, 30 * dur.Day, longest} {
		if _, err := l.Finest(per); err != nil || slices.ContainsFunc(all, func(w counter.Limit) bool { return w.Per == per }) {
			continue
		}
		all = append(all, counter.Limit{Per: per})
	}
	slices.SortStableFunc(all, func(a, b counter.Limit) int { return cmp.Compare(a.Window(), b.Window()) })
	return all
}

// hitsOf returns the hits of key in the window of a limit. No bucket of a period counts in
// part.
func hitsOf(ctx context.Context, c *counter.Counter, key counter.Key, limit counter.Limit) (counter.Count, error) {
	if limit.Period.IsZero() {
		return c.Count(ctx, key, limit.Per)
	}
	limit.Max = counter.MaxCount
	v, err := c.Peek(ctx, key, 0, counter.Limits{limit})
	n := counter.MaxCount - v.Remaining
	return counter.Count{Low: n, High: n}, err
}

// span is the time in [from, to).
type span struct{ from, to time.Time }

// filledIn yields the buckets of a tier within spans that have hits: the spans in turn, and
// within each the newest bucket first.
func filledIn(ctx context.Context, c *counter.Counter, key counter.Key, t tiers.Tier, spans []span) iter.Seq2[counter.Point, error] {
	return func(yield func(counter.Point, error) bool) {
		oldest := c.Config().Now().Add(-t.Keep)
		for _, in := range spans {
			in.from = latest(in.from, oldest)
			for in.from.Before(in.to) {
				points, err := c.Series(ctx, key, latest(in.from, in.to.Add(-counter.MaxPoints/2*t.Width)), in.to, t.Width)
				if err != nil {
					yield(counter.Point{}, err)
					return
				}
				for _, p := range slices.Backward(points) {
					if p.Count > 0 && !yield(p, nil) {
						return
					}
				}
				in.to = points[0].Start
			}
		}
	}
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// tier looks through spans, the newest first, until enough buckets of tier i are
// found. The buckets are returned as spans for the next finer tier: no more spans
// than rows are needed, since each span has a bucket at least.
func (f *inspected) tier(ctx context.Context, c *counter.Counter, key counter.Key, rows, i int, spans []span) (filled []span, err error) {
	t := c.Config().Ladder.At(i)
	found := &f.Tiers[i]
	found.Width, found.Keep, found.Buckets = dur.Format(t.Width), dur.Format(t.Keep), []bucketSeen{}
	most := max(1, rows) // also of a tier without wanted rows
	for p, err := range filledIn(ctx, c, key, t, spans) {
		if err != nil {
			return nil, err
		}
		if len(filled) == most {
			found.More = true
			return filled, nil
		}
		filled = append(filled, span{p.Start, p.Start.Add(t.Width)})
		if rows > 0 {
			found.Buckets = append(found.Buckets, bucketSeen{p.Start.UTC(), p.Count})
		}
	}
	found.More = len(filled) == most && i < len(f.Tiers)-1 && f.Tiers[i+1].More
	return filled, nil
}
