package counter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A call on a store without an atomic step for its keys makes tries and looks in
// turn, until one of them decides or its patience ends. A try adds and may be
// refused; a look only reads.
//
// Callers that are under way at once can refuse each other: on the two sides of
// a ticket bucket's end each counts the other's hits, under limits with
// different tickets each can be ahead in one queue, and of several keys each can
// hold one. All take their hits back, and places stay empty that nobody wanted
// to leave. So who is refused looks again, after a random, growing time, as long
// as it counts more than there can be when all have taken back, and tries again
// when there is room. More tries without looks would refuse others anew.

// inTurn answers on a store without an atomic step for these demands.
func (k *call) inTurn(ctx context.Context) (allowed bool, err error) {
	c := k.c
	settled := 0 // looks in a row by which older hits than the young ones deny
	look := k.peek || c.denied != nil && c.denied.lately(k.demands, k.stamp.UnixNano())
	for round := 0; ; round++ {
		if round > 0 {
			if err := k.read(); err != nil {
				return false, err
			}
			if c.denied != nil && look && !k.peek && k.recalled() {
				return false, nil
			}
		}
		began := time.Now()
		var r result
		if look {
			r = k.look(ctx, k.demands, k.until, k.peek)
			if r.err != nil && round > 0 && ctx.Err() == nil && !errors.Is(r.err, ErrStaleLabel) {
				// It was refused, and its hits are taken back: only when to come
				// back it could not find out in time.
				k.soon = k.moment()
				return false, nil
			}
			if r.allowed && !k.peek {
				// Nothing is counted yet: that takes a try, and a label of its own.
				if err := k.read(); err != nil {
					return false, err
				}
				r = k.try(ctx)
			}
		} else {
			r = k.try(ctx)
		}
		if settled++; !r.settled {
			settled = 0
		}
		r.judge(k, settled)
		var late *lateError
		again := r.err == nil && !r.allowed && (r.room || r.unsure)
		switch {
		case errors.As(r.err, &late):
			c.stats.lateTries.Add(1)
			again = true
		case !k.anyLabel && errors.Is(r.err, ErrStaleLabel):
			c.stats.staleLabels.Add(1)
			k.anyLabel = round+1 >= maxLabels || !c.now().After(k.stamp)
			continue
		case r.err != nil || k.peek:
			return r.allowed, r.err
		}
		if c.denied != nil && r.err == nil {
			if r.looked && r.sure {
				c.denied.learn(c, k.demands, k.stamp.UnixNano(), k.n, false)
			} else {
				c.denied.note(k.demands, k.stamp.UnixNano(), k.n, r.allowed)
			}
			if r.crowd {
				c.denied.crowd(k.demands, k.stamp.UnixNano()+c.plan.ended)
			}
		}
		if !again {
			if r.young && (r.crowd || k.near() && !c.now().Equal(k.stamp)) {
				// Somebody who is under way may yet be refused, or come in with a
				// label before these hits: what they say of a wait is not sure.
				k.soon = k.moment()
			}
			return r.allowed, nil
		}
		if r.unsure && !r.crowd && c.now().Equal(k.stamp) {
			// A clock that stands still makes nothing older, and nobody else is
			// here: the hits beyond Max are of Add, or of other limits, and stay.
			return false, nil
		}
		look = r.unsure && !r.room
		if look {
			c.stats.looksAgain.Add(1)
		}
		if more, err := k.pause(ctx, round, time.Since(began)); err != nil {
			return false, err
		} else if !more {
			if r.err != nil {
				return false, r.err
			}
			k.soon = k.moment()
			return false, nil
		}
	}
}

// moment is how long the hits of calls that are under way can be in the way of
// others.
func (k *call) moment() time.Duration {
	return max(time.Duration(k.c.plan.ended), time.Millisecond)
}

// Waits between rounds are random, below a time that doubles from firstPause to
// lastPause, so that of those who refuse each other one comes first. A call
// without bounds to its patience makes maxRounds rounds.
const (
	firstPause = time.Millisecond
	lastPause  = 32 * time.Millisecond
	maxRounds  = 12
)

// pause waits before the next round. It returns false if there is no time for
// another that lasts as long as the one before.
func (k *call) pause(ctx context.Context, round int, lasted time.Duration) (bool, error) {
	most := min(firstPause<<min(round, 10), lastPause)
	wait := rand.N(most) + 1
	switch {
	case k.until.IsZero() && round == maxRounds:
		return false, nil
	case !k.until.IsZero() && time.Until(k.until) < wait+lasted:
		return false, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, k.c.failed(ctx, k.asks[0].Key.Event, ctx.Err())
	}
}

// result is the outcome of one try, or of one look.
type result struct {
	allowed bool
	looked  bool // by reading alone
	room    bool // denied, and with all hits taken back there is room
	settled bool // denied by older hits than the young ones, as far as one look can tell
	over    bool // more is counted than there can be when all calls have ended
	crowd   bool // others are seen to be under way
	err     error

	young  bool // denied by young hits, where callers can refuse each other
	unsure bool // and some of these have to go
	sure   bool // denied by a look, and not by hits that may be gone in a moment
}

// looksToSettle is how many tries and looks in a row must say that older hits
// deny, where they count more than there can be when all calls have ended, or
// callers on the two sides of a bucket's end are under way: hits are taken back
// tier by tier, and those that are gone from the seconds and not yet from the
// hour look old.
const looksToSettle = 3

// judge tells what a denial is worth that is the so-many-th in a row by which
// older hits than the young ones deny.
func (r *result) judge(k *call, settled int) {
	if r.err != nil || r.allowed || r.room {
		return
	}
	near := k.near()
	doubt := settled < looksToSettle && (r.over || r.crowd && near)
	r.young = (!r.settled || doubt) && (near || k.meet())
	r.unsure = r.young && r.over
	r.sure = r.looked && !r.young
}

// try takes every demand, in the order of their keys, or none.
func (k *call) try(ctx context.Context) result {
	c := k.c
	grace := c.grace(k.until)
	order := k.order()
	taken := make([]*ticket, 0, len(order))
	for i, d := range order {
		t := k.ticket(&k.demands[d], grace)
		var allowed bool
		var err error
		if c.taker != nil {
			allowed, err = t.step(ctx, k, k.demands[d:d+1])
		} else {
			allowed, err = t.take(ctx)
		}
		if err == nil && allowed {
			taken = append(taken, t)
			continue
		}
		if err != nil && errors.Is(err, ErrMaxCount) {
			err = t.full(ctx)
		}
		if err != nil {
			if failed := k.back(ctx, taken); failed != nil {
				err = failed // what is left behind must not be tried again
			}
			return result{err: c.failed(ctx, k.asks[d].Key.Event, err)}
		}
		// What the others say makes the verdict whole. Without an answer it
		// speaks of those that were asked.
		r := result{room: t.room, crowd: t.crowd}
		var others result
		var wg sync.WaitGroup
		if rest := order[i+1:]; len(rest) > 0 {
			demands := make([]*Demand, len(rest))
			for j, other := range rest {
				demands[j] = &k.demands[other]
			}
			wg.Go(func() { others = k.lookAt(ctx, demands, grace, true) })
		} else {
			others.allowed = true
		}
		failed := k.back(ctx, taken)
		wg.Wait()
		if failed == nil && errors.Is(others.err, ErrStaleLabel) {
			return result{err: others.err} // nothing is added any more: it takes a new label
		}
		r.room = r.room && failed == nil && others.err == nil && others.allowed
		if failed == nil && others.err == nil {
			r.settled = !t.room && t.settled(k.n) || others.settled
			r.over = !t.room && t.over(k.n) || others.over
		} else {
			r.crowd = true // of what is still there nobody knows how long it stays
		}
		for _, d := range order {
			r.crowd = r.crowd || c.crowded(k.demands[d].Key, k.stamp)
		}
		return r
	}
	return result{allowed: true}
}

// ticket is one demand of a try.
func (k *call) ticket(d *Demand, grace time.Time) *ticket {
	return &ticket{survey: survey{c: k.c, key: string(d.Key), stamp: k.stamp, deadline: k.until, grace: grace, anyLabel: k.anyLabel, windows: d.Windows}, n: k.n}
}

// step takes by the store's own atomic step, where that cannot hold all keys.
func (t *ticket) step(ctx context.Context, k *call, demand []Demand) (bool, error) {
	taking := Taking{Deadline: t.deadline, Ladder: t.c.plan.ladder, TTLs: t.c.ttls, Slack: t.c.skew, N: t.n, Demands: demand}
	if err := k.step(ctx, &taking); err != nil {
		return false, err
	}
	if taking.Allowed {
		t.slots = t.c.answered(taking.Now.UnixNano())
	}
	return taking.Allowed, nil
}

// full is the denial of a try whose bucket cannot count so far. Its windows are
// looked at once more: others' hits may have filled it, and be gone.
func (t *ticket) full(ctx context.Context) error {
	err := t.look(ctx, t.n, true)
	t.room = err == nil && t.fits(t.n)
	return err
}

// back takes back what was taken of several keys, side by side.
func (k *call) back(ctx context.Context, taken []*ticket) error {
	errs := make([]error, len(taken))
	sideBySide(len(taken), func(i int) {
		t := taken[i]
		_, errs[i] = k.c.takeBack(ctx, t.key, t.stamp, t.grace, k.n, t.slots, nil)
	})
	return errors.Join(errs...)
}

// look answers from reading alone. With details it reads on until the answer is
// exact also for calls that it allows.
func (k *call) look(ctx context.Context, demands []Demand, deadline time.Time, details bool) result {
	all := make([]*Demand, len(demands))
	for i := range demands {
		all[i] = &demands[i]
	}
	return k.lookAt(ctx, all, deadline, details)
}

func (k *call) lookAt(ctx context.Context, demands []*Demand, deadline time.Time, details bool) result {
	looks := make([]*ticket, len(demands))
	errs := make([]error, len(demands))
	sideBySide(len(demands), func(i int) {
		t := k.ticket(demands[i], deadline)
		t.deadline = deadline
		t.crowd = !k.peek && k.c.crowded(demands[i].Key, k.stamp)
		errs[i] = t.look(ctx, k.n, details)
		looks[i] = t
	})
	r := result{allowed: true, looked: true}
	for i, t := range looks {
		if errs[i] != nil {
			return result{err: k.c.failed(ctx, k.asks[0].Key.Event, errs[i])}
		}
		if t.fits(k.n) {
			continue
		}
		r.allowed = false
		r.crowd = r.crowd || t.crowd
		r.settled = r.settled || t.settled(k.n)
		r.over = r.over || t.over(k.n)
	}
	return r
}

// meet tells whether callers like this one can refuse each other without one of
// them being admitted: near the end of a ticket bucket, under limits with
// different tickets, or on several keys.
func (k *call) meet() bool {
	if len(k.demands) > 1 {
		return true
	}
	windows := k.demands[0].Windows
	for i := range windows {
		if windows[i].Decision != windows[0].Decision {
			return true
		}
	}
	return k.near()
}

// near tells whether a ticket bucket of the call ends so close to its label that
// callers on its two sides can be under way at once.
func (k *call) near() bool {
	for i := range k.demands {
		for j := range k.demands[i].Windows {
			if k.c.plan.near(k.stamp.UnixNano(), k.demands[i].Windows[j].Decision) {
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
