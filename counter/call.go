package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
)

// call is a Take or a Peek, from its beginning to its answer. The request of a
// store with an atomic step is its middle: the label, the end of the patience,
// and each key with its hits, its ladder and its windows. Stores without that
// step are asked for one key after the other, by tickets made from the request.
//
// Calls are kept for those that follow, with their buffers.
type call struct {
	c           *Counter
	asks        []Ask               // each key once
	req         backend.TakeRequest // req.Keys[i] is asks[i]
	label       int64               // req.Now in nanoseconds since the Unix epoch
	retryWithin time.Duration       // of a denial by hits that may be gone in a moment: come back after so long at most

	ask      [1]Ask // asks of a call for one key
	receipts *receipts
	used     int // tokens handed out of the block
}

// token hands out a mark for an admitted Verdict.
func (k *call) receipt() receipt {
	if k.used == receiptsPerBlock {
		k.receipts, k.used = &receipts{owner: k.c}, 0
	}
	k.used++
	return receipt{k.receipts, k.used - 1}
}

// answer answers a call for n hits of each of asks, which hold each key once. The
// Verdict is handed down for speed: a Verdict is large.
func (k *call) answer(ctx context.Context, v *Verdict, asks []Ask, n int64, peek bool) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("counter: event %q: %w", asks[0].Key.Event, err)
	}
	if n < 1 || n > MaxCount {
		return fmt.Errorf("counter: n is %d, want 1 to %d", n, int64(MaxCount))
	}
	never, err := k.resolve(asks, n)
	if err != nil {
		return err
	}
	k.req.Peek, k.req.AnyLabel, k.req.Deadline, k.retryWithin = peek, false, k.c.deadline(), 0
	if err := k.relabel(); err != nil {
		return err
	}
	allowed := false
	if !never {
		if k.c.queues == nil {
			allowed, err = k.decide(ctx)
		} else {
			allowed, err = k.decideQueued(ctx)
		}
		if err != nil {
			return err
		}
	}
	v.Allowed = allowed
	v.fill(k)
	if allowed && !peek {
		v.n, v.at, v.receipt = n, k.label, k.receipt()
	}
	if k.retryWithin > 0 {
		v.retryWithin(k.retryWithin)
	}
	return nil
}

// resolve checks keys and limits, and writes them into the request: keys in
// their stored form, and limits as windows of the ladder. A call is never to be
// admitted if n is above a limit's Max.
func (k *call) resolve(asks []Ask, n int64) (never bool, err error) {
	c := k.c
	if n := cap(k.req.Keys); n < len(asks) {
		k.req.Keys = append(k.req.Keys[:n], make([]backend.TakeKey, len(asks)-n)...) // buffers of earlier calls stay
	}
	k.asks, k.req.Keys = asks, k.req.Keys[:len(asks)]
	for i := range asks {
		ask, key := &asks[i], &k.req.Keys[i]
		if err := ask.Key.check(); err != nil {
			return false, err
		}
		if err := ask.Limits.check(); err != nil {
			return false, fmt.Errorf("%w, event %q", err, ask.Key.Event)
		}
		key.Key, key.N, key.Ladder, key.TTLs = c.keys.append(key.Key[:0], ask.Key), n, c.plan.ladder, c.ttls
		key.Windows = slices.Grow(key.Windows[:0], len(ask.Limits))[:len(ask.Limits)]
		for j, limit := range ask.Limits {
			w, err := c.plan.window(limit)
			if err != nil {
				return false, fmt.Errorf("counter: event %q, limit %s: %w", ask.Key.Event, limit, err)
			}
			key.Windows[j] = w
			never = never || n > limit.Max
		}
	}
	return never, nil
}

// read labels the call anew.
func (k *call) relabel() error {
	k.req.Now = k.c.now()
	if err := cover.CheckTime(k.req.Now); err != nil {
		return fmt.Errorf("counter: the clock: %w", err)
	}
	k.label = k.req.Now.UnixNano()
	return nil
}

// decide asks the store.
func (k *call) decide(ctx context.Context) (bool, error) {
	c := k.c
	if c.atomic == nil || len(k.req.Keys) > 1 && !c.atomic.Together(k.req.Keys) {
		return k.decideByRounds(ctx)
	}
	if err := k.step(ctx, &k.req); err != nil {
		return false, k.failed(ctx, err)
	}
	if c.denied != nil && !k.req.Peek {
		c.denied.recordRead(c, k.req.Keys, k.label, k.req.Allowed)
	}
	return k.req.Allowed, nil
}

// maxLabels is how often a call is labelled, at most, before it is judged by
// what the store still has: a clock that was set back never becomes new enough.
const maxLabels = 4

// step makes one atomic step, with a new label as often as the store has
// dropped what the label's window holds, and makes a denial of a count that
// would grow too large. r is the request of the call, or a part of it.
func (k *call) step(ctx context.Context, r *backend.TakeRequest) error {
	c := k.c
	r.AnyLabel, r.Allowed = false, false
	err := c.atomic.Take(ctx, r)
	for labels := 1; err != nil && errors.Is(err, backend.ErrStaleLabel) && !r.AnyLabel; labels++ {
		c.stats.staleLabels.Add(1)
		before := k.req.Now
		if err := k.relabel(); err != nil {
			return err
		}
		r.Now, r.AnyLabel = k.req.Now, labels == maxLabels || !k.req.Now.After(before)
		err = c.atomic.Take(ctx, r)
	}
	if err == nil || !errors.Is(err, backend.ErrMaxCount) {
		return err
	}
	peek := *r
	peek.Peek = true
	if err := c.atomic.Take(ctx, &peek); err != nil {
		return err
	}
	if peek.Allowed {
		// Its windows have room, and what the store keeps beyond them has not.
		for i := range r.Keys {
			for j := range r.Keys[i].Windows {
				w := &r.Keys[i].Windows[j]
				w.Count, w.FreedBy = w.Max, c.plan.bucketAt(k.label, w.Finest)
			}
		}
	}
	r.Allowed = false
	return nil
}

// failed says whose fault err is, which the store returned.
func (k *call) failed(ctx context.Context, err error) error {
	return callError(ctx, k.asks[0].Key.Event, err)
}
