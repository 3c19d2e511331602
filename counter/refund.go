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
// of a key forgotten since, has nothing to give back; no error is returned. The
// keys of a TakeAll are given back side by side, all within Config.Patience. The
// Counter of the Verdict can give the Verdict back, and so can any Counter that
// With has made of the Counter.
func (c *Counter) Refund(ctx context.Context, v *Verdict) error {
	hits, err := c.hitsOf(v)
	if err != nil {
		return fmt.Errorf("counter: Refund: %w", err)
	}
	taken := *v
	*v = Verdict{}
	if len(hits) == 0 {
		return nil
	}
	r, err := c.begin(ctx, hits[0].Key)
	if err != nil {
		*v = taken // nothing has happened yet
		return err
	}
	if !taken.block.redeem(taken.bit) {
		return nil
	}
	return giveBackAll(ctx, hits, r, taken.at)
}

// hitsOf returns the hits of v, those of each key and ladder by themselves.
func (c *Counter) hitsOf(v *Verdict) ([]Ask, error) {
	keys, err := c.keysOf(v)
	return ofLadders(keys), err
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
	r.Key, r.Ladder = string(c.makerOf(hits).append(nil, hits.Key)), c.plan.Ladder
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
