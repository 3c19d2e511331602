package counter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// call is a Take or a Peek, from the beginning to the answer. req is the request
// of a store with an atomic step: the label, the end of the patience, and each
// key with hits, ladder and windows. A store without an atomic step is asked for
// one key after the other, by tickets made from req.
//
// Calls are pooled, and keep their buffers.
type call struct {
	c           *Counter
	asks        []Ask               // each key once
	keys        []callKey           // of the asks, in their order, and then of their former ladders
	req         backend.TakeRequest // req.Keys[i] is keys[i]
	label       int64               // req.Now in nanoseconds since the Unix epoch
	settle      time.Duration       // of the keys the shortest; zero: no bound
	mode        mode
	late        bool          // a charge was confirmed later than Settle
	retryWithin time.Duration // denied by hits that may soon be taken back: the bound of RetryAfter; zero: none

	ask      [1]Ask // the array behind asks, in a call for a single key
	distinct []Ask  // the array behind asks, in a call for several keys
	receipts *receipts
	used     int // receipts of the block that are given out
}

// mode is the purpose of a call.
type mode uint8

const (
	taking   mode = iota
	peeking       // count nothing
	charging      // count in any case
)

// callKey is a stored key of a call.
type callKey struct {
	on      *Counter // by whose ladder the key is counted
	limits  Limits   // that are judged: limits[i] is Windows[i] of the request's key
	ask     int      // index in call.asks
	unknown bool     // a soft key that was not judged
}

// receipt gives out the receipt of an admitted Verdict.
func (k *call) receipt() (block *receipts, bit uint16) {
	if k.used == receiptsPerBlock {
		k.receipts, k.used = &receipts{owner: k.c}, 0
	}
	k.used++
	return k.receipts, uint16(k.used - 1)
}

// answer answers a call for asks, whose keys are distinct. now is the label, if
// the clock was read already, or the zero time. The Verdict is passed by pointer
// for speed: a Verdict is large.
func (k *call) answer(ctx context.Context, v *Verdict, asks []Ask, m mode, now time.Time) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("counter: event %q: %w", asks[0].Key.Event, err)
	}
	never, err := k.resolve(asks, m)
	if err != nil {
		return err
	}
	k.req.Peek, k.req.AnyLabel, k.req.Exact, k.req.Deadline = m == peeking, false, k.c.exact || m == charging, k.c.deadline()
	k.retryWithin, k.late = 0, false
	if k.req.Now, k.label = now, now.UnixNano(); now.IsZero() {
		if err := k.relabel(); err != nil {
			return err
		}
	}
	allowed := false
	if !never {
		if k.c.queues == nil || m == charging {
			allowed, err = k.decide(ctx)
		} else {
			allowed, err = k.decideQueued(ctx)
		}
		if err != nil {
			return err
		}
	}
	if m == charging {
		return k.charged(ctx, v, allowed)
	}
	v.Allowed = allowed
	v.fill(k)
	if allowed && m == taking {
		v.count(k)
	}
	if k.retryWithin > 0 {
		v.retryWithin(k.retryWithin)
	}
	return nil
}

// resolve checks keys and limits, and writes them into the request: keys in
// their stored form, limits as windows of the ladder. If N of an ask is above the
// Max of a limit, the call can never be admitted.
func (k *call) resolve(asks []Ask, m mode) (never bool, err error) {
	k.asks, k.keys, k.req.Keys, k.settle, k.mode = asks, k.keys[:0], k.req.Keys[:0], 0, m
	enforced, hits := false, m == peeking
	for i := range asks {
		ask := &asks[i]
		if err := ask.check(); err != nil {
			return false, err
		}
		on := ask.On
		if on == nil {
			on = k.c
		} else if on.base != k.c.base {
			return false, fmt.Errorf("counter: event %q: Ask.On is a Counter of another New, want one that With has made of this Counter", ask.Key.Event)
		}
		out, err := k.add(i, on, ask.Limits)
		if err != nil {
			return false, err
		}
		enforced = enforced || !ask.Soft
		hits = hits || ask.N > 0
		never = never || out && !ask.Soft
	}
	switch {
	case !enforced && m == charging:
		return false, fmt.Errorf("counter: event %q: each Ask of a Charge is Soft, want at least one that is not", asks[0].Key.Event)
	case !hits:
		return false, fmt.Errorf("counter: n is 0, want 1 to %d, or a Peek, event %q", int64(MaxCount), asks[0].Key.Event)
	}
	for i := range asks {
		former := k.keys[i].on.former
		if former == nil || asks[i].Soft {
			continue
		}
		out, err := k.add(i, former, former.judged(asks[i].Limits))
		if err != nil {
			return false, err
		}
		never = never || out
	}
	return never, k.checkStored()
}

// checkStored finds a stored key that is in the request twice, by two Counters of
// one ladder.
func (k *call) checkStored() error {
	mixed := len(k.keys) > len(k.asks)
	for i := range k.asks {
		mixed = mixed || k.asks[i].On != nil
	}
	for i := 1; mixed && i < len(k.keys); i++ {
		for j := range i {
			if a, b := &k.req.Keys[i], &k.req.Keys[j]; bytes.Equal(a.Key, b.Key) {
				return fmt.Errorf("counter: event %q: a key is asked for by two Counters that both count it by the ladder %q, want one of them", k.asks[k.keys[i].ask].Key.Event, a.Ladder)
			}
		}
	}
	return nil
}

// add adds a key of ask i to the request. never: N is above the Max of a limit.
func (k *call) add(i int, on *Counter, limits Limits) (never bool, err error) {
	ask := &k.asks[i]
	if n := len(k.req.Keys); n < cap(k.req.Keys) {
		k.req.Keys = k.req.Keys[:n+1] // buffers of earlier calls stay
	} else {
		k.req.Keys = append(k.req.Keys, backend.TakeKey{})
	}
	k.keys = append(k.keys, callKey{on: on, limits: limits, ask: i, unknown: ask.Soft})
	if on.settle > 0 && (k.settle == 0 || on.settle < k.settle) {
		k.settle = on.settle
	}
	key, maker := &k.req.Keys[len(k.req.Keys)-1], &on.keys
	if ask.Soft {
		maker = &on.softKeys
	}
	key.Key, key.N, key.Soft, key.Fits = maker.append(key.Key[:0], ask.Key), ask.N, ask.Soft, false
	key.Ladder, key.TTLs = on.plan.ladder, on.ttls
	key.Windows = slices.Grow(key.Windows[:0], len(limits))[:len(limits)]
	for j := range limits {
		w := &key.Windows[j]
		if err := on.plan.window(w, &limits[j]); err != nil {
			return false, fmt.Errorf("counter: event %q, limit %s: %w", ask.Key.Event, limits[j], err)
		}
		if ask.Held != nil {
			if w.Max -= ask.heldIn(limits[j]); ask.Soft {
				w.Max = max(0, w.Max)
			}
		}
		if k.mode == charging && !ask.Soft {
			w.Max = MaxCount
		}
		never = never || ask.N > w.Max
	}
	return never, nil
}

// enforced returns the indices of the keys that are not soft.
func (k *call) enforced() []int { return k.those(false) }

// soft returns the indices of the soft keys.
func (k *call) soft() []int { return k.those(true) }

func (k *call) those(soft bool) (those []int) {
	for i := range k.req.Keys {
		if k.req.Keys[i].Soft == soft {
			those = append(those, i)
		}
	}
	return those
}

// relabel reads the clock for the label of the call.
func (k *call) relabel() error {
	if k.c.patience > 0 { // not in this process
		k.req.Labelled = time.Now()
	}
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
		if k.mode == charging {
			return k.chargeByTicket(ctx)
		}
		return k.decideByRounds(ctx)
	}
	if err := k.step(ctx, &k.req); err != nil {
		return false, k.failed(ctx, err)
	}
	for i := range k.keys {
		k.keys[i].unknown = false
	}
	k.lookAhead(k.req.Keys)
	if c.denied != nil && !k.req.Peek {
		c.denied.recordRead(k, k.req.Allowed)
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
		r.Now, r.Labelled, r.AnyLabel = k.req.Now, k.req.Labelled, labels == maxLabels || !k.req.Now.After(before)
		err = c.atomic.Take(ctx, r)
	}
	if err == nil || !errors.Is(err, backend.ErrMaxCount) || k.mode == charging {
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
				width := r.Keys[i].Ladder.At(w.Finest).Width
				w.Count, w.FreedBy = w.Max, tiers.Bucket{Width: width, Index: tiers.Index(k.label, width)}
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
