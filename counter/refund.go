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
// has been forgotten since, gives nothing back; that is no error. The keys of a
// TakeAll are given back side by side, all within Config.Timeout.
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
	deadline := c.deadline()
	errs := make([]error, len(asks))
	sideBySide(len(asks), func(i int) {
		errs[i] = c.giveBack(ctx, asks[i].Key, stamp, deadline, taken.at, taken.n)
	})
	return errors.Join(errs...)
}

// giveBack takes n back from the buckets of key that hold the label at, unless
// the key was forgotten after that.
func (c *Counter) giveBack(ctx context.Context, key Key, stamp, deadline time.Time, at, n int64) error {
	if stamp.UnixNano()-at > int64(c.longest()) {
		return nil // no bucket lives that long
	}
	stored := c.keys.append(nil, key)
	forgotten, err := c.forgottenSince(ctx, key, stored, stamp, deadline, at)
	if err != nil {
		return c.failed(ctx, key.Event, err)
	}
	if forgotten {
		return nil
	}
	if c.denied != nil {
		defer c.denied.clear(stored)
	}
	if _, err := c.takeBack(ctx, string(stored), stamp, deadline, n, c.answered(at), nil); err != nil {
		return c.failed(ctx, key.Event, err)
	}
	return nil
}

// longest is how long after a hit's label the last of its buckets is gone.
func (c *Counter) longest() time.Duration { return c.ttls[len(c.ttls)-1] }

// forgottenSince tells whether key was forgotten after a hit with the label at,
// or so shortly before that the hit may have been forgotten with the rest:
// whoever forgot it may have had a slower clock.
func (c *Counter) forgottenSince(ctx context.Context, key Key, stored []byte, stamp, deadline time.Time, at int64) (bool, error) {
	if f, ok := c.store.(Forgetter); ok {
		label, err := f.Forgotten(ctx, string(stored), stamp, deadline)
		return err == nil && label != 0 && at <= label+c.plan.skew, err
	}
	// Remembered in buckets, in each tier for as long as it is kept. They tell
	// the bucket of a Forget, and no more.
	mark := survey{c: c, key: string(c.keys.appendForgotten(nil, key)), stamp: stamp, deadline: deadline, anyLabel: true}
	now, fine, top := stamp.UnixNano(), 0, c.plan.ladder.Len()-1
	for fine < top && now-at > int64(c.plan.ladder.At(fine).Keep) {
		fine++
	}
	since := c.plan.ladder.Append(nil, at-c.plan.skew, max(at, now+c.plan.skew), fine, top, top)
	mark.covers = []tiers.Cover{since}
	if err := mark.fetch(ctx, since); err != nil {
		return false, err
	}
	return mark.count(0) > 0, nil
}

// Forget sets all counts of key to zero, in steps that do not hold up others'
// calls; it may take as long as ctx lets it, and [ForgetTimeout] at most. After
// an error some hits may be left, and a second Forget finds them. On a store
// without an atomic step a call for the key that is under way at the same
// moment can be half forgotten, and one hit too many be admitted for each.
// Verdicts from before can no longer be refunded.
func (c *Counter) Forget(ctx context.Context, key Key) error {
	if err := key.check(); err != nil {
		return err
	}
	stamp, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	deadline := time.Time{}
	if c.timeout > 0 {
		deadline = time.Now().Add(max(ForgetTimeout, c.timeout))
	}
	stored := c.keys.append(nil, key)
	if c.denied != nil {
		defer c.denied.clear(stored)
	}
	if f, ok := c.store.(Forgetter); ok {
		err = f.Forget(ctx, &Forgetting{Key: string(stored), Ladder: c.plan.ladder, TTLs: c.ttls, Now: stamp, Deadline: deadline,
			Label: stamp.UnixNano(), Remember: c.longest() + c.skew, Clock: c.now})
	} else {
		err = c.empty(ctx, key, string(stored), stamp, deadline)
	}
	if err != nil {
		return c.failed(ctx, key.Event, err)
	}
	return nil
}

// ForgetTimeout is the patience of a [Counter.Forget], unless Config.Timeout is
// more: a key with a hit in each second of a day has 90,000 buckets.
const ForgetTimeout = 10 * time.Second

// empty forgets a key on a store that cannot by itself. It remembers that first,
// in buckets of another key. Then it reads, coarsest tier first, and looks into a
// finer tier only where the coarser one held something; and takes back finest
// first, so that what an error leaves behind is found again. Of tiers that are
// kept equally long it looks as far back in all: a store may work out the coarser
// from the finer.
func (c *Counter) empty(ctx context.Context, key Key, stored string, stamp, deadline time.Time) error {
	const chunk = 250 // buckets of one trip
	now := stamp.UnixNano()
	mark := &Op{Key: string(c.keys.appendForgotten(nil, key)), Ladder: c.plan.ladder, Now: stamp, Deadline: deadline, N: 1, Add: c.slots(now), AnyLabel: true}
	if err := c.store.Do(ctx, mark); err != nil {
		return err
	}
	ladder := c.plan.ladder
	var held tiers.Cover
	var back, keep time.Duration
	found := make([][]Slot, ladder.Len())
	for i := ladder.Len() - 1; i >= 0; i-- {
		t := ladder.At(i)
		if t.Keep != keep {
			back, keep = c.ttls[i], t.Keep
		}
		oldest, newest := tiers.Index(now-int64(back), t.Width), tiers.Index(now+c.plan.ended, t.Width)
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
		for _, r := range look {
			for ; r.N > 0; r.First, r.N = r.First+chunk, r.N-chunk {
				part := tiers.Run{Width: r.Width, First: r.First, N: min(chunk, r.N)}
				s := survey{c: c, key: stored, stamp: stamp, deadline: deadline, anyLabel: true}
				if err := s.fetch(ctx, tiers.Cover{part}); err != nil {
					return err
				}
				for j, n := range s.known[0].Counts {
					if n > 0 {
						b := tiers.Bucket{Width: t.Width, Index: part.First + int64(j)}
						held = append(held, tiers.Run{Width: t.Width, First: b.Index, N: 1})
						found[i] = append(found[i], Slot{Bucket: b, TTL: c.ttls[i], Count: 1})
					}
				}
			}
		}
	}
	for _, slots := range found {
		for len(slots) > 0 {
			part := slots[:min(chunk, len(slots))]
			slots = slots[len(part):]
			if _, err := c.takeBack(ctx, stored, stamp, deadline, MaxCount, part, nil); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
