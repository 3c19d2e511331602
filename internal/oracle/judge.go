package oracle

import (
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Judge says what a call must have answered, given the log of the hits that
// were admitted before it, whatever their order in time.
type Judge struct {
	Ladder tiers.Ladder
	Skew   time.Duration // by which every window reaches further back than Per
	Settle time.Duration // that of callers by ticket; 0 on a store with an atomic step
}

// Allowed is what a Counter must answer to a call of weight n at the instant
// at: whether, for every limit, what was admitted since the start of the bucket
// that holds at-Reach leaves room for n. That bucket is of the tier which
// the window's edge is read from, [tiers.Ladder.Finest], whose error it
// returns.
func (j Judge) Allowed(log *Log, at time.Time, n int64, limits counter.Limits) (bool, error) {
	allowed := true
	for _, limit := range limits {
		fine, err := j.Ladder.Finest(limit.Per)
		if err != nil {
			return false, err
		}
		width := j.Ladder.At(fine).Width
		edge := tiers.Index(at.UnixNano()-int64(j.Reach(limit.Per)), width) * int64(width)
		allowed = allowed && log.since(edge)+n <= limit.Max
	}
	return allowed, nil
}

// Reach is how far before a call its window of length per begins: Per + Skew,
// and by ticket further where the window is as wide as its decision tier's
// bucket, by what Settle exceeds their difference.
func (j Judge) Reach(per time.Duration) time.Duration {
	reach := per + j.Skew
	if top := j.Ladder.Decision(per); top >= 0 && j.Settle > 0 {
		reach += max(0, j.Settle-(per-j.Ladder.At(top).Width))
	}
	return reach
}

// Exact is what a limiter would answer that keeps every hit: whether, for every
// limit, what was admitted since at-Per leaves room for n. Where Exact is true
// and [Judge.Allowed] is false, the call was denied for the width of a bucket
// or for what the window reaches further back than Per.
func (j Judge) Exact(log *Log, at time.Time, n int64, limits counter.Limits) bool {
	for _, limit := range limits {
		if log.Since(at.Add(-limit.Per))+n > limit.Max {
			return false
		}
	}
	return true
}
