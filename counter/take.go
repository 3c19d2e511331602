package counter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
)

// Take counts n hits of key if all limits have room, and otherwise none. n is
// one or more.
//
// In no window of length Per are more than Max hits of a limit admitted, under
// any number of callers, while their clocks agree within Config.Skew and the
// store keeps its buckets. See docs/guarantees.md.
//
// A denial is not an error. An error is an [ErrStore], the error of ctx, or a
// mistake of the caller; the Verdict is then the zero Verdict, a denial. Hits of
// a failed call are undone, even if the store answers late. Hits without any
// answer of the store stay until they age out.
func (c *Counter) Take(ctx context.Context, key Key, n int64, limits Limits) (v Verdict, err error) {
	// On the memory store limits that were prepared decide nearly all calls; everything else
	// is for answer to decide.
	var a backend.Admission
	var label int64 // 0: the clock is not read
	q := c.quota(key.Event, limits)
	// A feature that needs more than to be put behind the event is unknown to Admit.
	if q != nil && q.short != nil && n > 0 && n <= q.least && ctx.Err() == nil {
		if label = c.labels.read(); label != 0 {
			a = q.short.Admit(key.Feature, n, label)
		}
	}
	switch {
	case a.Denied:
		v.deny(c, q, key, n, label, &a)
		return v, nil
	case a.Number == 0:
		err = c.answer(ctx, &v, []Ask{{Key: key, N: n, Limits: limits}}, taking, label)
		return v, err
	}
	binds, own := 0, q.details.limits
	for i := range own {
		v.left[i] = own[i].Max - a.Counts[i] - n
		if v.left[i] < v.left[binds] {
			binds = i
		}
	}
	v.Allowed, v.Key, v.Limit, v.Remaining = true, key, own[binds], v.left[binds]
	v.ResetAfter = c.ownReset(&q.details.windows[binds], label)
	v.n, v.at, v.details = n, label, &q.details
	v.block, v.bit = c.quotas.receipts.of(c, a.Number)
	return v, nil
}

// Peek returns the answer that Take would give now, and counts nothing. An n of 0
// asks whether a limit is over now: Allowed if in no window there are more hits
// than Max. The Verdict of a Peek cannot be refunded.
func (c *Counter) Peek(ctx context.Context, key Key, n int64, limits Limits) (v Verdict, err error) {
	err = c.answer(ctx, &v, []Ask{{Key: key, N: n, Limits: limits}}, peeking, 0)
	return v, err
}

// TakeAll is Take for several keys: N hits of each key if all limits of all keys
// that are not soft have room, otherwise none. A key given twice is taken once,
// with the hits and under the limits of both. A call has at most [MaxKeys] keys. If
// N of all keys is 0, TakeAll is PeekAll.
//
// On a store that cannot check all keys in one atomic step, the keys are taken
// one after the other, in the same order by all callers, and given back if a
// later key is denied. Until then the taken keys can cause denials of other
// calls. A process that dies in between leaves hits in the keys already taken.
func (c *Counter) TakeAll(ctx context.Context, asks ...Ask) (v Verdict, err error) {
	err = c.all(ctx, &v, asks, taking)
	return v, err
}

// PeekAll returns the answer that TakeAll would give now, and counts nothing.
// The Verdict of a PeekAll cannot be refunded.
func (c *Counter) PeekAll(ctx context.Context, asks ...Ask) (v Verdict, err error) {
	err = c.all(ctx, &v, asks, peeking)
	return v, err
}

// ChargeAll is Charge for several keys: the hits of all keys are counted, or
// after an error none. If the first N that is not 0 is below zero, hits are given back,
// and N of no key is above zero; after an error some keys may have been credited.
func (c *Counter) ChargeAll(ctx context.Context, asks ...Ask) (v Verdict, err error) {
	err = c.all(ctx, &v, asks, charging)
	return v, err
}

// all answers a call for several keys, or for one. v is the zero Verdict before, and after
// an error.
func (c *Counter) all(ctx context.Context, v *Verdict, asks []Ask, m mode) (err error) {
	switch {
	case len(asks) == 0:
		return errors.New("counter: no keys, want at least one")
	case len(asks) > MaxKeys:
		return fmt.Errorf("counter: event %q: %d keys, want at most %d", asks[0].Key.Event, len(asks), MaxKeys)
	}
	if i := slices.IndexFunc(asks, func(a Ask) bool { return a.N != 0 }); m == charging && i >= 0 && asks[i].N < 0 {
		return c.credit(ctx, v, asks)
	}
	if m == taking && !slices.ContainsFunc(asks, func(a Ask) bool { return a.N != 0 }) {
		m = peeking
	}
	if len(asks) > 1 {
		return c.answer(ctx, v, asks, m, 0)
	}
	on, own := c, asks[0]
	if own.On != nil && own.On.base == c.base {
		on, own.On = own.On, nil
	}
	if m == taking && own.On == nil && own.Held == nil && !own.Soft && !own.Charge && !own.UpTo {
		*v, err = on.Take(ctx, own.Key, own.N, own.Limits)
		return err
	}
	return on.answer(ctx, v, []Ask{own}, m, 0)
}

// answer answers a call: it checks the asks, makes their stored keys, asks the memory of
// denials, waits behind other calls of the keys, and then asks the store, by one step
// or by ticket. label is the label if the clock was read already, or 0. The Verdict is
// passed by pointer for speed: a Verdict is large. After an error v is unchanged.
func (c *Counter) answer(ctx context.Context, v *Verdict, asks []Ask, m mode, label int64) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("counter: event %q: %w", asks[0].Key.Event, err)
	}
	k, asking := c.calls.Get().(*call), false
	var queued []int
	defer func() {
		k.leave(queued)
		if !asking { // after a panic of the store goroutines of the call may still use k
			c.calls.Put(k)
		}
	}()
	denied, err := k.resolve(asks, m)
	if err != nil {
		return err
	}
	if label != 0 {
		k.Now = time.Unix(0, label)
		err = k.Place()
	} else {
		err = c.protocol.Relabel(&k.Call)
	}
	if err != nil {
		return k.failed(ctx, err)
	}
	if c.queues != nil && !denied && m != charging {
		if queued, denied, err = k.enter(ctx); err != nil {
			return err
		}
		if k.answered {
			return k.tell(ctx, v, m)
		}
	}
	if k.charges && c.denied != nil {
		mark := c.denied.mark()
		defer func() {
			if asking || err != nil || k.Allowed { // a denied call has charged nothing
				k.raise(mark)
			}
		}()
	}
	asking = true
	decided, err := k.askStore(ctx, m, denied)
	if !decided {
		found, failure := c.protocol.Try(ctx, &k.Call)
		err = k.tried(ctx, found, failure)
	}
	asking = false
	if err != nil {
		return k.failed(ctx, err)
	}
	return k.tell(ctx, v, m)
}

// askStore asks the store, by one step or by reading first, unless the call is known as
// denied. A call that is not decided then goes by ticket, by Try and then tried: the way
// from a Take to the wire has eight functions of its own.
func (k *call) askStore(ctx context.Context, m mode, denied bool) (decided bool, err error) {
	c := k.c
	switch k.Grace = c.grace(k.Deadline); {
	case denied:
	case c.protocol.OneStep(&k.Call):
		err = c.protocol.Stepped(ctx, &k.Call, c.atomic.Take(ctx, &k.TakeRequest))
	case m == charging:
		err = c.protocol.Charge(ctx, &k.Call)
	case m == peeking || c.denied.readFirst(&k.Call):
		err = c.protocol.Rounds(ctx, &k.Call, true, ticket.Finding{}, nil)
	default:
		return false, nil
	}
	return true, err
}

// tried goes on after the first try by ticket, with what it has found.
func (k *call) tried(ctx context.Context, found ticket.Finding, err error) error {
	if k.Allowed = found.Allowed; k.Allowed {
		return nil
	}
	return k.c.protocol.Rounds(ctx, &k.Call, false, found, err)
}

// tell makes v the answer of the store.
func (k *call) tell(ctx context.Context, v *Verdict, m mode) error {
	if k.upTo > 0 && k.Allowed {
		k.tookUpTo()
	}
	over, err := k.charged()
	if err != nil {
		return k.failed(ctx, err)
	}
	v.Allowed = k.Allowed
	v.fill(k)
	if v.Allowed && m != peeking {
		v.count(k)
	}
	if v.Allowed && over {
		k.judgeCharged(ctx, v)
	}
	if v.Allowed && m == taking && v.n < k.upTo {
		k.judgeRest(ctx, v)
	}
	if k.RetryWithin > 0 {
		v.retryWithin(k.RetryWithin)
	}
	return nil
}

// call is a Take, a Peek or a Charge, from the beginning to the answer. The
// ticket.Call in it goes to the store and comes back with the answer.
//
// Calls are pooled, and keep their buffers.
type call struct {
	ticket.Call
	c        *Counter
	asks     []Ask     // each key once; a buffer
	keys     []callKey // of the asks, in their order, and then of their former ladders; keys[i] is Keys[i]
	charges  bool      // some keys are charged
	answered bool      // together with other calls
	upTo     int64     // the hits of a call that takes up to so many, each of Times one hit; otherwise 0

	receipts atomic.Pointer[receipts]
	used     uint64 // receipts that are given out
}

// mode is the purpose of a call.
type mode uint8

const (
	taking   mode = iota
	peeking       // count nothing
	charging      // count in any case
)

// callKey is a stored key of a call.
type callKey struct {
	on     *Counter // by whose ladder the key is counted
	limits Limits   // that are judged: limits[i] is Windows[i] of the key
	ask    int      // index in call.asks
}

// resolve checks keys and limits, and writes them into the call: keys in
// their stored form, limits as windows of the ladder. If N of an ask is above the
// Max of a limit, the call can never be admitted.
func (k *call) resolve(asks []Ask, m mode) (never bool, err error) {
	for i := 0; len(asks) > 1 && i < len(asks); i++ {
		if err := asks[i].checkHits(); err != nil { // before merge joins them
			return false, err
		}
	}
	k.Peek, k.Charge, k.AnyLabel, k.Deadline = m == peeking, m == charging, false, k.c.deadline()
	k.keys, k.Keys, k.Plans, k.Unknown = k.keys[:0], k.Keys[:0], k.Plans[:0], k.Unknown[:0]
	var mixed bool
	k.asks, mixed = merge(k.asks[:0], asks, k.Charge)
	k.Allowed, k.RetryWithin, k.Late, k.charges = false, 0, false, false
	k.Times, k.Taken, k.upTo, k.answered = 1, 0, 0, false
	if err := k.askUpTo(m); err != nil {
		return false, err
	}
	enforced, hits := false, m == peeking
	for i := range k.asks {
		ask := &k.asks[i]
		if err := ask.check(); err != nil {
			return false, err
		}
		on := ask.On
		if on == nil {
			on = k.c
		} else if on.base != k.c.base {
			return false, fmt.Errorf("counter: event %q: Ask.On is a Counter of another New, want one that With has made of this Counter", ask.Key.Event)
		}
		out, err := k.add(i, on, ask.Limits)
		if err != nil {
			return false, err
		}
		enforced = enforced || !ask.Soft
		hits = hits || ask.N > 0
		never = never || out
		k.charges = k.charges || ask.Charge && !k.Peek
	}
	k.Exact = k.c.exact || k.charges // an upper bound may be over where the count is not
	switch {
	case !enforced && m == charging:
		return false, fmt.Errorf("counter: event %q: each Ask of a Charge is Soft, want at least one that is not", k.asks[0].Key.Event)
	case !hits:
		return false, fmt.Errorf("counter: n is 0, want 1 to %d, or a Peek, event %q", int64(MaxCount), k.asks[0].Key.Event)
	}
	for i := range k.asks {
		former := k.keys[i].on.former
		if former == nil || k.asks[i].Soft {
			continue
		}
		out, err := k.add(i, former, former.judged(k.asks[i].Limits))
		if err != nil {
			return false, err
		}
		never = never || out
	}
	if mixed {
		err = k.checkStored()
	}
	return never, err
}

// checkStored finds a stored key that is in the call twice: by two Counters of
// one ladder, or both charged and not, or shared.
func (k *call) checkStored() error {
	for i := range k.keys {
		for j := range i {
			a, b := &k.Keys[i], &k.Keys[j]
			if !bytes.Equal(a.Key, b.Key) {
				continue
			}
			event := k.asks[k.keys[i].ask].Key.Event
			if k.keys[i].on == k.keys[j].on {
				return fmt.Errorf("counter: event %q: a key is asked for both with and without Ask.Charge or Ask.Shared, want one of them", event)
			}
			return fmt.Errorf("counter: event %q: a key is asked for by two Counters that both count it by the ladder %q, want one of them", event, a.Ladder)
		}
	}
	return nil
}

// add adds a key of ask i to the call. never: N is above the Max of a limit that can
// deny. A key that is charged has windows without a bound; a Peek looks at the key as
// at a soft one.
func (k *call) add(i int, on *Counter, limits Limits) (never bool, err error) {
	ask := &k.asks[i]
	if n := len(k.Keys); n < cap(k.Keys) {
		k.Keys = k.Keys[:n+1] // buffers of earlier calls stay
	} else {
		k.Keys = append(k.Keys, backend.TakeKey{})
	}
	k.keys = append(k.keys, callKey{on: on, limits: limits, ask: i})
	key := &k.Keys[len(k.Keys)-1]
	key.Key, key.N, key.Soft, key.Fits = on.makerOf(ask).append(key.Key[:0], ask.Key), ask.N, ask.Soft || ask.Charge && k.Peek, false
	k.Plans, k.Unknown = append(k.Plans, &on.plan), append(k.Unknown, key.Soft)
	key.Ladder, key.TTLs = on.plan.Ladder, on.plan.TTLs
	key.Windows = slices.Grow(key.Windows[:0], len(limits))[:len(limits)]
	for j, limit := range limits {
		w := &key.Windows[j]
		if err := limit.window(w, &on.plan); err != nil {
			return false, fmt.Errorf("counter: event %q, limit %s: %w", ask.Key.Event, limit, err)
		}
		if ask.Held != nil {
			if w.Max -= ask.heldIn(limit); key.Soft {
				w.Max = max(0, w.Max)
			}
		}
		if ask.Charge && !k.Peek {
			w.Max = MaxCount
		}
		if k.Times > 1 && ask.N > 0 && !key.Soft {
			k.Times = max(1, min(k.Times, w.Max/ask.N))
		}
		never = never || ask.N > w.Max && !key.Soft
	}
	return never, nil
}

// enter waits behind the earlier calls of the same keys, unless an equal call is
// remembered as denied. A call that has waited gets a new label. leave ends the call
// for the keys of queued.
func (k *call) enter(ctx context.Context) (queued []int, denied bool, err error) {
	c := k.c
	if deadline, ok := ctx.Deadline(); ok && !k.Deadline.IsZero() && deadline.Before(k.Deadline) {
		k.Deadline = deadline
	}
	if k.Peek || c.denied.Recall(&k.Call) {
		return nil, !k.Peek, nil
	}
	order, waited := k.Order(), false
	for i, d := range order {
		w, err := c.queues.enter(ctx, k, k.Keys[d].Key)
		if err != nil {
			k.leave(order[:i])
			return nil, false, callError(ctx, k.asks[k.keys[d].ask].Key.Event, err)
		}
		if waited = waited || w != nil; w != nil && w.answer != nil {
			c.waited.Add(1)
			k.answered = true
			return nil, false, k.answeredBy(ctx, w)
		}
	}
	if waited {
		c.waited.Add(1)
		if err := c.protocol.Relabel(&k.Call); err != nil {
			k.leave(order)
			return nil, false, k.failed(ctx, err)
		}
		denied = c.denied.Recall(&k.Call)
	}
	return order, denied, nil
}

func (k *call) leave(queued []int) {
	for _, d := range queued {
		k.c.queues.leave(k.Keys[d].Key)
	}
}

// failed names the culprit of err: the clock, the store or ctx.
func (k *call) failed(ctx context.Context, err error) error {
	ask := 0
	if of := (*ticket.KeyError)(nil); errors.As(err, &of) {
		ask, err = k.keys[of.Key].ask, of.Unwrap()
	}
	return callError(ctx, k.asks[ask].Key.Event, err)
}
