package classic

import (
	"context"
	_ "embed"

	"github.com/abacus-go/abacus/counter"
)

// TokenBucket holds up to burst tokens, and gains Max tokens in each Per. A hit
// takes one token; with too few tokens a call is denied. The gain is calculated
// at each call from the time since the last: there is no timer, and a key
// without calls costs nothing.
//
// Guarantee: at most burst + Max in a true window of length Per, 2*Max if burst
// is Max: the full bucket at once, and the gain of Per. The bound is reached.
// In the long run Max in each Per, exactly: a partly gained token is kept as a
// fraction of whole numbers.
//
// Cost: 1 read, and if admitted 1 write; 1 round trip, 1 script. A state of
// some 130 bytes a key: tokens, part of a token, instant.
//
// A limiter with another Max or burst and the same Per, on the same store,
// finds the tokens of the first: a change of rate keeps the tokens, and counts
// from the last admitted hit on. [GCRA] decides alike with one number less, and
// keeps the debt in time instead: at half the rate the same wait is worth half
// the tokens. This difference, and the different states, make two types. A
// caller whose clock is behind counts as if he came at the last hit.
//
// Remaining is the tokens left, and ResetAfter the time until the bucket is
// full.
//
// Source: the token bucket of networking; RFC 2697 (1999) specifies a token
// bucket as a meter. For requests: "Scaling your API with rate limiters", Paul
// Tarjan, Stripe's blog, 2017.
//
// Prefer TokenBucket for an API whose clients come in bursts, with a burst that
// is much smaller than Max.
type TokenBucket struct{ engine[tokens] }

// NewTokenBucket makes a TokenBucket that gains limit.Max tokens in limit.Per;
// a burst of 0 is limit.Max. An error names the value that is out of bounds:
// also a Max of 0, and a burst that takes more than 366 days to gain.
func NewTokenBucket(limit counter.Limit, burst int64, store *Store) (*TokenBucket, error) {
	if burst == 0 {
		burst = limit.Max
	}
	if err := checkRate(limit, "burst", burst, store); err != nil {
		return nil, err
	}
	l, full := &TokenBucket{}, rateOf(limit).time(burst).ceil()
	l.start("token-bucket", limit, store, burst, full, &tokenBucket{e: &l.engine, rate: rateOf(limit), full: full})
	return l, nil
}

var _ Measured = (*TokenBucket)(nil)

//go:embed tokenbucket.lua
var tokenBucketLua string

var tokenBucketScript = newScript(tokenBucketLua)

// tokens are whole tokens, and part/per of another token, at an instant.
type tokens struct{ whole, part, at int64 }

type tokenBucket struct {
	e *engine[tokens]
	rate
	full int64 // how long an empty bucket takes
	single[tokens]
}

var _ rule[tokens] = (*tokenBucket)(nil)

func (r *tokenBucket) step(s *tokens, known bool, c *call) {
	c.cost.Reads++
	t := tokens{r.e.most, 0, c.now}
	if known {
		t.at = max(c.now, s.at)
		if passed := t.at - s.at; passed < r.full {
			whole, part := mulDiv(passed, r.max, r.per)
			whole, part = whole+s.whole, part+s.part
			if part >= r.per {
				whole, part = whole+1, part-r.per
			}
			if whole < r.e.most {
				t.whole, t.part = whole, part
			}
		}
	}
	if c.allowed = t.whole >= c.n; c.allowed {
		t.whole -= c.n
		*s = t
		c.cost.Writes++
	}
	c.facts[0], c.facts[1], c.facts[2] = t.whole, t.part, t.at
}

func (r *tokenBucket) remote(ctx context.Context, to *remote, name string, c *call) error {
	return to.run(ctx, tokenBucketScript, name, c, c.n, r.e.most, r.max, c.now, r.per, r.full, r.e.ttlMillis())
}

func (r *tokenBucket) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	t := tokens{c.facts[0], c.facts[1], c.facts[2]}
	return t.whole, r.reaches(t, c.n) - c.now, r.reaches(t, r.e.most) - c.now
}

// reaches is the instant at which t has become n tokens; the instant of t if it
// has n already.
func (r *tokenBucket) reaches(t tokens, n int64) int64 {
	if t.whole >= n {
		return t.at
	}
	us, rest := mulDiv(n-t.whole, r.per, r.max) // (us*max + rest - part) / max, rounded up
	return t.at + us + ceilDiv(rest-t.part, r.max)
}
