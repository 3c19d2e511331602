package counter

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// On a store without an atomic step for its keys, a call makes rounds: tries
// and looks, until a round decides or the patience of the call ends. A try
// adds, and may be refused; a look only reads.
//
// Calls in flight at the same time can refuse each other. On the two sides of a
// ticket bucket's end each counts the hits of the other; under limits with
// different tickets each can be ahead in one queue; of several keys each can
// hold a part. All such calls take their hits back, and room stays unused. So a
// refused call looks again, after a random, growing time, as long as it counts
// more hits than can remain when all calls have ended, and tries again when
// there is room. Tries without looks would only refuse other calls.

// decideByRounds answers on a store without an atomic step for the keys of the
// call.
func (k *call) decideByRounds(ctx context.Context) (allowed bool, err error) {
	c := k.c
	confirmed := 0 // consecutive rounds with a denial by older hits
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
			// The call was refused and its hits are taken back. Only the time to
			// come back could not be found out.
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
					// A call in flight may yet be refused, or be admitted with an
					// earlier label: no exact time to come back is known.
					return k.denyForNow()
				}
				return false, nil
			case r.mustChange && !r.contended && still:
				// While the clock stands still no hit ages, and no other call is in
				// flight: the hits beyond Max are of an Add or of other limits, and
				// stay.
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

// lookFirst is a look, and a try if the look would admit the call. The try gets
// a label of its own.
func (k *call) lookFirst(ctx context.Context) (result, error) {
	r := k.look(ctx, k.enforced(), k.req.Deadline, k.req.Peek)
	if k.req.Peek && r.err == nil {
		k.lookSoft(ctx)
	}
	if !r.allowed || k.req.Peek {
		return r, nil
	}
	if err := k.relabel(); err != nil {
		return r, err
	}
	return k.try(ctx), nil
}

// remember records the answer of a try or a look in the memory of denials.
func (k *call) remember(r *result) {
	denied := k.c.denied
	if denied == nil {
		return
	}
	if r.looked && r.final {
		denied.recordRead(k, false)
	} else {
		denied.record(k.req.Keys, k.label, r.allowed)
	}
	if r.contended {
		denied.recordContended(k)
	}
}

// denyForNow denies because of hits that may soon be taken back.
func (k *call) denyForNow() (allowed bool, err error) {
	k.retryWithin = time.Millisecond
	for i := range k.keys {
		k.retryWithin = max(k.retryWithin, time.Duration(k.keys[i].on.plan.ending))
	}
	return false, nil
}

// Pauses between rounds are random, below a bound that doubles from firstPause
// to lastPause, so that among calls that refuse each other a first will win. A
// call without Patience makes at most maxRounds rounds.
const (
	firstPause = time.Millisecond
	lastPause  = 32 * time.Millisecond
	maxRounds  = 12
)

// pause waits before the next round. It returns false if the time left is too
// short for a round as long as the last.
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
		return false, k.failed(ctx, cmp.Or(ctx.Err(), context.Canceled))
	}
}
