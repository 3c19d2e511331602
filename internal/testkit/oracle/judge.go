// Package oracle knows the truth that counters and stores are judged by: a [Log]
// keeps every hit of a key, a [Judge] computes the right answer of a Counter, and
// a [Store] bounds the right answers of a store.
//
// Tests use all three, and the demo checks its decisions with a Log and a Judge.
// The code is plain and exact; Log and Judge panic on misuse, and nothing here is
// safe for concurrent use. Package counter's tests can use oracle from package
// counter_test only, since a Judge knows counter's limits.
package oracle

import (
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/hitlog"
	"github.com/abacus-go/abacus/tiers"
)

// Log is every hit of a key.
type Log = hitlog.Log

// Judge computes the right answer of a call from the log of the hits that were
// admitted before the call, whatever the order of the hits in time. Its methods panic for
// a limit that the ladder does not hold.
type Judge struct {
	Ladder tiers.Ladder
	Skew   time.Duration // by which every window reaches further back than Per
	Settle time.Duration // that of callers by ticket; 0 on a store with an atomic step
}

// Count returns the number that a Counter counts at the instant at in the window of a
// limit: all hits since the start of the bucket that holds at-Reach, or since the start
// of the period that holds at. The bucket belongs to the tier of the window's edge,
// [tiers.Ladder.Finest].
func (j Judge) Count(log *Log, at time.Time, limit counter.Limit) int64 {
	return log.Since(j.Start(at, limit))
}

// Start returns the start of the window that Count counts.
func (j Judge) Start(at time.Time, limit counter.Limit) time.Time {
	return j.start(at, limit, j.finest(limit))
}

// finest is the tier of the window's edge.
func (j Judge) finest(limit counter.Limit) int {
	fine, err := j.Ladder.Finest(limit.Window())
	if err != nil {
		panic(err)
	}
	return fine
}

// start is Start with the edge of the window in the given tier.
func (j Judge) start(at time.Time, limit counter.Limit, tier int) time.Time {
	if !limit.Period.IsZero() {
		start, _ := limit.Period.Span(at.UnixNano())
		return time.Unix(0, start)
	}
	width := j.Ladder.At(tier).Width
	return tiers.Bucket{Width: width, Index: tiers.Index(at.UnixNano()-int64(j.Reach(limit.Per)), width)}.Start()
}

// Allowed reports the answer that a Counter must give to a call of weight n at the
// instant at: true if, for every limit, the hits of [Judge.Count] leave room for n.
func (j Judge) Allowed(log *Log, at time.Time, n int64, limits counter.Limits) bool {
	return !slices.ContainsFunc(limits, func(l counter.Limit) bool { return j.Count(log, at, l)+n > l.Max })
}

// Room returns the number of hits for which limit has room after an admitted call
// of n hits at the instant at, and the least number that a Counter may tell if the
// bucket at the left edge belongs to the decision tier.
func (j Judge) Room(log *Log, at time.Time, n int64, limit counter.Limit) (room, least int64) {
	left := func(tier int) int64 { return max(0, limit.Max-n-log.Since(j.start(at, limit, tier))) }
	return left(j.finest(limit)), left(j.Ladder.Decision(limit.Window()))
}

// Empty returns the time from the instant at until the window of a limit is empty
// without other hits: until the last bucket with a hit has left it. late is the
// same for the hits themselves, without the rest of their bucket. Both are 0 for a
// window without hits.
func (j Judge) Empty(log *Log, at time.Time, limit counter.Limit) (until, late time.Duration) {
	newest, any := log.Newest(j.Start(at, limit))
	if !any {
		return 0, 0
	}
	if !limit.Period.IsZero() {
		_, end := limit.Period.Span(newest.UnixNano())
		until = time.Duration(end - at.UnixNano())
		return until, until
	}
	width, reach := j.Ladder.At(j.finest(limit)).Width, j.Reach(limit.Per)
	last := tiers.Bucket{Width: width, Index: tiers.Index(newest.UnixNano(), width)}
	return last.End().Add(reach).Sub(at), newest.Add(reach).Sub(at)
}

// Reach returns the distance from a call back to the start of a window of length
// per: Per + Skew. By ticket a window as wide as its decision tier's bucket reaches
// further, by the excess of Settle over their difference.
func (j Judge) Reach(per time.Duration) time.Duration {
	reach := per + j.Skew
	if top := j.Ladder.Decision(per); top >= 0 && j.Settle > 0 {
		reach += max(0, j.Settle-(per-j.Ladder.At(top).Width))
	}
	return reach
}

// Exact reports the answer of a limiter that keeps every hit: true if, for every
// limit, the hits admitted since at-Per, or in the period so far, leave room for n. Where Exact is true and
// [Judge.Allowed] is false, the call was denied for the width of a bucket or for
// the reach beyond Per.
func (j Judge) Exact(log *Log, at time.Time, n int64, limits counter.Limits) bool {
	return !slices.ContainsFunc(limits, func(l counter.Limit) bool {
		from := at.Add(-l.Per)
		if !l.Period.IsZero() {
			from = j.start(at, l, 0)
		}
		return log.Since(from)+n > l.Max
	})
}
