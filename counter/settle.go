package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrSettled is the error of a Settle of a Verdict that counts no hits, or whose hits
// were settled or given back before, and of a Refund after a Settle. Nothing was done.
var ErrSettled = errors.New("the Verdict counts no hits, or they were settled or given back before")

// Settle has v count used hits instead of N, for a call that took an estimate of its cost:
// fewer are given back, in the buckets of these hits, and more are charged. used is 0 or
// more. In a TakeAll the keys that counted N hits are settled, soft keys included, and the
// keys with another n keep theirs.
//
// The excess over N is counted as by [Counter.Charge], whatever the limits, with a label
// of its own between the call and the return. So as long as no call uses more than it took,
// no window has more than Max settled hits; an excess can be more than Max, and later
// calls are denied until there is room again.
//
// Afterwards N, the flat fields and All are those of v with used hits, charged keys
// included, and exact if no other call is in flight. A RetryAfter above 0 is the time
// until no limit is over, without other hits. Allowed and At are those of the call, but a
// Charge that was over is Allowed once no limit is over. To be exact costs a Peek, unless
// hits are charged.
//
// Only the first Settle or Refund of v and all copies of v has an effect: a later Settle
// is the error [ErrSettled], and so is a Settle of a Verdict that counts no hits. A used
// below 0 or above [MaxCount], and a ctx that is over, are errors that leave v as it was.
// After any other error v cannot be settled again, since the store may have done its
// part: every window then has at least the lesser of N and used hits of v, and at most the
// greater. Of a key that was forgotten since, nothing is given back, and an excess counts.
func (c *Counter) Settle(ctx context.Context, v *Verdict, used int64) error {
	_, err := c.settle(ctx, v, v.n, used)
	return err
}

// settle is Settle of the keys with n hits each. After an error that is not done nothing
// has happened.
func (c *Counter) settle(ctx context.Context, v *Verdict, n, used int64) (done bool, err error) {
	if used < 0 || used > MaxCount {
		return false, fmt.Errorf("counter: Settle: used is %d, want 0 to %d", used, int64(MaxCount))
	}
	hits, r, _, err := c.redeem(ctx, v, settled, "Settle")
	if err != nil {
		return false, err
	}
	v.settled = true
	if used < n {
		hits = slices.DeleteFunc(hits, func(a Ask) bool { return a.N != n })
		for i := range hits {
			hits[i].N = n - used
		}
		if err := giveBackAll(ctx, hits, r, v.at); err != nil {
			return true, err
		}
	}
	asks, ask := v.asks(), c.PeekAll
	for i := range asks {
		a, more := &asks[i], used-n
		if a.N != n {
			more = 0
		}
		switch a.N, a.Charge = 0, false; { // ChargeAll charges all; a Peek might not know a charged key
		case more <= 0:
		case a.Soft: // whatever its room, as if it were enforced
			r := a.On.like(a, r)
			r.N = more
			_, _ = a.On.addTo(ctx, a.Key, r) // a soft key that fails fails no call
		default:
			a.N, ask = more, c.ChargeAll
		}
	}
	w, err := ask(ctx, asks...)
	if err != nil {
		return true, err
	}
	if v.n == n {
		v.n = used
	}
	v.become(asks, &w)
	return true, nil
}

// asks returns the keys of v, with the hits that v counts.
func (v *Verdict) asks() []Ask {
	ask := Ask{Key: v.Key, On: v.block.owner, N: v.n}
	switch d := v.details; {
	case d == nil:
		ask.Limits = Limits{v.Limit}
	case d.keys == nil:
		ask.Limits = d.limits
	default:
		return slices.Clone(d.keys)
	}
	return []Ask{ask}
}

// become makes v the Verdict of these keys, with the states of w.
func (v *Verdict) become(asks []Ask, w *Verdict) {
	if v.details = w.details; w.details != nil {
		for i := range asks {
			w.details.keys[i].place = asks[i].place
		}
	}
	now := Verdict{Allowed: true}
	for _, s := range w.All() {
		if !s.Soft {
			now.judge(now.Limit == Limit{}, s.Key, s.Limit, s.short())
		}
	}
	v.Allowed = v.Allowed || now.RetryAfter == 0
	v.Key, v.Limit, v.Remaining, v.RetryAfter, v.ResetAfter = now.Key, now.Limit, now.Remaining, now.RetryAfter, now.ResetAfter
}
