package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Ask is a key of a [Counter.TakeAll], with hits and limits.
type Ask struct {
	Key    Key
	N      int64 // hits of the key: 0 to MaxCount; of 0 the limits are judged, and nothing is counted
	Limits Limits

	// On is the Counter by whose ladder the key is counted: a result of
	// [Counter.With] of the called Counter. Default: the called Counter.
	On *Counter

	// Soft asks for a judgement that denies nobody. The hits of a soft key are
	// counted where the hits of all other keys are admitted and the soft key has
	// room. A State of the Verdict tells whether the soft key has room. So a soft key
	// reports the share of denials that its limits would have if enforced. A soft key
	// is counted apart from the same key that is enforced. On a store without an
	// atomic step for all keys, soft keys are taken after the other keys, at the cost
	// of another round trip. A soft key whose store fails then is missing in the
	// Verdict, and fails no call. A call of soft keys alone is always admitted; its
	// flat fields describe no limit.
	Soft bool

	// Held are hits that the store does not count, judged as if the store counted
	// them: Held[i] hits, zero or more, in the window of Limits[i]. All numbers
	// of the Verdict are of Limits, and Remaining is the rest after Held. If Held
	// alone leaves no room, the call is denied without asking the store, with a
	// RetryAfter of [Never], since only the caller knows when Held ends. Default:
	// nil, no such hits.
	Held []int64
}

func (a *Ask) check() error {
	if err := a.Key.check(); err != nil {
		return err
	}
	if err := a.Limits.check(); err != nil {
		return fmt.Errorf("%w, event %q", err, a.Key.Event)
	}
	return a.checkHits()
}

// checkHits checks the parts of a that are joined when a key is given twice.
func (a *Ask) checkHits() error {
	if a.N < 0 || a.N > MaxCount {
		return fmt.Errorf("counter: n is %d, want 1 to %d, event %q", a.N, int64(MaxCount), a.Key.Event)
	}
	if a.Held == nil {
		return nil
	}
	if len(a.Held) != len(a.Limits) {
		return fmt.Errorf("counter: Ask.Held has %d numbers, want one for each of %d limits, or nil, event %q", len(a.Held), len(a.Limits), a.Key.Event)
	}
	for i, held := range a.Held {
		if held < 0 || held > MaxCount {
			return fmt.Errorf("counter: Ask.Held[%d] is %d, want 0 to %d, event %q", i, held, int64(MaxCount), a.Key.Event)
		}
	}
	return nil
}

// heldIn returns the hits held in the window of a limit.
func (a *Ask) heldIn(limit Limit) (held int64) {
	for i := range a.Held {
		if a.Limits[i] == limit {
			held = max(held, a.Held[i])
		}
	}
	return held
}

// Take counts n hits of key if all limits have room, and otherwise none. n is
// one or more.
//
// In no window of length Per are more than Max hits of a limit admitted, under
// any number of callers, while their clocks agree within Config.Skew and the
// store keeps its buckets. See docs/guarantees.md.
//
// A denial is not an error. An error is an [ErrStore], the error of ctx, or a
// mistake of the caller; the Verdict is then the zero Verdict, a denial. Hits of
// a failed call are taken back, even if the store answers late. Hits without any
// answer of the store stay until they age out.
func (c *Counter) Take(ctx context.Context, key Key, n int64, limits Limits) (v Verdict, err error) {
	err = c.take(ctx, &v, key, n, limits)
	return v, err
}

// Peek returns the answer that Take would give now, and counts nothing. An n of 0
// asks whether a limit is over now: Allowed if in no window there are more hits
// than Max. The Verdict of a Peek cannot be refunded.
func (c *Counter) Peek(ctx context.Context, key Key, n int64, limits Limits) (v Verdict, err error) {
	err = c.one(ctx, &v, Ask{Key: key, N: n, Limits: limits}, peeking, time.Time{})
	return v, err
}

// TakeAll is Take for several keys: N hits of each key if all limits of all keys
// that are not soft have room, otherwise none. A key given twice is taken once,
// with the hits and under the limits of both. A call has at most [MaxKeys] keys. If
// N of all keys is 0, TakeAll is PeekAll.
//
// On a store that cannot check all keys in one atomic step, the keys are taken
// one after the other, in the same order by all callers, and given back if a
// later key is denied. Until then the taken keys can cause denials of other
// calls. A process that dies in between leaves hits in the keys already taken.
func (c *Counter) TakeAll(ctx context.Context, asks ...Ask) (v Verdict, err error) {
	err = c.all(ctx, &v, asks, taking)
	return v, err
}

// PeekAll returns the answer that TakeAll would give now, and counts nothing.
// The Verdict of a PeekAll cannot be refunded.
func (c *Counter) PeekAll(ctx context.Context, asks ...Ask) (v Verdict, err error) {
	err = c.all(ctx, &v, asks, peeking)
	return v, err
}

// MaxKeys is the largest number of keys of a [Counter.TakeAll] or
// [Counter.PeekAll].
const MaxKeys = 100

// all answers a call for several keys, or for one. After an error v is unchanged.
func (c *Counter) all(ctx context.Context, v *Verdict, asks []Ask, m mode) error {
	switch {
	case len(asks) == 0:
		return errors.New("counter: no keys, want at least one")
	case len(asks) == 1:
		return c.alone(ctx, v, &asks[0], m)
	case len(asks) > MaxKeys:
		return fmt.Errorf("counter: event %q: %d keys, want at most %d", asks[0].Key.Event, len(asks), MaxKeys)
	}
	if m == taking && !slices.ContainsFunc(asks, func(a Ask) bool { return a.N != 0 }) {
		m = peeking
	}
	for i := range asks {
		if err := asks[i].checkHits(); err != nil { // before merge joins them
			return err
		}
	}
	k := c.calls.Get().(*call)
	k.distinct = merge(k.distinct[:0], asks)
	err := k.answer(ctx, v, k.distinct, m, time.Time{})
	c.calls.Put(k)
	return err
}

// alone is all for a single key.
func (c *Counter) alone(ctx context.Context, v *Verdict, ask *Ask, m mode) error {
	on := ask.On
	if on == nil || on.base != c.base {
		on = c
	}
	if m == taking && ask.N == 0 {
		m = peeking
	}
	if m == taking && on.quotas != nil && ask.Held == nil && !ask.Soft && (ask.On == nil || on == ask.On) {
		return on.take(ctx, v, ask.Key, ask.N, ask.Limits)
	}
	own := *ask
	if on == own.On {
		own.On = nil
	}
	return on.one(ctx, v, own, m, time.Time{})
}

// merge appends asks to merged, which is empty: each key once, with all hits and
// limits given for the key.
func merge(merged, asks []Ask) []Ask {
next:
	for _, ask := range asks {
		for i := range merged {
			if m := &merged[i]; m.Key == ask.Key && m.On == ask.On && m.Soft == ask.Soft {
				*m = m.with(ask)
				continue next
			}
		}
		merged = append(merged, ask)
	}
	return merged
}

// with returns a with the hits and the limits of b, for the same key.
func (a Ask) with(b Ask) Ask {
	if a.Held != nil || b.Held != nil {
		held := make([]int64, len(a.Limits)+len(b.Limits))
		copy(held, a.Held)
		copy(held[len(a.Limits):], b.Held)
		a.Held = held
	}
	a.N += b.N // each up to MaxCount; check refuses a sum beyond
	a.Limits = append(a.Limits[:len(a.Limits):len(a.Limits)], b.Limits...)
	return a
}

// one answers a call for a single key, as call.answer. After an error v is
// unchanged.
func (c *Counter) one(ctx context.Context, v *Verdict, ask Ask, m mode, now time.Time) error {
	k := c.calls.Get().(*call)
	k.ask[0] = ask
	err := k.answer(ctx, v, k.ask[:], m, now)
	c.calls.Put(k)
	return err
}
