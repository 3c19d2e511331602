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

// call is a Take or a Peek, from its beginning to its answer. req is the
// request of a store with an atomic step: the label, the end of the patience,
// and each key with its hits, ladder and windows. Stores without an atomic step
// are asked for the keys one by one, by tickets that are made from req.
//
// Calls are pooled, and keep their buffers.
type call struct {
	c           *Counter
	asks        []Ask               // each key once
	req         backend.TakeRequest // req.Keys[i] is asks[i]
	label       int64               // req.Now in nanoseconds since the Unix epoch
	retryWithin time.Duration       // denied by hits that may soon be taken back: the bound of RetryAfter; zero: none

	ask      [1]Ask // the array behind asks, in a call for a single key
	distinct []Ask  // the array behind asks, in a call for several keys
	receipts *receipts
	used     int // receipts of the block that are given out
}

// receipt gives out the receipt of an admitted Verdict.
func (k *call) receipt() (block *receipts, bit uint16) {
	if k.used == receiptsPerBlock {
		k.receipts, k.used = &receipts{owner: k.c}, 0
	}
	k.used++
	return k.receipts, uint16(k.used - 1)
}

// answer answers a call for n hits of each of asks, whose keys are distinct.
// now is the label, if the clock was read already, or the zero time. The
// Verdict is passed by pointer for speed: a Verdict is large.
func (k *call) answer(ctx context.Context, v *Verdict, asks []Ask, n int64, peek bool, now time.Time) error {
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
	k.req.Peek, k.req.AnyLabel, k.req.Exact, k.req.Deadline, k.retryWithin = peek, false, k.c.exact, k.c.deadline(), 0
	if k.req.Now, k.label = now, now.UnixNano(); now.IsZero() {
		if err := k.relabel(); err != nil {
			return err
		}
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
		v.n, v.at = n, k.label
		v.block, v.bit = k.receipt()
	}
	if k.retryWithin > 0 {
		v.retryWithin(k.retryWithin)
	}
	return nil
}

// resolve checks keys and limits, and writes them into the request: keys in
// their stored form, limits as windows of the ladder. If n is above the Max of
// a limit, the call can never be admitted.
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
		if err := ask.checkHeld(); err != nil {
			return false, fmt.Errorf("%w, event %q", err, ask.Key.Event)
		}
		key.Key, key.N, key.Ladder, key.TTLs = c.keys.append(key.Key[:0], ask.Key), n, c.plan.ladder, c.ttls
		key.Windows = slices.Grow(key.Windows[:0], len(ask.Limits))[:len(ask.Limits)]
		for j := range ask.Limits {
			limit := &ask.Limits[j]
			if err := c.plan.window(&key.Windows[j], limit); err != nil {
				return false, fmt.Errorf("counter: event %q, limit %s: %w", ask.Key.Event, limit, err)
			}
			if ask.Held != nil {
				key.Windows[j].Max -= ask.Held[j]
			}
			never = never || n > key.Windows[j].Max
		}
	}
	return never, nil
}

// relabel reads the clock for the label of the call.
func (k *call) relabel() error {
	k.req.Now = k.c.now()
	if err := cover.CheckTime(k.req.Now); err != nil {
		return fmt.Errorf("counter: Config.Now: %w", err)
	}
	k.label = k.req.Now.UnixNano()
	return nil
}

// decide asks the store, by an atomic step if the store has one for all the
// keys.
func (k *call) decide(ctx context.Context) (bool, error) {
	c := k.c
	if c.atomic == nil || len(k.req.Keys) > 1 && !c.atomic.Together(k.req.Keys) {
		return k.decideByRounds(ctx)
	}
	if err := k.step(ctx, &k.req); err != nil {
		return false, k.failed(ctx, err)
	}
	k.lookAhead(k.req.Keys)
	if c.denied != nil && !k.req.Peek {
		c.denied.recordRead(c, k.req.Keys, k.label, k.req.Allowed)
	}
	return k.req.Allowed, nil
}

// maxLabels bounds the labels of a call. With the last label the call is judged
// by the buckets that the store still has: a clock that was set back may never
// read late enough.
const maxLabels = 4

// step makes one atomic step, with a new label each time that the store has
// dropped buckets of the label's window. A count that would grow beyond
// MaxCount makes a denial. r is the request of the call, or a part of the
// request.
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
		// The windows have room, but the buckets that the store keeps beyond
		// the windows leave none below MaxCount.
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

// failed names the culprit of err, an error of the store: the store or ctx.
func (k *call) failed(ctx context.Context, err error) error {
	return callError(ctx, k.asks[0].Key.Event, err)
}
