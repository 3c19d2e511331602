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
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/hitlog"
	"github.com/abacus-go/abacus/tiers"
)

// Log is every hit of a key.
type Log = hitlog.Log

// Judge computes the right answer of a call from the log of the hits that were
// admitted before the call, whatever the order of the hits in time.
type Judge struct {
	Ladder tiers.Ladder
	Skew   time.Duration // by which every window reaches further back than Per
	Settle time.Duration // that of callers by ticket; 0 on a store with an atomic step
}

// Count returns the number that a Counter counts at the instant at in the window of a
// limit: all hits since the start of the bucket that holds at-Reach, or since the start
// of the period that holds at. The bucket belongs to the tier of the window's edge,
// [tiers.Ladder.Finest], whose error Count returns.
func (j Judge) Count(log *Log, at time.Time, limit counter.Limit) (int64, error) {
	start, err := j.Start(at, limit)
	if err != nil {
		return 0, err
	}
	return log.Since(start), nil
}

// Start returns the start of the window that Count counts.
func (j Judge) Start(at time.Time, limit counter.Limit) (time.Time, error) {
	fine, err := j.Ladder.Finest(limit.Window())
	if err != nil {
		return time.Time{}, err
	}
	return j.start(at, limit, fine), nil
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
func (j Judge) Allowed(log *Log, at time.Time, n int64, limits counter.Limits) (bool, error) {
	allowed := true
	for _, limit := range limits {
		count, err := j.Count(log, at, limit)
		if err != nil {
			return false, err
		}
		allowed = allowed && count+n <= limit.Max
	}
	return allowed, nil
}

// Room returns the number of hits for which limit has room after an admitted call
// of n hits at the instant at, and the least number that a Counter may tell if the
// bucket at the left edge belongs to the decision tier.
func (j Judge) Room(log *Log, at time.Time, n int64, limit counter.Limit) (room, least int64, err error) {
	fine, err := j.Ladder.Finest(limit.Window())
	if err != nil {
		return 0, 0, err
	}
	left := func(tier int) int64 { return max(0, limit.Max-n-log.Since(j.start(at, limit, tier))) }
	return left(fine), left(j.Ladder.Decision(limit.Window())), nil
}

// Empty returns the time from the instant at until the window of a limit is empty
// without other hits: until the last bucket with a hit has left it. late is the
// same for the hits themselves, without the rest of their bucket. Both are 0 for a
// window without hits.
func (j Judge) Empty(log *Log, at time.Time, limit counter.Limit) (until, late time.Duration, err error) {
	start, err := j.Start(at, limit)
	if err != nil {
		return 0, 0, err
	}
	newest, any := log.Newest(start)
	if !any {
		return 0, 0, nil
	}
	if !limit.Period.IsZero() {
		_, end := limit.Period.Span(newest.UnixNano())
		until = time.Duration(end - at.UnixNano())
		return until, until, nil
	}
	fine, _ := j.Ladder.Finest(limit.Per) // as in Start
	width, reach := j.Ladder.At(fine).Width, j.Reach(limit.Per)
	last := tiers.Bucket{Width: width, Index: tiers.Index(newest.UnixNano(), width)}
	return last.End().Add(reach).Sub(at), newest.Add(reach).Sub(at), nil
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
	for _, limit := range limits {
		from := at.Add(-limit.Per)
		if !limit.Period.IsZero() {
			from = j.start(at, limit, 0)
		}
		if log.Since(from)+n > limit.Max {
			return false
		}
	}
	return true
}
