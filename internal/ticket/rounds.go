package ticket

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

// Rounds completes a call after its first try, which has returned f and err; or, with
// look, from the begin, for a Peek, and for a call whose keys were denied a moment
// ago. The answer is written into c.
func (p *Protocol) Rounds(ctx context.Context, c *Call, look bool, f Finding, err error) error {
	older := 0 // consecutive rounds with a denial by older hits
	began := c.Labelled
	for round := 0; ; round++ {
		if round > 0 {
			if err := p.Relabel(c); err != nil {
				return err
			}
			if look && !c.Peek && p.memory.Recall(c) {
				return nil
			}
		}
		if round > 0 || look {
			began = time.Now()
			f, err = p.round(ctx, c, look)
		}
		stale := errors.Is(err, backend.ErrStaleLabel)
		if err != nil && f.looked && round > 0 && !stale && ctx.Err() == nil {
			// The call was refused and its hits are undone. Only the time to
			// come back could not be found out.
			c.denyForNow()
			return nil
		}
		if older++; !f.byOlder {
			older = 0
		}
		look = look && stale
		switch late := (*lateError)(nil); {
		case errors.As(err, &late):
			p.LateTries.Add(1)
		case stale && !c.AnyLabel:
			p.StaleLabels.Add(1)
			c.AnyLabel = round+1 >= MaxLabels || !p.now().After(c.Now)
			continue
		case err != nil || c.Peek || f.Allowed:
			c.Allowed = f.Allowed
			return err
		default:
			var done bool
			if look, done = p.weigh(c, &f, older); done {
				return nil
			}
		}
		if more, ended := p.pause(ctx, c, round, time.Since(began)); !more {
			if err = cmp.Or(ended, err); err == nil {
				c.denyForNow()
			}
			return err
		}
	}
}

// round is a try, or with look a look, and a try if the look would admit the call.
// The try gets a label of its own.
func (p *Protocol) round(ctx context.Context, c *Call, look bool) (Finding, error) {
	if look {
		f, err := p.look(ctx, c, c.Order(), c.Deadline, c.Peek)
		if c.Peek && err == nil {
			p.judgeSoft(ctx, c)
		}
		if err != nil || c.Peek || !f.Allowed {
			return f, err
		}
		if err := p.Relabel(c); err != nil {
			return Finding{}, err
		}
	}
	return p.Try(ctx, c)
}

// looksToConfirm is the number of consecutive tries and looks that must find a
// denial by older hits, if too many hits are counted, or if calls of others are in
// flight. Hits are undone tier by tier: hits that have left the seconds, and not
// yet the hour, look old.
const looksToConfirm = 3

// weigh decides what follows a refusal: the call is denied, or goes on, with a look if
// some of the hits that refuse it must be undone, or may have been. older is the
// number of consecutive denials by older hits, this denial included.
func (p *Protocol) weigh(c *Call, f *Finding, older int) (look, done bool) {
	near, collide := c.boundaries()
	doubt := older < looksToConfirm && (f.over || f.contended)
	byYoung := !f.room && (!f.byOlder || doubt) && (near || collide)
	look = byYoung && (f.over || f.byOlder)
	p.memory.Record(c, false, f.looked && !byYoung, f.contended)
	still := p.now().Equal(c.Now)
	switch {
	case f.room:
		return false, false
	case look && (f.contended || !still):
		p.LooksAgain.Add(1)
		return true, false
	case !look && byYoung && (f.contended || near && !still):
		// A call in flight may yet be refused, or be admitted with an earlier label: no
		// exact time to come back is known.
		c.denyForNow()
	}
	// With look: while the clock stands still no hit ages, and no other call is in
	// flight. The hits beyond Max are of an Add or of other limits, and stay.
	return false, true
}

// denyForNow denies because of hits that may soon be undone.
func (c *Call) denyForNow() {
	c.RetryWithin = time.Millisecond
	for _, plan := range c.Plans {
		c.RetryWithin = max(c.RetryWithin, plan.Young())
	}
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
func (p *Protocol) pause(ctx context.Context, c *Call, round int, lasted time.Duration) (bool, error) {
	most := min(firstPause<<min(round, 10), lastPause)
	wait, until := rand.N(most)+1, c.Deadline
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
		return false, cmp.Or(ctx.Err(), context.Canceled)
	}
}

// boundaries looks at the ticket buckets of the call. near reports whether one ends so
// close to the label that callers on the two sides of the end can be in flight at once;
// collide, whether calls of this kind can refuse each other with none admitted, wherever
// their labels are: under limits with different tickets, or on several keys that can deny.
func (c *Call) boundaries() (near, collide bool) {
	key, first := -1, 0
	for i := range c.Keys {
		plan, windows := c.Plans[i], c.Keys[i].Windows
		for j := range windows {
			if c.Keys[i].Soft || !Bounded(&c.Keys[i]) {
				break
			}
			top := plan.bounds(&windows[j], c.Label()).top
			if key < 0 {
				key, first = i, top
			}
			collide = collide || i != key || top != first
			near = near || plan.nearBoundary(c.Label(), top)
		}
	}
	return near, collide
}

// Charge counts the hits of a call in any case, on a store without an atomic step for
// the keys. The call is not allowed if a count would have grown beyond MaxCount.
func (p *Protocol) Charge(ctx context.Context, c *Call) error {
	for labels := 1; ; labels++ {
		f, err := p.Try(ctx, c)
		if c.Allowed, c.Late = f.Allowed, f.Late; c.AnyLabel || !errors.Is(err, backend.ErrStaleLabel) {
			return err
		}
		if err := p.staleLabel(c, labels); err != nil {
			return err
		}
	}
}
