// Package inspect reads the data of one key from a store, through the exported
// methods of a [counter.Counter].
package inspect

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Query describes the key and the window of a look.
type Query struct {
	Key    counter.Key
	At     time.Time      // the clock of the counter that looks
	Ahead  time.Duration  // how far other clocks may be ahead of At
	Limits counter.Limits // to count by, besides the usual windows
	Rows   int            // buckets of each tier, at most
}

// Found is the data of a key in a store, and the output of abacus inspect --json.
type Found struct {
	Store   string    `json:"store"`
	Event   string    `json:"event"`
	Feature string    `json:"feature"`
	Prefix  string    `json:"prefix"`
	Ladder  string    `json:"ladder"`
	At      time.Time `json:"at"`
	Windows []Window  `json:"windows"` // the shortest first
	Tiers   []Tier    `json:"tiers"`   // the finest first

	// By a limiter.
	Banned   string `json:"banned,omitempty"`   // the rest of a ban
	Override string `json:"override,omitempty"` // that holds, and its effect
}

// Window is the count of a window that ends now.
type Window struct {
	Length string `json:"length"`
	Low    int64  `json:"low"`
	High   int64  `json:"high"`
	Limit  string `json:"limit,omitempty"`
	Room   int64  `json:"room,omitempty"` // hits still admitted by the limit
	Free   string `json:"free,omitempty"` // the time until the limit has room, by a limiter
}

// Tier is the nonempty buckets of a width.
type Tier struct {
	Width   string   `json:"width"`
	Keep    string   `json:"keep"`
	Buckets []Bucket `json:"buckets"` // the newest first
	More    bool     `json:"more"`    // there may be older buckets
}

// Bucket is the count of a bucket.
type Bucket struct {
	Start time.Time `json:"start"`
	Count int64     `json:"count"`
}

// Empty reports whether nothing was found.
func (f *Found) Empty() bool {
	return f.Banned == "" && !slices.ContainsFunc(f.Windows, func(w Window) bool { return w.High > 0 }) &&
		!slices.ContainsFunc(f.Tiers, func(t Tier) bool { return len(t.Buckets) > 0 })
}

// Look asks c, whose clock must stand at q.At.
func Look(ctx context.Context, c *counter.Counter, q Query) (*Found, error) {
	l := c.Config().Ladder
	f := &Found{Event: q.Key.Event, Feature: q.Key.Feature, Ladder: l.String(), At: q.At.UTC(), Tiers: make([]Tier, l.Len())}
	for _, w := range windows(l, q.Limits) {
		count, err := c.Count(ctx, q.Key, w.Per)
		if err != nil {
			return nil, err
		}
		found := Window{Length: dur.Format(w.Per), Low: count.Low, High: count.High}
		if w.Max > 0 {
			found.Limit, found.Room = w.String(), max(0, w.Max-count.High)
		}
		f.Windows = append(f.Windows, found)
	}
	// Only the filled spans of a tier are searched in the next finer tier.
	spans := []Span{{q.At.Add(-l.At(l.Len() - 1).Keep), q.At.Add(q.Ahead + 1)}}
	for i := l.Len() - 1; i >= 0; i-- {
		var err error
		if spans, err = f.tier(ctx, c, q, i, spans); err != nil {
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
	slices.SortStableFunc(all, func(a, b counter.Limit) int { return cmp.Compare(a.Per, b.Per) })
	return all
}

// Span is the time in [From, To).
type Span struct{ From, To time.Time }

// Filled yields the buckets of a tier within spans that have hits: the spans in turn, and
// within each the newest bucket first.
func Filled(ctx context.Context, c *counter.Counter, key counter.Key, t tiers.Tier, spans []Span) iter.Seq2[counter.Point, error] {
	return func(yield func(counter.Point, error) bool) {
		oldest := c.Config().Now().Add(-t.Keep)
		for _, in := range spans {
			in.From = latest(in.From, oldest)
			for in.From.Before(in.To) {
				points, err := c.Series(ctx, key, latest(in.From, in.To.Add(-counter.MaxPoints/2*t.Width)), in.To, t.Width)
				if err != nil {
					yield(counter.Point{}, err)
					return
				}
				for _, p := range slices.Backward(points) {
					if p.Count > 0 && !yield(p, nil) {
						return
					}
				}
				in.To = points[0].Start
			}
		}
	}
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// tier looks through spans, the newest first, until enough buckets of tier i are
// found. The buckets are returned as spans for the next finer tier: no more spans
// than rows are needed, since each span has a bucket at least.
func (f *Found) tier(ctx context.Context, c *counter.Counter, q Query, i int, spans []Span) (filled []Span, err error) {
	t := c.Config().Ladder.At(i)
	found := &f.Tiers[i]
	found.Width, found.Keep, found.Buckets = dur.Format(t.Width), dur.Format(t.Keep), []Bucket{}
	most := max(1, q.Rows) // also of a tier without wanted rows
	for p, err := range Filled(ctx, c, q.Key, t, spans) {
		if err != nil {
			return nil, err
		}
		if len(filled) == most {
			found.More = true
			return filled, nil
		}
		filled = append(filled, Span{p.Start, p.Start.Add(t.Width)})
		if q.Rows > 0 {
			found.Buckets = append(found.Buckets, Bucket{p.Start.UTC(), p.Count})
		}
	}
	found.More = len(filled) == most && i < len(f.Tiers)-1 && f.Tiers[i+1].More
	return filled, nil
}
