package counter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// result is the outcome of one try, or of one look.
type result struct {
	allowed     bool
	looked      bool // by reading alone
	room        bool // denied, and with all hits taken back there is room
	byOlder     bool // denied by older hits than the young ones, as far as one look can tell
	overcounted bool // more is counted than there can be when all calls have ended
	contended   bool // others are seen to be under way
	err         error

	byPending  bool // denied by young hits, where callers can refuse each other
	mustChange bool // and some of these have to go
	final      bool // denied by a look, and not by hits that may be gone in a moment
}

// looksToSettle is how many tries and looks in a row must say that older hits
// deny, where they count more than there can be when all calls have ended, or
// callers on the two sides of a bucket's end are under way: hits are taken back
// tier by tier, and those that are gone from the seconds and not yet from the
// hour look old.
const looksToConfirm = 3

// judge tells what a denial is worth that is the so-many-th in a row by which
// older hits than the young ones deny.
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
				err = failed // what is left behind must not be tried again
			}
			return result{err: callError(ctx, k.asks[d].Key.Event, err)}
		}
		return k.refused(ctx, t, taken, order[i+1:])
	}
	return result{allowed: true}
}

// stepOf takes key d by the store's own atomic step, where that cannot hold all
// keys.
func (k *call) stepOf(ctx context.Context, d int, t *ticket) (bool, error) {
	r := k.req
	r.Keys = k.req.Keys[d : d+1]
	if err := k.step(ctx, &r); err != nil {
		return false, err
	}
	if r.Allowed {
		t.slots = t.c.answered(r.Now.UnixNano())
	}
	return r.Allowed, nil
}

// refused is the result of a try of which t was denied: the keys that were taken
// before are given back, and those that were not asked are looked at, which
// makes the verdict whole. Without an answer it speaks of those that were asked.
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
		return result{err: others.err} // nothing is added any more: it takes a new label
	}
	r.room = r.room && failed == nil && others.err == nil && others.allowed
	if failed == nil && others.err == nil {
		r.byOlder = !t.room && t.deniedByOlder() || others.byOlder
		r.overcounted = !t.room && t.overcounted() || others.overcounted
	} else {
		r.contended = true // of what is still there nobody knows how long it stays
	}
	for i := range k.req.Keys {
		r.contended = r.contended || k.c.contended(k.req.Keys[i].Key, k.label)
	}
	return r
}

// full is the denial of a try whose bucket cannot count so far. Its windows are
// looked at once more: others' hits may have filled it, and be gone.
func (t *ticket) lookAtFull(ctx context.Context) error {
	err := t.look(ctx, true)
	t.room = err == nil && t.fits()
	return err
}

// back takes back what was taken of several keys, side by side.
func (k *call) takeBackAll(ctx context.Context, taken []*ticket) error {
	errs := make([]error, len(taken))
	sideBySide(len(taken), func(i int) { errs[i] = taken[i].takeBack(ctx) })
	return errors.Join(errs...)
}

// look answers for the keys of these numbers from reading alone. With details it
// reads on until the answer is exact also for calls that it allows.
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

// all are the numbers of all keys.
func (k *call) all() []int {
	all := make([]int, len(k.req.Keys))
	for i := range all {
		all[i] = i
	}
	return all
}

// order are the keys in the order of their names, the same for all callers: in
// chance order racers shoot each other down, or wait for each other for ever.
func (k *call) order() []int {
	order := k.all()
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(k.req.Keys[a].Key, k.req.Keys[b].Key) })
	return order
}

// meet tells whether callers like this one can refuse each other without one of
// them being admitted: near the end of a ticket bucket, under limits with
// different tickets, or on several keys.
func (k *call) canCollide() bool {
	if len(k.asks) > 1 {
		return true
	}
	ladder, limits := k.c.plan.ladder, k.asks[0].Limits
	for _, limit := range limits {
		if ladder.Decision(limit.Per) != ladder.Decision(limits[0].Per) {
			return true
		}
	}
	return k.nearBoundary()
}

// near tells whether a ticket bucket of the call ends so close to its label that
// callers on its two sides can be under way at once.
func (k *call) nearBoundary() bool {
	plan := &k.c.plan
	for i := range k.asks {
		for _, limit := range k.asks[i].Limits {
			if plan.nearBoundary(k.label, plan.ladder.Decision(limit.Per)) {
				return true
			}
		}
	}
	return false
}

// sideBySide calls f for 0 to n-1, each in a goroutine of its own, and waits.
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
