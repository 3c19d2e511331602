package counter

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/abacus-go/abacus/backend"
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

// inTurn answers on a store without an atomic step for the keys of the call.
func (k *call) decideByRounds(ctx context.Context) (allowed bool, err error) {
	c := k.c
	confirmed := 0 // looks in a row by which older hits than the young ones deny
	look := k.req.Peek || c.denied != nil && c.denied.readFirst(k.req.Keys, k.label)
	for round := 0; ; round++ {
		if round > 0 {
			if err := k.relabel(); err != nil {
				return false, err
			}
			if c.denied != nil && look && !k.req.Peek && k.recalled() {
				return false, nil
			}
		}
		began := time.Now()
		var r result
		if look {
			r, err = k.lookFirst(ctx)
		} else {
			r = k.try(ctx)
		}
		if err != nil {
			return false, err
		}
		if look && round > 0 && r.err != nil && r.looked && ctx.Err() == nil && !errors.Is(r.err, backend.ErrStaleLabel) {
			// It was refused, and its hits are taken back: only when to come
			// back it could not find out in time.
			return k.denyForNow()
		}
		if confirmed++; !r.byOlder {
			confirmed = 0
		}
		r.judge(k, confirmed)
		var late *lateError
		switch {
		case errors.As(r.err, &late):
			c.stats.lateTries.Add(1)
		case !k.req.AnyLabel && errors.Is(r.err, backend.ErrStaleLabel):
			c.stats.staleLabels.Add(1)
			k.req.AnyLabel = round+1 >= maxLabels || !c.now().After(k.req.Now)
			continue
		case r.err != nil || k.req.Peek:
			return r.allowed, r.err
		default:
			k.remember(&r)
			if r.allowed {
				return true, nil
			}
			still := c.now().Equal(k.req.Now)
			switch {
			case !r.room && !r.mustChange:
				if r.byPending && (r.contended || k.nearBoundary() && !still) {
					// Somebody who is under way may yet be refused, or come in with a
					// label before these hits: what they say of a wait is not sure.
					return k.denyForNow()
				}
				return false, nil
			case r.mustChange && !r.contended && still:
				// A clock that stands still makes nothing older, and nobody else is
				// here: the hits beyond Max are of Add, or of other limits, and stay.
				return false, nil
			}
		}
		if look = r.mustChange && !r.room; look {
			c.stats.looksAgain.Add(1)
		}
		if more, err := k.pause(ctx, round, time.Since(began)); err != nil {
			return false, err
		} else if !more {
			if r.err != nil {
				return false, r.err
			}
			return k.denyForNow()
		}
	}
}

// lookFirst is a look, and if the call would be admitted a try: nothing is
// counted yet, and that takes a label of its own.
func (k *call) lookFirst(ctx context.Context) (result, error) {
	r := k.look(ctx, k.all(), k.req.Deadline, k.req.Peek)
	if !r.allowed || k.req.Peek {
		return r, nil
	}
	if err := k.relabel(); err != nil {
		return r, err
	}
	return k.try(ctx), nil
}

// remember takes up in the memory of denials what a try or a look has answered.
func (k *call) remember(r *result) {
	denied := k.c.denied
	if denied == nil {
		return
	}
	if r.looked && r.final {
		denied.recordRead(k.c, k.req.Keys, k.label, false)
	} else {
		denied.record(k.req.Keys, k.label, r.allowed)
	}
	if r.contended {
		denied.recordContended(k.req.Keys, k.label+k.c.plan.ending)
	}
}

// comeBackSoon is a denial by hits that may be gone in a moment.
func (k *call) denyForNow() (allowed bool, err error) {
	k.retryWithin = max(time.Duration(k.c.plan.ending), time.Millisecond)
	return false, nil
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
	wait, until := rand.N(most)+1, k.req.Deadline
	switch {
	case until.IsZero() && round == maxRounds:
		return false, nil
	case !until.IsZero() && time.Until(until) < wait+lasted:
		return false, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, k.failed(ctx, ctx.Err())
	}
}
