package counter

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Never is the RetryAfter of a call that will not be admitted after any wait:
// its n is above the Max of a limit.
const Never = time.Duration(math.MaxInt64)

// Verdict is the answer of [Counter.Take], [Counter.TakeAll] and
// [Counter.Peek]. The zero Verdict denies: a dropped error fails closed.
//
// The flat fields describe the binding limit: of a denied call the limit with
// the longest RetryAfter, of an admitted call the limit with the least
// Remaining. [Verdict.All] describes all limits. A Verdict may be copied. It
// refers to the limits of the call, which must not be changed while the Verdict
// is in use.
type Verdict struct {
	Allowed    bool
	Key        Key           // of the binding limit
	Limit      Limit         // the binding limit
	Remaining  int64         // hits for which the limit has room after this call; admitted on memcached: at least, unless Config.Exact is set
	RetryAfter time.Duration // denied: time until the same call is admitted, without other hits; Never: no wait will do; admitted: 0
	ResetAfter time.Duration // time until the window of the limit is empty, without other hits; 0: empty

	n       int64
	at      int64 // the label of the hits
	limits  Limits
	first   [inlineStates]shortState
	rest    *rest // nil for a single key with few limits
	receipt receipt
}

// At returns the label of the hits that v counted: a reading of Config.Now,
// between the call and its return, by whose buckets the hits are counted. At is
// the zero time if v counted nothing.
func (v *Verdict) At() time.Time {
	if v.n == 0 {
		return time.Time{}
	}
	return time.Unix(0, v.at)
}

// rest is the part of a Verdict of several keys or of many limits. The buffers
// make the part a single allocation in a call of a few keys and limits.
type rest struct {
	asks     []Ask // of TakeAll, keys distinct; nil for a single key
	states   []shortState
	askBuf   [2]Ask
	stateBuf [3]shortState
}

// State is the answer of a [Verdict] for one limit of one key. The fields have
// the meaning of the same fields of Verdict.
type State struct {
	Key        Key
	Limit      Limit
	Remaining  int64
	RetryAfter time.Duration // 0 if the limit has room for the call
	ResetAfter time.Duration
}

// All returns the state of every limit of every key of the call, in the order
// given, each key once. All allocates; the flat fields do not.
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

// inlineStates is the number of states in a Verdict without an allocation:
// enough for most keys.
const inlineStates = 3

type shortState struct {
	remaining              int64
	retryAfter, resetAfter time.Duration
}

// add records the state of limit i, and sets the flat fields if the limit
// binds. v.Allowed must be set.
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

// fill makes v the answer to call k. v.Allowed must be set.
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

// retryWithin bounds RetryAfter, where hits that may soon be taken back were
// counted. The wait is random, to spread the callers.
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
		// The next call may come from the slowest clock.
		s.retryAfter = expiresAfter(w, w.FreedBy, now) + time.Duration(p.skew)
	}
	s.remaining = max(0, w.Max-count)
	if w.Newest.Width > 0 {
		s.resetAfter = max(0, expiresAfter(w, w.Newest, now))
	}
	return s
}

// expiresAfter is the time from now until bucket b is out of window w.
func expiresAfter(w *backend.Window, b tiers.Bucket, now int64) time.Duration {
	return time.Duration((b.Index+1)*int64(b.Width)-now) + w.Reach
}

// receipts is a block of receipts: a bit for each of some admitted Verdicts,
// set by a Refund. All copies of a Verdict share a bit. Receipts of a block
// cost no allocations of their own.
type receipts struct {
	owner    *Counter
	redeemed [8]atomic.Uint64
}

const receiptsPerBlock = 8 * 64

type receipt struct {
	block *receipts
	i     int
}

// redeem marks the receipt as refunded, and returns false if it was marked
// before.
func (t receipt) redeem() bool {
	bit := uint64(1) << (t.i % 64)
	return t.block.redeemed[t.i/64].Or(bit)&bit == 0
}
