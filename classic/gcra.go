package classic

import (
	"context"
	_ "embed"

	"github.com/abacus-go/abacus/counter"
)

// GCRA is the generic cell rate algorithm, a [TokenBucket] in a single value:
// the theoretical arrival time, at which the bucket will be full. A hit moves
// the arrival time on by Per/Max, from now if the arrival time has passed; a
// hit is denied if the arrival time would be further ahead of now than the time
// of a burst.
//
// Guarantee: as of TokenBucket, decision by decision, while clocks go forward:
// at most burst + Max in a true window of length Per, 2*Max if burst is Max.
//
// Cost: 1 read, and if admitted 1 write; 1 round trip, 1 script. A state of
// some 120 bytes a key: an instant in microseconds, with a fraction in Max-ths,
// since Per/Max is seldom whole.
//
// A limiter with another Max or burst and the same Per, on the same store,
// finds the same instant, so the debt is kept in time and not in tokens. A
// caller whose clock is behind finds the instant further away, and is denied
// for longer.
//
// Remaining is the tokens left, and ResetAfter the time until the bucket is
// full.
//
// Source: ITU-T recommendation I.371, and the ATM Forum's traffic management
// specification, as virtual scheduling. For requests: "Rate Limiting, Cells,
// and GCRA", Brandur Leach, 2015, and the libraries throttled and redis_rate.
//
// Prefer GCRA to a TokenBucket where memory counts and rates do not change.
type GCRA struct{ engine[moment] }

// NewGCRA makes a GCRA of limit.Max in limit.Per; a burst of 0 is limit.Max. The
// error is as [NewTokenBucket] says.
func NewGCRA(limit counter.Limit, burst int64, store *Store) (*GCRA, error) {
	if burst == 0 {
		burst = limit.Max
	}
	if err := checkRate(limit, "burst", burst, store); err != nil {
		return nil, err
	}
	r := &gcra{rate: rateOf(limit), tolerance: rateOf(limit).time(burst)}
	l := &GCRA{}
	r.e = &l.engine
	l.start("gcra", limit, store, burst, r.tolerance.ceil(), r)
	return l, nil
}

var _ Measured = (*GCRA)(nil)

//go:embed gcra.lua
var gcraLua string

var gcraScript = newScript(gcraLua)

// gcra is the rule. A state is the theoretical arrival time.
type gcra struct {
	e *engine[moment]
	rate
	tolerance moment // the time of a burst
	single[moment]
}

var _ rule[moment] = (*gcra)(nil)

func (r *gcra) step(s *moment, known bool, c *call) {
	c.cost.Reads++
	at := moment{c.now, 0}
	if known {
		at = r.later(c.now, s.us, s.part)
	}
	next := r.add(at, r.time(c.n))
	if c.allowed = !next.after(r.add(moment{c.now, 0}, r.tolerance)); c.allowed {
		at, *s = next, next
		c.cost.Writes++
	}
	c.facts[0], c.facts[1] = at.us, at.part
}

func (r *gcra) remote(ctx context.Context, to *remote, name string, c *call) error {
	cost := r.time(c.n)
	return to.run(ctx, gcraScript, name, c, c.now, cost.us, cost.part, r.tolerance.us, r.tolerance.part, r.max, r.e.ttlMillis())
}

func (r *gcra) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	ahead := r.sub(moment{c.facts[0], c.facts[1]}, moment{c.now, 0})
	room := r.sub(r.tolerance, ahead)
	return r.hits(room), r.sub(r.time(c.n), room).ceil(), ahead.ceil()
}
