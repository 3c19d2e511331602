package counter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// result is the outcome of a try or of a look.
type result struct {
	allowed     bool
	looked      bool // by reading alone
	room        bool // denied, but with all hits taken back there is room
	byOlder     bool // denied by older hits alone, as far as a single look can tell
	overcounted bool // more hits are counted than can remain when all calls have ended
	contended   bool // calls of others were seen in flight
	err         error

	byPending  bool // denied by pending hits, where callers can refuse each other
	mustChange bool // byPending, and some of the pending hits will be taken back
	final      bool // denied by a look, and not by pending hits
}

// looksToConfirm is the number of consecutive tries and looks that must find a
// denial by older hits, if too many hits are counted, or if callers on the two
// sides of a bucket's end are in flight. Hits are taken back tier by tier: hits
// that have left the seconds, and not yet the hour, look old.
const looksToConfirm = 3

// judge sets the fields that tell the weight of a denial. confirmed is the
// number of consecutive denials by older hits, this denial included.
func (r *result) judge(k *call, confirmed int) {
	if r.err != nil || r.allowed || r.room {
		return
	}
	near := k.nearBoundary()
	doubt := confirmed < looksToConfirm && (r.overcounted || r.contended && near)
	r.byPending = (!r.byOlder || doubt) && (near || k.canCollide())
	r.mustChange = r.byPending && r.overcounted
	r.final = r.looked && !r.byPending
}

// try takes every key, in an order that all callers share, or none.
func (k *call) try(ctx context.Context) result {
	c := k.c
	grace := c.grace(k.req.Deadline)
	order := k.order()
	taken := make([]*ticket, 0, len(order))
	for i, d := range order {
		t := k.ticket(d, grace)
		var allowed bool
		var err error
		if c.atomic != nil {
			allowed, err = k.stepOf(ctx, d, t)
		} else {
			allowed, err = t.take(ctx)
		}
		if err == nil && allowed {
			taken = append(taken, t)
			continue
		}
		if err != nil && errors.Is(err, backend.ErrMaxCount) {
			err = t.lookAtFull(ctx)
		}
		if err != nil {
			if failed := k.takeBackAll(ctx, taken); failed != nil {
				err = failed // hits were left behind: the try must not be repeated
			}
			return result{err: callError(ctx, k.asks[d].Key.Event, err)}
		}
		return k.refused(ctx, t, taken, order[i+1:])
	}
	for _, t := range taken {
		c.own.add(t.base.Key, &t.c.plan, k.label, t.n)
	}
	k.takeSoft(ctx, grace)
	return result{allowed: true}
}

// takeSoft takes the soft keys, each for itself, after the call is admitted:
// beside the other keys a soft key would count hits of calls that are refused, and
// tell callers that it is full while it is not. A key that fails stays unknown.
func (k *call) takeSoft(ctx context.Context, grace time.Time) {
	soft := k.soft()
	sideBySide(len(soft), func(i int) {
		i = soft[i]
		key := &k.req.Keys[i]
		var err error
		if k.c.atomic != nil {
			// The label is that of the admitted hits: no other is read.
			r := k.req
			r.Keys, r.AnyLabel = k.req.Keys[i:i+1], true
			err = k.c.atomic.Take(ctx, &r)
		} else {
			key.Fits, err = k.ticket(i, grace).take(ctx)
		}
		k.keys[i].unknown = err != nil
	})
}

// lookSoft judges the soft keys of a Peek.
func (k *call) lookSoft(ctx context.Context) {
	soft := k.soft()
	sideBySide(len(soft), func(i int) {
		i = soft[i]
		t := k.ticket(i, k.req.Deadline)
		err := t.look(ctx, true)
		k.req.Keys[i].Fits, k.keys[i].unknown = t.fits(), err != nil
	})
}

// stepOf takes key d by an atomic step of the store, if the store has no step
// for all keys.
func (k *call) stepOf(ctx context.Context, d int, t *ticket) (bool, error) {
	r := k.req
	r.Keys = k.req.Keys[d : d+1]
	if err := k.step(ctx, &r); err != nil {
		return false, err
	}
	k.lookAhead(r.Keys)
	if r.Allowed && t.n > 0 {
		t.slots = t.c.answered(r.Now.UnixNano())
	}
	return r.Allowed, nil
}

// refused completes a try that t denied: the keys taken before are given back,
// and the remaining keys are looked at, so that the verdict speaks of all keys.
// If the look fails, the verdict speaks of the asked keys only.
func (k *call) refused(ctx context.Context, t *ticket, taken []*ticket, rest []int) result {
	r := result{room: t.room, contended: t.contended}
	others := result{allowed: true}
	var wg sync.WaitGroup
	if len(rest) > 0 {
		wg.Go(func() { others = k.look(ctx, rest, t.grace, true) })
	}
	failed := k.takeBackAll(ctx, taken)
	wg.Wait()
	if failed == nil && errors.Is(others.err, backend.ErrStaleLabel) {
		return result{err: others.err} // all hits are taken back, and the next try needs a new label
	}
	r.room = r.room && failed == nil && others.err == nil && others.allowed
	if failed == nil && others.err == nil {
		r.byOlder = !t.room && t.deniedByOlder() || others.byOlder
		r.overcounted = !t.room && t.overcounted() || others.overcounted
	} else {
		r.contended = true // nobody knows how long the remaining hits will stay
	}
	for i := range k.req.Keys {
		r.contended = r.contended || k.c.contended(k.req.Keys[i].Key, k.label)
	}
	return r
}

// lookAtFull completes the denial of a try whose bucket would exceed MaxCount.
// The windows are looked at again: hits of other calls may have filled the
// bucket, and may be taken back by now.
func (t *ticket) lookAtFull(ctx context.Context) error {
	err := t.look(ctx, true)
	t.room = err == nil && t.fits()
	return err
}

// takeBackAll takes back the hits of several keys, side by side.
func (k *call) takeBackAll(ctx context.Context, taken []*ticket) error {
	errs := make([]error, len(taken))
	sideBySide(len(taken), func(i int) { errs[i] = taken[i].takeBack(ctx) })
	return errors.Join(errs...)
}

// look answers for keys, which are indices of the request, by reading alone.
// With details, look reads until the answer is exact for an allowed call as
// well.
func (k *call) look(ctx context.Context, keys []int, deadline time.Time, details bool) result {
	looks := make([]*ticket, len(keys))
	errs := make([]error, len(keys))
	sideBySide(len(keys), func(i int) {
		t := k.ticket(keys[i], deadline)
		t.base.Deadline = deadline
		t.contended = !k.req.Peek && k.c.contended(k.req.Keys[keys[i]].Key, k.label)
		errs[i] = t.look(ctx, details)
		looks[i] = t
	})
	r := result{allowed: true, looked: true}
	for i, t := range looks {
		if errs[i] != nil {
			return result{looked: true, err: k.failed(ctx, errs[i])}
		}
		if t.fits() {
			continue
		}
		r.allowed = false
		r.contended = r.contended || t.contended
		r.byOlder = r.byOlder || t.deniedByOlder()
		r.overcounted = r.overcounted || t.overcounted()
	}
	return r
}

// order returns the indices of the keys that are not soft in the order of their
// names, the same for all callers: in random orders racing calls would refuse
// each other, or wait for each other for ever.
func (k *call) order() []int {
	order := k.enforced()
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(k.req.Keys[a].Key, k.req.Keys[b].Key) })
	return order
}

// canCollide tells whether calls of this kind can refuse each other with none
// admitted: near the end of a ticket bucket, under limits with different
// tickets, or on several keys.
func (k *call) canCollide() bool {
	keys := k.enforced()
	if len(keys) != 1 {
		return len(keys) > 1
	}
	key := &k.keys[keys[0]]
	for _, limit := range key.limits {
		if ladder := &key.on.plan.ladder; ladder.Decision(limit.Per) != ladder.Decision(key.limits[0].Per) {
			return true
		}
	}
	return k.nearBoundary()
}

// nearBoundary tells whether a ticket bucket of the call ends so close to its
// label that callers on the two sides of the end can be in flight at once.
func (k *call) nearBoundary() bool {
	for i := range k.keys {
		if k.req.Keys[i].Soft {
			continue
		}
		plan := &k.keys[i].on.plan
		for _, limit := range k.keys[i].limits {
			if plan.nearBoundary(k.label, plan.ladder.Decision(limit.Per)) {
				return true
			}
		}
	}
	return false
}

// sideBySide calls f for 0 to n-1, each in a goroutine of its own, and waits
// for all.
func sideBySide(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
