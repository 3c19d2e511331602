package classic

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// FixedWindow counts the hits of each aligned window of length Per: 10:00 to
// 11:00, 11:00 to 12:00. A new window begins from nothing.
//
// Guarantee: at most Max in each aligned window; 2*Max in any other window,
// half of the hits at the end of an aligned window and half at the beginning of
// the next.
//
// Cost: 1 read, and if admitted 1 write, 2 in a new window; 1 round trip, 1
// script. A counter of some 100 bytes for each window with a hit, until Per and
// Grace after its first hit: with windows of a second, and sixty seconds of
// Grace, up to 62 counters a key. [FixedSlots] has three.
//
// A caller whose clock is behind counts in the window of his clock, as long as
// the counter of the window is kept.
//
// Source: the rate limiter patterns in the documentation of Redis's INCR. There
// the check and the counting are two steps, so racers get in together; and in a
// pattern with the time to live as a third step, a crash before the third step
// blocks the key for ever. Here all three steps are a single script.
//
// Prefer FixedWindow where limits follow the calendar, such as a quota a day
// that starts again at midnight UTC, or where the cheapest limiter is good
// enough.
type FixedWindow struct{ engine[int64] }

// NewFixedWindow makes a FixedWindow. An error names the value that is out of bounds.
func NewFixedWindow(limit counter.Limit, store *Store) (*FixedWindow, error) {
	if err := checkLimit(limit, store); err != nil {
		return nil, err
	}
	l := &FixedWindow{}
	l.start("fixed-window", limit, store, limit.Max, micros(limit.Per), &fixedWindow{e: &l.engine, per: limit.Per / 1000})
	return l, nil
}

var _ Measured = (*FixedWindow)(nil)

//go:embed fixedwindow.lua
var fixedWindowLua string

var fixedWindowScript = newScript(fixedWindowLua)

// fixedWindow is the rule. A state is the count of a window.
type fixedWindow struct {
	e   *engine[int64]
	per time.Duration // in microseconds
}

var _ rule[int64] = (*fixedWindow)(nil)

func (r *fixedWindow) step(count *int64, _ bool, c *call) {
	c.cost.Reads++
	if c.allowed = *count <= r.e.limit.Max-c.n; c.allowed {
		*count += c.n
		c.cost.Writes++
	}
	c.facts[0] = *count
}

func (r *fixedWindow) remote(ctx context.Context, to *remote, name string, c *call) error {
	return to.run(ctx, fixedWindowScript, name, c, c.n, r.e.limit.Max, r.e.ttlMillis())
}

func (r *fixedWindow) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	end := (tiers.Index(c.now, r.per)+1)*int64(r.per) - c.now
	if c.facts[0] > 0 {
		resetAfter = end
	}
	return r.e.limit.Max - c.facts[0], end, resetAfter
}

func (r *fixedWindow) name(base string, now int64) string {
	return base + strconv.FormatInt(tiers.Index(now, r.per), 10)
}

func (r *fixedWindow) names(base string, now int64) (names []string) {
	for w := tiers.Index(now-r.e.ttl, r.per); w <= tiers.Index(now, r.per); w++ {
		names = append(names, base+strconv.FormatInt(w, 10))
	}
	return names
}

func (*fixedWindow) bytes(*int64) int64 { return 0 }
