package classic

import (
	"context"
	_ "embed"

	"github.com/abacus-go/abacus/counter"
)

// LeakyMeter is the leaky bucket as a meter: a hit pours one unit into a bucket
// of burst units, which drains Max units in each Per; a hit that would make the
// bucket overflow is denied. Draining is calculated at each call.
//
// Guarantee: at most burst + Max in a true window of length Per, 2*Max if burst
// is Max; the bound is reached. LeakyMeter is [TokenBucket] upside down, the
// units being the missing tokens, and decides alike, to the microsecond. The
// two differ after a change of burst: a LeakyMeter keeps the units that were
// used, a TokenBucket the tokens that were left.
//
// Cost: 1 read, and if admitted 1 write; 1 round trip, 1 script. A state of
// some 130 bytes a key: units, part of a unit, instant.
//
// A limiter with another Max or burst and the same Per, on the same store,
// finds the units of the first. A caller whose clock is behind counts as if he
// came at the last hit. Remaining is the number of units until the bucket is
// full, and ResetAfter the time until the bucket is empty.
//
// Source: the counter that J. S. Turner describes in "New directions in
// communications (or which way to the information age?)", IEEE Communications
// Magazine, October 1986. For requests: limit_req of nginx, with nodelay.
//
// Prefer LeakyMeter to a TokenBucket to see and store the use, rather than the
// tokens left.
type LeakyMeter struct{ engine[tokens] }

// NewLeakyMeter makes a LeakyMeter that drains limit.Max units in limit.Per; a
// burst of 0 is limit.Max. Errors are the errors of [NewTokenBucket].
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

// leakyMeter is the rule. A state is whole units, part/per of a unit, an
// instant.
type leakyMeter struct {
	e *engine[tokens]
	rate
	single[tokens]
}

var _ rule[tokens] = (*leakyMeter)(nil)

// drained is more than anything takes to drain, 2^45 microseconds.
const drained = 1 << 45

func (r *leakyMeter) step(s *tokens, known bool, c *call) {
	c.cost.Reads++
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
		c.cost.Writes++
	}
	c.facts[0], c.facts[1], c.facts[2] = t.whole, t.part, t.at
}

// used is the number of units, rounded up.
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
	return r.e.most - t.used(), r.reaches(t, r.e.most-c.n) - c.now, r.reaches(t, 0) - c.now
}

// reaches is the instant at which t has drained to n units; the instant of t if
// it has already.
func (r *leakyMeter) reaches(t tokens, n int64) int64 {
	if t.used() <= n {
		return t.at
	}
	us, rest := mulDiv(t.whole-n, r.per, r.max) // (us*max + rest + part) / max, rounded up
	return t.at + us + ceilDiv(rest+t.part, r.max)
}
