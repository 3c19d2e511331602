package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Settle has used hits counted instead of those that v has counted, once: for a cost
// that was estimated in a Take, and is known afterwards. Fewer hits are given back in the
// buckets of the Take, as by Refund, and more are charged now, as by Charge, also over a
// limit. Each key with as many hits as [Verdict.N] is settled; a key with another number,
// such as one for the calls next to one for their cost, keeps its own. If no call uses
// more than it has estimated, no window has more than Max of what was used.
//
// v becomes the answer of a Peek of 0 of these keys after the change: Remaining is what
// is left, and Allowed is false if a limit is over. It cannot be refunded or settled. A
// Verdict that has counted nothing is unchanged, and no error is returned.
//
// It is an error if used is below 0 or above MaxCount, and if v or a copy was refunded or
// settled before; v is then unchanged, as by a ctx that is over. After any other error v
// is empty, and cannot be settled again: hits may have been given back, or used may be
// counted already. Hits that were to be charged were not, if [Counter.Charge] says so of
// the same error, and then Charge is the second try. A crash in between counts the hits of
// the Take.
func (c *Counter) Settle(ctx context.Context, v *Verdict, used int64) error {
	if err := c.settle(ctx, v, v.n, used); err != nil {
		return fmt.Errorf("counter: Settle: %w", err)
	}
	return nil
}

// settle is Settle of the keys of v with n hits.
func (c *Counter) settle(ctx context.Context, v *Verdict, n, used int64) error {
	keys, err := c.keysOf(v)
	keys = slices.DeleteFunc(keys, func(k Ask) bool { return k.N != n })
	switch {
	case err != nil:
		return err
	case used < 0 || used > MaxCount:
		return fmt.Errorf("used is %d, want 0 to %d", used, int64(MaxCount))
	case len(keys) == 0:
		return nil
	}
	r, err := c.begin(ctx, keys[0].Key)
	switch {
	case err != nil:
		return err
	case !v.block.redeem(v.bit):
		return errors.New("the Verdict was refunded or settled before")
	}
	at := v.at
	*v = Verdict{}
	for i := range keys {
		k := &keys[i]
		k.N, k.Charge, k.UpTo, k.Held = max(n-used, used-n), false, false, nil
	}
	switch {
	case used < n:
		err = giveBackAll(ctx, ofLadders(keys), r, at)
	case used > n:
		_, err = c.ChargeAll(ctx, keys...)
	}
	if err != nil {
		return err
	}
	for i := range keys {
		keys[i].N = 0
	}
	return c.all(ctx, v, keys, peeking)
}

// keysOf returns the keys that v has hits of, with their limits.
func (c *Counter) keysOf(v *Verdict) ([]Ask, error) {
	switch {
	case v.block == nil:
		return nil, nil
	case v.block.owner.base != c.base:
		return nil, errors.New("the Verdict is of another Counter")
	}
	one := Ask{Key: v.Key, On: v.block.owner, N: v.n, Limits: Limits{v.Limit}}
	if d := v.details; d != nil && d.keys != nil {
		return slices.DeleteFunc(slices.Clone(d.keys), func(k Ask) bool { return k.N == 0 }), nil
	} else if d != nil {
		one.Limits = d.limits
	}
	return []Ask{one}, nil
}

// ofLadders returns the hits of each key and ladder by themselves.
func ofLadders(keys []Ask) (hits []Ask) {
	for _, k := range keys {
		for on := k.On; on != nil; on = on.former {
			k.On = on
			if hits = append(hits, k); k.Soft {
				break // counted by one ladder
			}
		}
	}
	return hits
}
