package counter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
)

// Refund gives back the hits of v, in the buckets of these hits, and empties v.
// Only the first Refund of v and all copies of v gives back, even if the first
// fails: the store may have done its part then. The Verdict of a denied call, or
// of a key forgotten since, has nothing to give back; no error is returned. After a
// [Counter.Settle] the error is [ErrSettled], and v is unchanged. The
// keys of a TakeAll are given back side by side, all within Config.Patience. The
// Counter of the Verdict can give the Verdict back, and so can any Counter that
// With has made of the Counter.
func (c *Counter) Refund(ctx context.Context, v *Verdict) error {
	hits, r, first, err := c.redeem(ctx, v, refunded, "Refund")
	if err != nil {
		return err
	}
	at := v.at
	*v = Verdict{}
	if !first {
		return nil
	}
	return giveBackAll(ctx, hits, r, at)
}

// redeem marks the receipt of v, for the named method, and reports whether it had no mark
// and there are hits to give back, which it returns with the request. After an error it is
// not marked.
func (c *Counter) redeem(ctx context.Context, v *Verdict, mark uint64, name string) (hits []Ask, r backend.Request, first bool, err error) {
	if hits, err = c.hitsOf(v); err == nil && len(hits) > 0 {
		if r, err = c.begin(ctx, hits[0].Key); err != nil {
			return nil, r, false, err
		}
		first, err = v.block.redeem(v.bit, mark)
	}
	if err == nil && !first && mark == settled {
		err = ErrSettled
	}
	if err != nil {
		err = fmt.Errorf("counter: %s: %w", name, err)
	}
	return hits, r, first, err
}

// hitsOf returns the hits of v, those of each key and ladder by themselves.
func (c *Counter) hitsOf(v *Verdict) (hits []Ask, err error) {
	switch {
	case v.block == nil:
		return nil, nil
	case v.block.owner.base != c.base:
		return nil, errors.New("the Verdict is of another Counter")
	case v.settled:
		return nil, ErrSettled
	}
	for _, k := range v.asks() {
		for on := k.On; on != nil && k.N > 0; on = on.former {
			k.On = on
			if hits = append(hits, k); k.Soft {
				break // counted by one ladder
			}
		}
	}
	return hits, nil
}

// giveBackAll gives back hits with the label at, side by side.
func giveBackAll(ctx context.Context, hits []Ask, r backend.Request, at int64) error {
	errs := make([]error, len(hits))
	ticket.SideBySide(len(hits), func(i int) {
		errs[i] = hits[i].On.giveBack(ctx, &hits[i], r, at)
	})
	return errors.Join(errs...)
}

// giveBack takes the hits of an ask back from the buckets that hold the label at, by the
// ladder of c, unless the key was forgotten since. r is a request with the label of the
// refund.
func (c *Counter) giveBack(ctx context.Context, hits *Ask, r backend.Request, at int64) error {
	r = c.like(hits, r)
	if r.Now.UnixNano()-at > int64(c.longest()) {
		return nil // all buckets have expired
	}
	label, err := c.store.Forgotten(ctx, c.forgetting(r))
	// A Forget so shortly before the hit may have removed it: the caller of the Forget
	// may have had a slower clock.
	if err != nil || label != 0 && at <= label+int64(c.cfg.Skew) {
		return callError(ctx, hits.Key.Event, err)
	}
	defer c.denied.lowered(r.Key)
	c.protocol.Confirmed(r.Key, &c.plan, time.Unix(0, at), -hits.N)
	defer c.protocol.Lowered(r.Key)
	_, err = c.protocol.TakeBack(ctx, r, r.Deadline, hits.N, c.plan.Slots(at, 1), nil)
	return callError(ctx, hits.Key.Event, err)
}

// longest is the time from the label of a hit to the end of its last bucket.
func (c *Counter) longest() time.Duration { return c.plan.TTLs[len(c.plan.TTLs)-1] }
