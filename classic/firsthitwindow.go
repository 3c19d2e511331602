package classic

import (
	"context"

	"github.com/abacus-go/abacus/counter"
)

// FirstHitWindow is a fixed window that begins with the first hit of a key, and
// not with the clock: from the first hit until Per after, both ends included. The
// next hit begins the next window.
//
// Guarantee: at most Max in each of the key's windows, and 2*Max - 1 in any true
// window: a single hit to begin a window, Max - 1 at its end, and Max just after.
// With a Max of 10 that is 19. With a Max of 1 the limiter is exact. A first call
// of n hits leaves 2*Max - n.
//
// Cost: 1 read, and if admitted 1 write; 1 round trip, 1 script. A state of some
// 110 bytes a key: the instant of the first hit, and the count. [FixedWindow] has
// a counter for each window.
//
// The windows of two keys begin at different instants, so no clock tells all
// clients at once to come back. A client cannot prepare for an edge that the
// calendar has set, and can set an edge for itself, by a hit.
//
// A caller whose clock is behind counts in the window of the caller ahead.
//
// Source: INCR, and EXPIRE if the count is 1, the second pattern in the
// documentation of Redis's INCR; most libraries that count in a "fixed window" on
// Redis do so. There the server's time to live is the window, and ends it at Per
// sharp, so that a hit of the next window can be at the very instant: 2*Max with
// both ends. Here the caller's clock decides, and the time to live only clears
// away.
//
// Prefer FirstHitWindow to a [FixedWindow] where no calendar is meant, such as
// three codes by text message in ten minutes.
type FirstHitWindow struct{ engine[slot] }

// NewFirstHitWindow makes a FirstHitWindow. An error names the value that is out of
// bounds.
func NewFirstHitWindow(limit counter.Limit, store *Store) (*FirstHitWindow, error) {
	if err := checkLimit(limit, store); err != nil {
		return nil, err
	}
	l := &FirstHitWindow{}
	l.start("first-hit-window", limit, store, limit.Max, micros(limit.Per), &firstHitWindow{e: &l.engine, per: micros(limit.Per)})
	return l, nil
}

var _ Measured = (*FirstHitWindow)(nil)

// firstHitWindow is the rule. A window's number is its first instant.
type firstHitWindow struct {
	e   *engine[slot]
	per int64
	single[slot]
}

var _ rule[slot] = (*firstHitWindow)(nil)

func (r *firstHitWindow) step(s *slot, known bool, c *call) {
	s.count(c, r.e.limit.Max, c.now, c.now-r.per, known)
}

func (r *firstHitWindow) remote(ctx context.Context, to *remote, name string, c *call) error {
	return to.run(ctx, slotScript, name, c, c.n, r.e.limit.Max, c.now, c.now-r.per, r.e.ttlMillis())
}

func (r *firstHitWindow) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	next := c.facts[0] + r.per + 1 - c.now
	if c.facts[1] > 0 {
		resetAfter = next
	}
	return r.e.limit.Max - c.facts[1], next, resetAfter
}
