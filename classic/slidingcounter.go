package classic

import (
	"context"
	_ "embed"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// SlidingCounter keeps two counters, of the current aligned window and of the
// window before, and estimates the last Per as the current count and the former
// count's share by overlap: a quarter into the current window, three quarters
// of the former count. SlidingCounter is the more usual of the two limiters
// called sliding window counter; the other is [SlidingDecay].
//
// Guarantee: at most Max by the estimate, which is right if the hits of the
// former window were spread evenly. Hits may come otherwise: in a true window
// up to 2*Max - 1, by Max at the end of a window and Max - 1 spread over the
// next.
//
// Cost: 1 read, and if admitted 1 write; 1 round trip, 1 script. A state of
// some 110 bytes a key: both counts and the window's number.
//
// A caller whose clock shows an older window than the newest window of the key
// counts as if he came at the start of the newest. The share is a fraction of
// whole numbers, and not rounded.
//
// Source: "How we built rate limiting capable of scaling to millions of
// domains", Julien Desgats, Cloudflare's blog, 2017, which found 0.003 % of 400
// million requests decided wrongly: most clients are far from their limit.
//
// Prefer SlidingCounter where a limit is a protection against load and not a
// promise, and a log would take too much memory.
type SlidingCounter struct{ engine[pair] }

// NewSlidingCounter makes a SlidingCounter. An error names the value that is out of bounds.
func NewSlidingCounter(limit counter.Limit, store *Store) (*SlidingCounter, error) {
	if err := checkLimit(limit, store); err != nil {
		return nil, err
	}
	l := &SlidingCounter{}
	l.start("sliding-counter", limit, store, limit.Max, 2*micros(limit.Per), &slidingCounter{e: &l.engine, per: micros(limit.Per)})
	return l, nil
}

var _ Measured = (*SlidingCounter)(nil)

//go:embed slidingcounter.lua
var slidingCounterLua string

var slidingCounterScript = newScript(slidingCounterLua)

// pair is a window with its count and the count of the window before.
type pair struct{ window, cur, prev int64 }

type slidingCounter struct {
	e   *engine[pair]
	per int64
	single[pair]
}

var _ rule[pair] = (*slidingCounter)(nil)

// at is p moved to the given window; p itself if the window is older.
func (p pair) at(window int64) pair {
	switch {
	case p.window >= window:
		return p
	case p.window == window-1:
		return pair{window, 0, p.cur}
	}
	return pair{window: window}
}

// estimate is the estimate of p at an instant of its window, rounded up: exact
// for a comparison with a whole number.
func (r *slidingCounter) estimate(p pair, elapsed int64) int64 {
	return p.cur + mulDivUp(p.prev, r.per-elapsed, r.per)
}

// elapsed is the time from the start of p's window to now; 0 if now is before.
func (r *slidingCounter) elapsed(p pair, now int64) int64 {
	return max(0, now-p.window*r.per)
}

func (r *slidingCounter) step(s *pair, known bool, c *call) {
	c.cost.Reads++
	p := pair{window: tiers.Index(c.now, time.Duration(r.per))}
	if known {
		p = s.at(p.window)
	}
	if c.allowed = r.estimate(p, r.elapsed(p, c.now)) <= r.e.limit.Max-c.n; c.allowed {
		p.cur += c.n
		*s = p
		c.cost.Writes++
	}
	c.facts[0], c.facts[1], c.facts[2] = p.window, p.cur, p.prev
}

func (r *slidingCounter) remote(ctx context.Context, to *remote, name string, c *call) error {
	window := tiers.Index(c.now, time.Duration(r.per))
	return to.run(ctx, slidingCounterScript, name, c, c.n, r.e.limit.Max, window, c.now-window*r.per, r.per, r.e.ttlMillis())
}

func (r *slidingCounter) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	p := pair{c.facts[0], c.facts[1], c.facts[2]}
	start, limit := p.window*r.per-c.now, r.e.limit.Max
	switch {
	case p.cur > 0:
		resetAfter = start + 2*r.per
	case p.prev > 0:
		resetAfter = start + r.per
	}
	room := limit - c.n
	if room < p.cur { // later than this window
		retryAfter = start + r.per + r.waits(p.cur, room)
	} else {
		retryAfter = start + r.waits(p.prev, room-p.cur)
	}
	return limit - r.estimate(p, r.elapsed(p, c.now)), retryAfter, resetAfter
}

// waits is the time from the start of a window until the share of the former
// window's count is at most room; with no room the whole window.
func (r *slidingCounter) waits(count, room int64) int64 {
	if count <= room {
		return 0
	}
	part, _ := mulDiv(max(0, room), r.per, count)
	return r.per - part
}
