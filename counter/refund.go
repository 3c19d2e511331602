package counter

import (
	"context"
	"errors"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// Refund gives back what v took, in the buckets that it hit, and empties v. It
// does so once: for all copies of v together, and also if it fails, since what
// the store has done then is unknown. A Verdict that took nothing, or whose key
// has been forgotten since, gives nothing back; that is no error.
func (c *Counter) Refund(ctx context.Context, v *Verdict) error {
	taken := *v
	*v = Verdict{}
	if taken.token.block == nil {
		return nil
	}
	if taken.token.block.owner != c {
		return errors.New("counter: refund: the verdict is another Counter's")
	}
	stamp, err := c.begin(ctx, taken.Key)
	if err != nil {
		*v = taken // nothing has happened yet
		return err
	}
	if !taken.token.spend() {
		return nil
	}
	asks := []Ask{{Key: taken.Key}}
	if taken.rest != nil && taken.rest.asks != nil {
		asks = taken.rest.asks
	}
	var errs []error
	for _, ask := range asks {
		errs = append(errs, c.giveBack(ctx, ask.Key, stamp, taken.at, taken.n))
	}
	return errors.Join(errs...)
}

// giveBack takes n back from the buckets of key that hold the label at, unless
// the key was forgotten after that.
func (c *Counter) giveBack(ctx context.Context, key Key, stamp time.Time, at, n int64) error {
	mark := survey{c: c, key: string(c.keys.appendForgotten(nil, key)), stamp: stamp, deadline: c.deadline()}
	now, fine, top := stamp.UnixNano(), 0, c.plan.ladder.Len()-1
	for now-at > int64(c.plan.ladder.At(fine).Keep) {
		if fine++; fine > top {
			return nil // no window reaches back that far
		}
	}
	// Whoever forgot the key after the hit may have had a slower clock.
	since := c.plan.ladder.Append(nil, at-c.plan.left, max(at, now+c.plan.left), fine, top, top)
	mark.covers = []tiers.Cover{since}
	if err := mark.fetch(ctx, since); err != nil {
		return c.failed(ctx, key.Event, err)
	}
	if mark.count(0) > 0 {
		return nil
	}
	stored := c.keys.append(nil, key)
	if c.denied != nil {
		defer c.denied.clear(stored)
	}
	if _, err := c.takeBack(ctx, string(stored), stamp, n, c.answered(at), nil); err != nil {
		return c.failed(ctx, key.Event, err)
	}
	return nil
}

// Forget sets all counts of key to zero. A call for the key that is under way
// at the same moment, on a store that is not a [Taker], can be half forgotten:
// then one hit too many may be admitted. Verdicts from before can no longer be
// refunded.
func (c *Counter) Forget(ctx context.Context, key Key) error {
	if err := key.check(); err != nil {
		return err
	}
	stamp, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	now := stamp.UnixNano()
	mark := &Op{Key: string(c.keys.appendForgotten(nil, key)), Ladder: c.plan.ladder, Now: stamp, Deadline: c.deadline(), N: 1, Add: c.slots(now)}
	if err := c.store.Do(ctx, mark); err != nil {
		return c.failed(ctx, key.Event, err)
	}
	stored := c.keys.append(nil, key)
	if c.denied != nil {
		defer c.denied.clear(stored)
	}
	if err := c.empty(ctx, string(stored), stamp); err != nil {
		return c.failed(ctx, key.Event, err)
	}
	return nil
}

// empty takes everything back, coarsest tier first, and looks into a finer tier
// only where the coarser one held something: it is kept as long at least. Of tiers
// that are kept equally long it looks as far back in all: a store may work out the
// coarser from the finer.
func (c *Counter) empty(ctx context.Context, key string, stamp time.Time) error {
	const chunk = 1000 // buckets of one read
	now := stamp.UnixNano()
	var held tiers.Cover
	var back, keep time.Duration
	for i := c.plan.ladder.Len() - 1; i >= 0; i-- {
		t := c.plan.ladder.At(i)
		if t.Keep != keep {
			back, keep = c.ttls[i], t.Keep
		}
		oldest, newest := tiers.Index(now-int64(back), t.Width), tiers.Index(now+c.plan.left, t.Width)
		look := tiers.Cover{{Width: t.Width, First: oldest, N: newest - oldest + 1}}
		if held != nil {
			look = nil
			for _, r := range held {
				ratio := int64(r.Width / t.Width)
				first, last := max(oldest, r.First*ratio), min(newest, (r.First+r.N)*ratio-1)
				if first <= last {
					look = append(look, tiers.Run{Width: t.Width, First: first, N: last - first + 1})
				}
			}
		}
		held = tiers.Cover{}
		var slots []Slot
		for _, r := range look {
			for ; r.N > 0; r.First, r.N = r.First+chunk, r.N-chunk {
				part := tiers.Run{Width: r.Width, First: r.First, N: min(chunk, r.N)}
				s := survey{c: c, key: key, stamp: stamp, deadline: c.deadline()}
				if err := s.fetch(ctx, tiers.Cover{part}); err != nil {
					return err
				}
				for j, n := range s.known[0].Counts {
					if n > 0 {
						b := tiers.Bucket{Width: t.Width, Index: part.First + int64(j)}
						held = append(held, tiers.Run{Width: t.Width, First: b.Index, N: 1})
						slots = append(slots, Slot{Bucket: b, TTL: c.ttls[i], Count: 1})
					}
				}
			}
		}
		for len(slots) > 0 {
			part := slots[:min(chunk, len(slots))]
			slots = slots[len(part):]
			if _, err := c.takeBack(ctx, key, stamp, MaxCount, part, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
