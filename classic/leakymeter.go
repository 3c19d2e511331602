package classic

import (
	"context"
	_ "embed"

	"github.com/abacus-go/abacus/counter"
)

// LeakyMeter is the leaky bucket as a meter: a hit pours one unit into a bucket
// that holds burst of them and drains Max in each Per; one that would make it
// overflow is denied. What has drained is worked out when somebody asks.
//
// Guarantee: at most burst + Max in a true window of length Per, 2*Max if burst
// is Max; that is reached. It is [TokenBucket] upside down, the units being the
// tokens that are missing, and decides alike, to the microsecond. They part where
// burst changes: here what was used stays used, there what is left stays left.
//
// Cost: one read, and if admitted one write; one round trip, one script. One
// state of some 130 bytes a key: units, part of a unit, instant.
//
// A limiter with another Max or burst and the same Per, on the same store, finds
// the units that are there. A caller whose clock is behind counts as if he came at
// the last hit. Remaining is the room left, and ResetAfter when the bucket is
// empty.
//
// Source: the counter that J. S. Turner describes in "New directions in
// communications (or which way to the information age?)", IEEE Communications
// Magazine, October 1986. For requests: limit_req of nginx, with nodelay.
//
// Prefer it to a TokenBucket if what you want to see and store is what was used.
type LeakyMeter struct{ engine[tokens] }

// NewLeakyMeter makes a LeakyMeter that drains limit.Max units in limit.Per; a
// burst of 0 is limit.Max. The error is as [NewTokenBucket] says.
func NewLeakyMeter(limit counter.Limit, burst int64, store *Store) (*LeakyMeter, error) {
	if burst == 0 {
		burst = limit.Max
	}
	if err := checkRate(limit, "burst", burst, store); err != nil {
		return nil, err
	}
	l := &LeakyMeter{}
	l.start("leaky-meter", limit, store, burst, rateOf(limit).time(burst).ceil(), &leakyMeter{e: &l.engine, rate: rateOf(limit)})
	return l, nil
}

var _ Measured = (*LeakyMeter)(nil)

//go:embed leakymeter.lua
var leakyMeterLua string

var leakyMeterScript = newScript(leakyMeterLua)

// leakyMeter is the rule. A state is whole units, part/per of one, an instant.
type leakyMeter struct {
	e *engine[tokens]
	rate
	single[tokens]
}

var _ rule[tokens] = (*leakyMeter)(nil)

// drained is more than anything takes to drain, 2^45 microseconds.
const drained = 1 << 45

func (r *leakyMeter) step(s *tokens, known bool, c *call) {
	c.reads++
	t := tokens{0, 0, c.now}
	if known {
		t.at = max(c.now, s.at)
		if passed := t.at - s.at; passed < drained {
			whole, part := mulDiv(passed, r.max, r.per)
			whole, part = s.whole-whole, s.part-part
			if part < 0 {
				whole, part = whole-1, part+r.per
			}
			if whole >= 0 {
				t.whole, t.part = whole, part
			}
		}
	}
	if c.allowed = t.used() <= r.e.most-c.n; c.allowed {
		t.whole += c.n
		*s = t
		c.writes++
	}
	c.facts[0], c.facts[1], c.facts[2] = t.whole, t.part, t.at
}

// used is whole units, a part being one.
func (t tokens) used() int64 {
	if t.part > 0 {
		return t.whole + 1
	}
	return t.whole
}

func (r *leakyMeter) remote(ctx context.Context, to *remote, name string, c *call) error {
	return to.run(ctx, leakyMeterScript, name, c, c.n, r.e.most, r.max, c.now, r.per, r.e.ttlMillis())
}

func (r *leakyMeter) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	t := tokens{c.facts[0], c.facts[1], c.facts[2]}
	return r.e.most - t.used(), r.until(t, r.e.most-c.n) - c.now, r.until(t, 0) - c.now
}

// until is when t has drained to n units; its own instant if it has.
func (r *leakyMeter) until(t tokens, n int64) int64 {
	if t.used() <= n {
		return t.at
	}
	us, rest := mulDiv(t.whole-n, r.per, r.max) // (us*max + rest + part) / max, rounded up
	return t.at + us + ceilDiv(rest+t.part, r.max)
}
