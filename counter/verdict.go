package counter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// Never is the RetryAfter of a call without hope: n is above the Max of a limit,
// and no wait will do. As a Duration it prints as 292 years, and a Verdict says it in
// words: see [Verdict.String].
const Never = time.Duration(math.MaxInt64)

// Verdict is the answer of [Counter.Take], [Counter.TakeAll] and
// [Counter.Peek]. The zero Verdict denies: a dropped error fails closed.
//
// The flat fields describe the binding limit: of a denied call the limit with
// the longest RetryAfter, of an admitted call the limit with the least
// Remaining. [Verdict.All] describes all limits. A Verdict may be copied. A
// Verdict refers to the limits of the call, which must not be changed while the
// Verdict is in use.
type Verdict struct {
	Allowed    bool
	settled    bool          // by Settle
	bit        uint16        // of the receipt, in block
	Key        Key           // of the binding limit
	Limit      Limit         // the binding limit
	Remaining  int64         // hits for which the limit has room after this call; admitted on memcached: at least, unless Config.Exact is set
	RetryAfter time.Duration // denied: time until the same call is admitted, without other hits; Never: no wait will do; admitted: 0, but see Ask.UpTo and Settle
	ResetAfter time.Duration // time until the window of the limit is empty, without other hits; 0: empty

	n       int64                       // hits that were counted
	at      int64                       // their label
	details *details                    // nil if the flat fields say all
	left    [backend.MaxAdmission]int64 // Remaining of each limit, of an admission by the short way
	block   *receipts                   // nil: nothing to refund
}

// At returns the label of the hits that v counted: a reading of Config.Now,
// between the call and its return, by whose buckets the hits are counted. At is
// the zero time if v counted nothing.
func (v Verdict) At() time.Time {
	if v.n == 0 {
		return time.Time{}
	}
	return time.Unix(0, v.at)
}

// N returns the hits that v counted for each key: the n of an admitted call, or fewer for
// an [Ask] with UpTo; 0 if v counted nothing. If the keys differ, it is the n of the first
// key with hits.
func (v Verdict) N() int64 { return v.n }

// details are the part of a Verdict that the flat fields leave out.
type details struct {
	keys    []Ask            // distinct; On is set, and N are the hits that were counted; nil: by a quota
	states  []shortState     // of all limits of all keys; nil: an admission by a quota
	limits  Limits           // of a quota
	windows []backend.Window // of a quota
}

// ownDetails are a single allocation for a call of a few keys and limits.
type ownDetails struct {
	details
	keyBuf   [3]Ask
	stateBuf [9]shortState
}

// State is the answer of a [Verdict] for one limit of one key. The fields have
// the meaning of the same fields of Verdict.
type State struct {
	Ask        int // index of the Ask in the call; of a key that was given twice, the first
	Key        Key
	Limit      Limit
	Remaining  int64
	RetryAfter time.Duration // 0 if the limit has room for the call
	ResetAfter time.Duration
	Soft       bool // as in Ask: a RetryAfter above 0 tells that the limit would have denied the call
}

// All returns the state of every limit of every key of the call, in the order
// given, each key once. Soft keys that were not judged are left out: on a store
// without an atomic step for all keys, a call that other keys deny judges no soft
// key, and Remaining of the keys that had room is a lower bound, as in an admitted
// call. States are allocated if there are more than four, or if they outlive the
// caller; the flat fields never are.
func (v Verdict) All() []State { return v.states(make([]State, 0, 4)) }

// states returns the states, in the room of none if that is large enough. All is inlined,
// and so the room is on the stack of its caller.
func (v *Verdict) states(none []State) []State {
	d := v.details
	if d == nil {
		if v.Limit == (Limit{}) {
			return nil // no limit was asked
		}
		return append(none, State{Key: v.Key, Limit: v.Limit, Remaining: v.Remaining, RetryAfter: v.RetryAfter, ResetAfter: v.ResetAfter})
	}
	if d.keys == nil {
		states := none
		for i, limit := range d.limits {
			if d.states == nil {
				states = append(states, State{Key: v.Key, Limit: limit, Remaining: v.left[i], ResetAfter: v.block.owner.ownReset(&d.windows[i], v.at)})
			} else {
				s := &d.states[i]
				states = append(states, State{Key: v.Key, Limit: limit, Remaining: s.remaining, RetryAfter: s.retryAfter, ResetAfter: s.resetAfter})
			}
		}
		return states
	}
	states, of := none, 0
	for i := range d.keys {
		k := &d.keys[i]
		for _, limit := range k.Limits {
			if s := &d.states[of]; !k.unknown {
				states = append(states, State{int(k.place), k.Key, limit, s.remaining, s.retryAfter, s.resetAfter, k.Soft})
			}
			of++
		}
	}
	return states
}

type shortState struct {
	remaining              int64
	retryAfter, resetAfter time.Duration
}

func (s *State) short() shortState { return shortState{s.Remaining, s.RetryAfter, s.ResetAfter} }

// fill makes v the answer to call k. v.Allowed must be set.
func (v *Verdict) fill(k *call) {
	var d *details
	if ask := &k.asks[0]; len(k.asks) > 1 || len(ask.Limits) > 1 || ask.On != nil || ask.Held != nil || ask.Soft || ask.Charge && !k.Charge {
		own := &ownDetails{}
		d, v.details = &own.details, &own.details
		d.keys, d.states = own.keyBuf[:0], own.stateBuf[:0]
	}
	first := true
	for j := range k.asks {
		ask := &k.asks[j]
		if d != nil {
			d.keys = append(d.keys, *ask)
			of := &d.keys[j]
			if of.On, of.unknown = k.keys[j].on, k.Unknown[j]; ask.Soft && (of.unknown || !k.Keys[j].Fits) {
				of.N = 0
			}
		}
		for w := range ask.Limits {
			s := k.state(j, w, v.Allowed)
			if d != nil {
				d.states = append(d.states, s)
			}
			if !ask.Soft && (!ask.Charge || k.Charge) {
				v.judge(first, ask.Key, ask.Limits[w], s)
				first = false
			}
		}
	}
}

// judge makes a limit of key the binding one, if it is the first or binds more than the
// one before.
func (v *Verdict) judge(first bool, key Key, limit Limit, s shortState) {
	if first || v.Allowed && (s.remaining < v.Remaining || s.remaining == v.Remaining && s.retryAfter > v.RetryAfter) || !v.Allowed && s.retryAfter > v.RetryAfter {
		v.Key, v.Limit, v.Remaining, v.RetryAfter, v.ResetAfter = key, limit, s.remaining, s.retryAfter, s.resetAfter
	}
}

// deny makes v the denial of n hits of key by the short way.
func (v *Verdict) deny(c *Counter, q *quota, key Key, n, label int64, a *backend.Admission) {
	own := q.details.limits
	if len(own) > 1 {
		v.details = &details{limits: own, states: make([]shortState, 0, len(own))}
	}
	for i := range own {
		w := q.details.windows[i]
		width := c.plan.Ladder.At(w.Finest).Width
		if w.Count = a.Counts[i]; w.Count > 0 {
			w.Newest = tiers.Bucket{Width: width, Index: tiers.Index(a.Newest[i], width)}
			w.FreedBy = tiers.Bucket{Width: width, Index: tiers.Index(a.FreedBy[i], width)}
		}
		s := c.state(&w, label, n, false)
		if v.judge(i == 0, key, own[i], s); v.details != nil {
			v.details.states = append(v.details.states, s)
		}
	}
}

// state is the State of limit w of ask j: of two ladders what denies longer and
// leaves less.
func (k *call) state(j, w int, allowed bool) shortState {
	key := &k.Keys[j]
	s := k.keys[j].on.state(&key.Windows[w], k.Label(), key.N, allowed && (key.Fits || !key.Soft))
	for i := len(k.asks); i < len(k.keys); i++ {
		former := &k.keys[i]
		if former.ask != j {
			continue
		}
		// The former ladder judges those of the limits that it can hold.
		if of := slices.Index(former.limits, k.asks[j].Limits[w]); of >= 0 {
			f := former.on.state(&k.Keys[i].Windows[of], k.Label(), k.Keys[i].N, allowed && (k.Keys[i].Fits || !k.Keys[i].Soft))
			s = shortState{min(s.remaining, f.remaining), max(s.retryAfter, f.retryAfter), max(s.resetAfter, f.resetAfter)}
		}
	}
	if k.charges && !allowed && k.asks[j].Charge {
		s.retryAfter = 0 // nothing was charged
	}
	return s
}

// count makes v the Verdict of hits that were counted.
func (v *Verdict) count(k *call) {
	for i := range k.asks {
		if soft := k.asks[i].Soft; v.n == 0 && (!soft || k.Keys[i].Fits && !k.Unknown[i]) {
			v.n = k.asks[i].N
		}
	}
	v.at = k.Label()
	k.used++
	v.block, v.bit = receiptOf(&k.receipts, k.c, k.used)
}

// retryWithin bounds RetryAfter, where hits that may soon be undone were
// counted. The wait is random, to spread the callers.
func (v *Verdict) retryWithin(most time.Duration) {
	wait := most/2 + rand.N(most/2+1)
	if v.details != nil {
		for i := range v.details.states {
			if s := &v.details.states[i]; s.retryAfter > wait && s.retryAfter != Never {
				s.retryAfter = wait
			}
		}
	}
	if v.RetryAfter == 0 || v.RetryAfter > wait {
		v.RetryAfter = wait
	}
}

// state is the State of window w for a call of n hits at now.
func (c *Counter) state(w *backend.Window, now, n int64, allowed bool) (s shortState) {
	switch {
	case allowed:
		if s.remaining = -ticket.Excess(w, n); s.remaining < 0 { // of a charged key
			s.remaining, s.retryAfter = 0, c.plan.Young()+time.Millisecond
		}
	case n > w.Max:
		s.retryAfter = Never
	case ticket.Excess(w, n) > 0:
		// The next call may come from the slowest clock. In a remembered denial a limit
		// other than the binding one may have room again.
		s.retryAfter = max(0, freedIn(w, n, now)+c.cfg.Skew)
	}
	if !allowed {
		s.remaining = max(0, -ticket.Excess(w, 0))
	}
	if w.Newest.Width > 0 {
		s.resetAfter = max(0, expiresAfter(w, w.Newest, now))
	}
	return s
}

// freedIn is the time from now until n hits have room in w, which has none: Never if
// n is above Max.
func freedIn(w *backend.Window, n, now int64) time.Duration {
	if n > w.Max {
		return Never
	}
	return expiresAfter(w, w.FreedBy, now)
}

// ownReset is ResetAfter where the newest bucket of w is the bucket of the label.
func (c *Counter) ownReset(w *backend.Window, label int64) time.Duration {
	width := c.plan.Ladder.At(w.Finest).Width
	return expiresAfter(w, tiers.Bucket{Width: width, Index: tiers.Index(label, width)}, label)
}

// expiresAfter is the time from now until bucket b is out of window w.
func expiresAfter(w *backend.Window, b tiers.Bucket, now int64) time.Duration {
	if !w.Period.IsZero() {
		_, end := w.Period.Span(b.Index * int64(b.Width))
		return time.Duration(end - now)
	}
	return time.Duration((b.Index+1)*int64(b.Width)-now) + w.Reach
}

// String says v in a line for logs: `denied "signup": 5/h, 0 left, retry in 42s`.
// The line names the event and the binding limit, and not the feature, which may
// be a personal address.
func (v Verdict) String() string {
	s := "denied"
	if v.Allowed {
		s = "admitted"
	}
	if v.Limit == (Limit{}) {
		return s // no limit was asked
	}
	s = fmt.Sprintf("%s %q: %s, %d left", s, v.Key.Event, v.Limit, v.Remaining)
	switch {
	case v.Allowed:
	case v.RetryAfter == Never:
		s += ", no wait will do"
	default:
		s += ", retry in " + v.RetryAfter.String()
	}
	return s
}
