package classic

import (
	"context"
	_ "embed"

	"github.com/abacus-go/abacus/counter"
)

// RequestDecay keeps a counter and the instant of the last request, admitted or
// denied. Each request first lowers the counter by the whole hits that Max in Per
// is worth since the last request, and then takes its hits, if there is room. It
// is the usual short form of a [LeakyMeter] in whole numbers, and has a trap.
//
// The trap: the part of a hit that is left over is lost with each request. Who
// asks more often than once in Per/Max never lowers the counter, and after Max hits
// is denied for ever. Under 10 a minute a client that polls once a second is
// admitted 10 times in an hour, and by a LeakyMeter 609 times. A client that backs
// off is admitted.
//
// Guarantee: at most 2*Max in a true window of length Per; the bound is reached.
// The counter is never below the counter of a LeakyMeter with a burst of Max.
// There is no lower bound: a key whose requests keep coming may get nothing.
//
// Cost: 1 read, 1 write, also if denied; 1 round trip, 1 script. A state of some
// 110 bytes a key: count and instant. A denied request of a new key writes nothing.
//
// A denied call is not without effect, unlike [Limiter] says: the instant moves.
// RetryAfter is right for a caller who asks no more until then. A caller whose
// clock is behind counts as if he came at the last request.
//
// Source: tutorials on limiters that keep a count and a timestamp, with an integer
// division and the timestamp set on every path; no publication to name. PostHog
// removed the trap from its token bucket on Redis in 2026 (pull request 59610):
// a limit of 100 in 15 minutes stayed shut under one request a second.
//
// Prefer a [LeakyMeter], which keeps the part and costs the same; RequestDecay is
// here to be recognized.
type RequestDecay struct{ engine[level] }

// NewRequestDecay makes a RequestDecay. An error names the value that is out of
// bounds: also a Max of 0.
func NewRequestDecay(limit counter.Limit, store *Store) (*RequestDecay, error) {
	if err := checkRate(limit, "burst", limit.Max, store); err != nil {
		return nil, err
	}
	l := &RequestDecay{}
	l.start("request-decay", limit, store, limit.Max, micros(limit.Per), &requestDecay{e: &l.engine, rate: rateOf(limit)})
	return l, nil
}

var _ Measured = (*RequestDecay)(nil)

//go:embed requestdecay.lua
var requestDecayLua string

var requestDecayScript = newScript(requestDecayLua)

// requestDecay is the rule. A state is a count of whole hits, at an instant.
type requestDecay struct {
	e *engine[level]
	rate
	single[level]
}

var _ rule[level] = (*requestDecay)(nil)

func (r *requestDecay) step(s *level, known bool, c *call) {
	c.cost.Reads++
	l := level{0, c.now}
	if known {
		l.at = max(c.now, s.at)
		if passed := l.at - s.at; passed < drained {
			l.count = max(0, s.count-r.hits(moment{passed, 0}))
		}
	}
	if c.allowed = l.count <= r.max-c.n; c.allowed {
		l.count += c.n
	}
	if known || c.allowed {
		*s = l
		c.cost.Writes++
	}
	c.facts[0], c.facts[1] = l.count, l.at
}

func (r *requestDecay) remote(ctx context.Context, to *remote, name string, c *call) error {
	return to.run(ctx, requestDecayScript, name, c, c.n, r.max, c.now, r.per, r.e.ttlMillis())
}

func (r *requestDecay) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	count, ahead := c.facts[0], c.facts[1]-c.now
	if count > 0 {
		resetAfter = ahead + r.time(count).ceil()
	}
	return r.max - count, ahead + r.time(max(0, count+c.n-r.max)).ceil(), resetAfter
}
