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
	Slack  time.Duration // how much further back windows reach: skew and budget
}

// Allowed is what a Counter must answer to a call of weight n at the instant
// at: whether, for every limit, what was admitted since the start of the bucket
// that holds at-Per-Slack leaves room for n. That bucket is of the tier which
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
		edge := tiers.Index(at.UnixNano()-int64(limit.Per)-int64(j.Slack), width) * int64(width)
		allowed = allowed && log.since(edge)+n <= limit.Max
	}
	return allowed, nil
}

// Exact is what a limiter would answer that keeps every hit: whether, for every
// limit, what was admitted since at-Per leaves room for n. Where Exact is true
// and [Judge.Allowed] is false, the call was denied for the width of a bucket
// or for Slack.
func (j Judge) Exact(log *Log, at time.Time, n int64, limits counter.Limits) bool {
	for _, limit := range limits {
		if log.Since(at.Add(-limit.Per))+n > limit.Max {
			return false
		}
	}
	return true
}
