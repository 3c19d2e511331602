package counter

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Never is the RetryAfter of a call that no waiting will admit: its n is above
// a limit's Max.
const Never = time.Duration(math.MaxInt64)

// Verdict is the answer to [Counter.Take], [Counter.TakeAll] and
// [Counter.Peek]. The zero Verdict denies: a dropped error fails closed.
//
// Its flat fields are those of the limit that binds: of a denied call the one
// with the longest RetryAfter, of an admitted one that with the least
// Remaining. [Verdict.All] has the others. A Verdict may be copied; it refers
// to the limits of the call, which must not be changed while it is in use.
type Verdict struct {
	Allowed    bool
	Key        Key           // of the limit that binds
	Limit      Limit         // that binds
	Remaining  int64         // hits that the limit has room for after this call
	RetryAfter time.Duration // denied: when the same call will be admitted if nobody else hits; Never: not at all; admitted: 0
	ResetAfter time.Duration // when the limit's window will be empty if nobody hits; 0 if it is

	n       int64
	at      int64 // the stamp of the hit
	limits  Limits
	first   [inlineStates]shortState
	rest    *rest // nil for one key and few limits
	receipt receipt
}

// At is the instant of the hits that v counted: the reading of Config.Now,
// between the call and its return, by whose buckets they are counted. It is the
// zero time if v counted nothing.
func (v *Verdict) At() time.Time {
	if v.n == 0 {
		return time.Time{}
	}
	return time.Unix(0, v.at)
}

// rest is what few Verdicts have. The rooms make it one allocation for a call
// of a few keys and limits.
type rest struct {
	asks     []Ask // of TakeAll, each key once; nil for one key
	states   []shortState
	askBuf   [2]Ask
	stateBuf [3]shortState
}

// State is what a [Verdict] says of one limit of one key. The fields mean what
// they mean in a Verdict.
type State struct {
	Key        Key
	Limit      Limit
	Remaining  int64
	RetryAfter time.Duration // 0 if this limit has room for the call
	ResetAfter time.Duration
}

// All is the state of every limit of every key of the call, in the order in
// which they were given, each key once. It allocates; the flat fields do not.
func (v *Verdict) All() []State {
	one := [1]Ask{{v.Key, v.limits}}
	asks := one[:]
	if v.rest != nil && v.rest.asks != nil {
		asks = v.rest.asks
	}
	n := 0
	for _, ask := range asks {
		n += len(ask.Limits)
	}
	states := make([]State, 0, n)
	for _, ask := range asks {
		for _, limit := range ask.Limits {
			i := len(states)
			s := &v.first[min(i, inlineStates-1)]
			if i >= inlineStates {
				s = &v.rest.states[i-inlineStates]
			}
			states = append(states, State{ask.Key, limit, s.remaining, s.retryAfter, s.resetAfter})
		}
	}
	return states
}

// inlineStates of a Verdict cost no allocation: most keys have so many limits.
const inlineStates = 3

type shortState struct {
	remaining              int64
	retryAfter, resetAfter time.Duration
}

// add takes up the state of the next limit, number i, and makes it the one that
// binds if it does. v.Allowed stands already.
func (v *Verdict) add(i int, key *Key, limit Limit, s shortState) {
	if i < inlineStates {
		v.first[i] = s
	} else {
		if v.rest == nil {
			v.rest = &rest{}
		}
		if i == inlineStates {
			v.rest.states = v.rest.stateBuf[:0]
		}
		v.rest.states = append(v.rest.states, s)
	}
	binds := i == 0
	if v.Allowed {
		binds = binds || s.remaining < v.Remaining
	} else {
		binds = binds || s.retryAfter > v.RetryAfter
	}
	if binds {
		v.Key, v.Limit = *key, limit
		v.Remaining, v.RetryAfter, v.ResetAfter = s.remaining, s.retryAfter, s.resetAfter
	}
}

// fill makes v the answer to call k, of which v.Allowed stands already.
func (v *Verdict) fill(k *call) {
	i := 0
	for j := range k.asks {
		ask, key := &k.asks[j], &k.req.Keys[j]
		for w := range key.Windows {
			v.add(i, &ask.Key, ask.Limits[w], k.c.plan.state(&key.Windows[w], k.label, key.N, v.Allowed))
			i++
		}
	}
}

// comeBackWithin bounds RetryAfter, where hits that may be gone in a moment were
// counted, and spreads those who are told.
func (v *Verdict) retryWithin(most time.Duration) {
	wait := most/2 + rand.N(most/2+1)
	bound := func(s *shortState) {
		if s.retryAfter > wait && s.retryAfter != Never {
			s.retryAfter = wait
		}
	}
	for i := range v.first {
		bound(&v.first[i])
	}
	if v.rest != nil {
		for i := range v.rest.states {
			bound(&v.rest.states[i])
		}
	}
	if v.RetryAfter == 0 || v.RetryAfter > wait {
		v.RetryAfter = wait
	}
}

// state is the State of window w for a call of n hits at now.
func (p *plan) state(w *backend.Window, now, n int64, allowed bool) shortState {
	var s shortState
	count := w.Count
	if allowed {
		count += n
	} else if n > w.Max {
		s.retryAfter = Never
	} else if w.Count > w.Max-n {
		// Whoever comes back may have the slowest clock.
		s.retryAfter = expiresAfter(w, w.FreedBy, now) + time.Duration(p.skew)
	}
	s.remaining = max(0, w.Max-count)
	if w.Newest.Width > 0 {
		s.resetAfter = max(0, expiresAfter(w, w.Newest, now))
	}
	return s
}

// leavesAfter is how long after now bucket b is out of window w.
func expiresAfter(w *backend.Window, b tiers.Bucket, now int64) time.Duration {
	return time.Duration((b.Index+1)*int64(b.Width)-now) + w.Reach
}

// tokens is a block of marks, one for each of some admitted Verdicts: refunded
// or not. All copies of a Verdict share its mark. Handing marks out from blocks
// costs a bit for each Verdict and no allocation of its own.
type receipts struct {
	owner    *Counter
	redeemed [8]atomic.Uint64
}

const receiptsPerBlock = 8 * 64

type receipt struct {
	block *receipts
	i     int
}

// spend marks t as refunded; it returns false if it was already.
func (t receipt) redeem() bool {
	bit := uint64(1) << (t.i % 64)
	return t.block.redeemed[t.i/64].Or(bit)&bit == 0
}
