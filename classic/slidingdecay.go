package classic

import (
	"context"
	_ "embed"

	"github.com/abacus-go/abacus/counter"
)

// SlidingDecay keeps a counter and the instant of the last admitted hit. The
// counter falls in a straight line, to half after half a Per and to nothing
// after Per. SlidingDecay is the less usual of the two limiters called sliding
// window counter: a [SlidingCounter] with the last hit as the edge of its
// windows.
//
// A counter that falls by Max in Per, whatever its count, has the same name
// elsewhere, and is a [LeakyMeter] with a burst of Max. The counter of
// SlidingDecay falls the more slowly the lower it is, and so is the stricter of
// the two.
//
// Guarantee: at most 2*Max in a true window, by Max at once and Max spread
// evenly over the Per after; the bound is reached. Never more: the counter,
// which is at most Max, loses at most Max in Per.
//
// Cost: 1 read, and if admitted 1 write; 1 round trip, 1 script. A state of
// some 120 bytes a key.
//
// The counter is kept in 1024ths of a hit, rounded up with each admitted hit: a
// limit is stricter by less than a hit's 1024th for each hit. A caller whose
// clock is behind counts as if he came at the last hit.
//
// Source: limiters on Redis with a weight and the time of the last request in a
// hash, under the name of a sliding window; no publication to name.
//
// Prefer SlidingDecay to [SlidingCounter] where jumps at aligned edges, or a
// third number in the state, matter.
type SlidingDecay struct{ engine[level] }

// NewSlidingDecay makes a SlidingDecay. An error names the value that is out of bounds.
func NewSlidingDecay(limit counter.Limit, store *Store) (*SlidingDecay, error) {
	if err := checkLimit(limit, store); err != nil {
		return nil, err
	}
	l := &SlidingDecay{}
	l.start("sliding-decay", limit, store, limit.Max, micros(limit.Per), &slidingDecay{e: &l.engine, per: micros(limit.Per)})
	return l, nil
}

var _ Measured = (*SlidingDecay)(nil)

//go:embed slidingdecay.lua
var slidingDecayLua string

var slidingDecayScript = newScript(slidingDecayLua)

// fine is the number of parts of a hit in a counter that decays.
const fine = 1024

// level is a count, of hits or of parts of a hit, at an instant.
type level struct{ count, at int64 }

type slidingDecay struct {
	e   *engine[level]
	per int64
	single[level]
}

var _ rule[level] = (*slidingDecay)(nil)

// at is l decayed until now; l itself if now is before.
func (r *slidingDecay) at(l level, now int64) level {
	passed := max(0, now-l.at)
	if passed >= r.per {
		return level{0, now}
	}
	return level{mulDivUp(l.count, r.per-passed, r.per), l.at + passed}
}

func (r *slidingDecay) step(s *level, known bool, c *call) {
	c.cost.Reads++
	if !known {
		s.at = c.now
	}
	l := r.at(*s, c.now)
	if c.allowed = l.count <= (r.e.limit.Max-c.n)*fine; c.allowed {
		l.count += c.n * fine
		*s = l
		c.cost.Writes++
	}
	c.facts[0], c.facts[1] = s.count, s.at
}

func (r *slidingDecay) remote(ctx context.Context, to *remote, name string, c *call) error {
	return to.run(ctx, slidingDecayScript, name, c, c.n, r.e.limit.Max, c.now, r.per, r.e.ttlMillis())
}

func (r *slidingDecay) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	l := level{c.facts[0], c.facts[1]}
	room := max(0, r.e.limit.Max-c.n) * fine
	if l.count > room {
		part, _ := mulDiv(room, r.per, l.count)
		retryAfter = l.at + r.per - part - c.now
	}
	now := r.at(l, c.now)
	if now.count > 0 {
		resetAfter = l.at + r.per - c.now
	}
	return r.e.limit.Max - ceilDiv(now.count, fine), retryAfter, resetAfter
}
