package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
)

// Charge counts n hits of key in any case, and reports whether a limit is over with
// these hits: for costs that are known only afterwards. n is 1 or more, or below zero
// to give hits back.
//
// The hits of a denying Verdict are counted too; the RetryAfter is then the time
// until no limit is over, without other hits. A Refund gives the hits of either
// Verdict back. So Charge can count more than Max in a window, and a Take is
// denied until the key has room again.
//
// A count that would exceed 2^53-1 is an error, no [ErrStore], and nothing is counted.
// Other errors are the errors of Take, and the hits of a failed call are undone,
// with one exception: on a store without an atomic step (memcached) hits
// confirmed later than Config.Settle stay counted. Such a call is reported as
// over or by an [ErrStore], since no one knows whether a limit was over. Each later
// Take of the process counts them; a Take in another process may miss them for up to
// a minute, as the hits of an [Counter.AddAt].
//
// An n below zero is a credit: the newest -n hits in the longest window of limits are
// given back, or as many as there are, whoever counted them. The Verdict reports whether
// a limit is over then; it cannot be refunded. No window loses more than -n hits, and
// none goes below zero. A credit that races with other credits, refunds, denials or a
// Forget of the key may find the same hits as they, and gives back less in some windows
// or in all. No receipt protects from a second credit for the same hits, or from a
// Refund of hits that a credit has given back: that is for the caller to avoid, also
// after an error, when some hits may have been given back.
func (c *Counter) Charge(ctx context.Context, key Key, n int64, limits Limits) (Verdict, error) {
	return c.ChargeAll(ctx, Ask{Key: key, N: n, Limits: limits})
}

// raise notes that the counts of the charged keys may have risen. mark is from before.
func (k *call) raise(mark int64) {
	for i := range k.keys {
		if k.asks[k.keys[i].ask].Charge {
			k.c.denied.raised(string(k.Keys[i].Key), mark)
		}
	}
}

// charged completes the answer of the store for charged keys, whose windows had no
// bound, and reports whether a limit of these keys is over. Nothing was counted if a
// count would have grown beyond MaxCount.
func (k *call) charged() (over bool, err error) {
	if !k.charges {
		return false, nil
	}
	for i := range k.keys {
		key, ask := &k.Keys[i], &k.asks[k.keys[i].ask]
		for j, limit := range k.keys[i].limits {
			if w := &key.Windows[j]; ask.Charge {
				if !k.Allowed && (k.Charge || ticket.Excess(w, key.N) > 0) {
					return false, backend.ErrMaxCount
				}
				w.Max = limit.Max - ask.heldIn(limit)
				over = over || ticket.Excess(w, key.N) > 0
			}
		}
	}
	if k.Late && !over {
		return false, fmt.Errorf("the hits are counted, and were confirmed later than Config.Settle of %s: whether a limit is over is not known", k.Settle())
	}
	return over, nil
}

// judgeCharged finds out when the limits of the charged keys are no longer over: never, of
// a limit whose Held alone are above Max.
func (k *call) judgeCharged(ctx context.Context, v *Verdict) {
	var asks, charged []Ask
	for i := range k.asks {
		if ask := k.asks[i]; ask.Charge {
			charged = append(charged, ask)
			ask.N, ask.Charge, ask.Held = 0, false, slices.Clone(ask.Held)
			for j := range ask.Held { // with more, the store would not be asked about the other limits
				ask.Held[j] = min(ask.Held[j], ask.Limits[j].Max)
			}
			asks = append(asks, ask)
		}
	}
	if k.Charge {
		v.Allowed, v.Remaining, v.RetryAfter = false, 0, k.c.plan.Young()+time.Millisecond
	}
	now, err := k.c.PeekAll(ctx, asks...)
	if err != nil {
		return
	}
	states, binds := now.All(), 0
	for i := range states {
		s := &states[i]
		if charged[s.Ask].heldIn(s.Limit) > s.Limit.Max {
			s.Remaining, s.RetryAfter = 0, Never
		}
		if s.RetryAfter > states[binds].RetryAfter {
			binds = i
		}
	}
	s := states[binds]
	if s.RetryAfter == 0 {
		return
	}
	if k.Charge {
		v.Key, v.Limit, v.RetryAfter, v.ResetAfter = s.Key, s.Limit, s.RetryAfter, s.ResetAfter
	}
	of := 0
	for i := range k.asks {
		for range k.asks[i].Limits {
			if v.details != nil && k.asks[i].Charge {
				v.details.states[of], states = states[0].short(), states[1:]
			}
			of++
		}
	}
}

// credit gives back the hits of asks, whose N are below zero, and answers whether a
// limit is over then.
func (c *Counter) credit(ctx context.Context, v *Verdict, asks []Ask) error {
	asks = slices.Clone(asks)
	for i := range asks {
		if asks[i].N > 0 {
			return fmt.Errorf("counter: n is %d, want 0 or below, as of the first key of the Charge, event %q", asks[i].N, asks[i].Key.Event)
		}
		asks[i].N, asks[i].Charge = -asks[i].N, false
	}
	r, err := c.begin(ctx, asks[0].Key)
	if err != nil {
		return err
	}
	k := c.calls.Get().(*call) // which a panic of the store does not give back: its goroutines may still use k
	if _, err := k.resolve(asks, peeking); err != nil {
		c.calls.Put(k)
		return err
	}
	errs := make([]error, len(k.keys))
	ticket.SideBySide(len(k.keys), func(i int) {
		key, ask, r := &k.Keys[i], &k.asks[k.keys[i].ask], r
		if key.N == 0 {
			return
		}
		var longest backend.Window
		for _, limit := range ask.Limits {
			var w backend.Window
			err := limit.window(&w, k.Plans[i])
			if err == nil && !w.Period.IsZero() {
				err = k.Plans[i].Place(&w, r.Now.UnixNano())
			}
			if err != nil { // all that a shorter former ladder has
				_ = k.Plans[i].Window(&w, 0, key.Ladder.At(key.Ladder.Len()-1).Keep)
			}
			if w.Reach >= longest.Reach {
				longest = w
			}
		}
		r.Key, r.Ladder = string(key.Key), key.Ladder
		defer c.denied.lowered(r.Key)
		errs[i] = callError(ctx, ask.Key.Event, c.protocol.Credit(ctx, r, k.Plans[i], &longest, key.N))
	})
	c.calls.Put(k)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range asks {
		asks[i].N = 0
	}
	return c.all(ctx, v, asks, peeking)
}
