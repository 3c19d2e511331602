// Package rods shows the buckets of a key around a window: their counts, and which
// of them make up the window.
package rods

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Rod is a row of adjacent buckets of a tier. Times are milliseconds since the
// Unix epoch, lengths milliseconds.
type Rod struct {
	Name   string  `json:"name"` // for people: "minutes of the oldest hour"
	Side   string  `json:"side"` // of the window: "", "oldest" or "newest"
	Start  float64 `json:"start"`
	Width  float64 `json:"width"`  // of a bucket
	Counts []int64 `json:"counts"` // of the buckets, oldest first; Gone: no longer kept
	Ours   Range   `json:"ours"`   // of Ladder.Cover
}

// Gone is the count of a bucket that is older than the ladder promises to keep. A
// store keeps such a bucket for the Skew of the clocks longer, and a decision reads
// the bucket, but a Series does not.
const Gone = -1

// Range is the buckets with First <= i < End.
type Range struct {
	First int64 `json:"first"`
	End   int64 `json:"end"`
}

// View is the rods of a window that ends now: first the window's decision tier,
// and then, finer and finer, the buckets around both edges of the window.
type View struct {
	From float64 `json:"from"` // where the window begins
	Now  float64 `json:"now"`
	Ours int64   `json:"ours"` // buckets that make up the window; a store fetches fewer, or none
	Rods []Rod   `json:"rods"`
}

// Look reads the rods of a key for a window that ends at the counter's present. An
// error is the counter's: the ladder keeps no such window, or the store failed.
func Look(ctx context.Context, c *counter.Counter, key counter.Key, window time.Duration) (*View, error) {
	l, now := c.Config().Ladder, c.Config().Now()
	finest, err := l.Finest(window)
	if err != nil {
		return nil, err
	}
	ours, err := l.Cover(now, window, c.Config().Skew)
	if err != nil {
		return nil, err
	}
	oldest, newest := now.Add(-window-c.Config().Skew), now.Add(c.Config().Skew)
	v := &View{From: millis(now.Add(-window)), Now: millis(now), Ours: ours.Reads()}
	add := func(tier int, from, to time.Time, name, side string) error {
		t := l.At(tier)
		r := Rod{Name: name, Side: side, Width: float64(t.Width) / float64(time.Millisecond)}
		first := tiers.Index(from.UnixNano(), t.Width)
		r.Start = millis(tiers.Bucket{Width: t.Width, Index: first}.Start())
		if r.Counts, err = counts(ctx, c, key, t, from, to); err != nil {
			return err
		}
		n := int64(len(r.Counts))
		r.Ours = read(ours, t.Width, first, n)
		v.Rods = append(v.Rods, r)
		return nil
	}
	top := l.Decision(window)
	if err := add(top, oldest, newest.Add(1), Plural(l.At(top).Width), ""); err != nil {
		return nil, err
	}
	for tier := top - 1; tier >= finest; tier-- {
		width, around := l.At(tier).Width, l.At(tier+1).Width
		bucket := func(at time.Time) tiers.Bucket {
			return tiers.Bucket{Width: around, Index: tiers.Index(at.UnixNano(), around)}
		}
		// Where clocks differ, an edge may lie in two buckets.
		for _, edge := range []struct {
			side     string
			from, to time.Time
		}{{"oldest", oldest, now.Add(-window)}, {"newest", now, newest}} {
			name := fmt.Sprintf("%s of the %s %s", Plural(width), edge.side, Singular(around))
			if err := add(tier, bucket(edge.from).Start(), bucket(edge.to).End(), name, edge.side); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// counts are the counts of the buckets of a tier from the one with from until to.
func counts(ctx context.Context, c *counter.Counter, key counter.Key, t tiers.Tier, from, to time.Time) (all []int64, err error) {
	first := tiers.Index(from.UnixNano(), t.Width)
	kept := func() int64 { return tiers.Index(c.Config().Now().Add(-t.Keep).UnixNano(), t.Width) }
	for oldest := kept(); ; oldest = kept() {
		for ; first+int64(len(all)) < oldest && from.Before(to); from = from.Add(t.Width) {
			all = append(all, Gone)
		}
		if !from.Before(to) {
			return all, nil
		}
		points, err := c.Series(ctx, key, from, to, t.Width)
		if err == nil {
			for _, p := range points {
				all = append(all, p.Count)
			}
			return all, nil
		}
		if errors.Is(err, counter.ErrStore) || kept() == oldest {
			return nil, err // and not for a bucket that has just grown too old
		}
	}
}

// read is the part of n buckets, the oldest of which is first, that a cover reads.
func read(c tiers.Cover, width time.Duration, first, n int64) Range {
	for _, run := range c {
		if run.Width == width {
			r := Range{First: max(0, run.First-first), End: min(n, run.First+run.N-first)}
			if r.First < r.End {
				return r
			}
		}
	}
	return Range{}
}

func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1e3 }

var units = map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour", dur.Day: "day", dur.Week: "week"}

// Singular names a bucket by its width: "minute", "span of 10s".
func Singular(width time.Duration) string { return named(width, "") }

// Plural names buckets by their width: "minutes", "spans of 10s".
func Plural(width time.Duration) string { return named(width, "s") }

func named(width time.Duration, s string) string {
	if unit, is := units[width]; is {
		return unit + s
	}
	return "span" + s + " of " + dur.Format(width)
}
