package counter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ask is a key of a [Counter.TakeAll] and its limits.
type Ask struct {
	Key    Key
	Limits Limits

	// Held are hits that the store does not count and that are judged as if it
	// did: Held[i] hits, zero or more, in the window of Limits[i]. All numbers of
	// the Verdict are of Limits, and Remaining is what Held leaves. A call that
	// Held alone leaves no room for is denied without asking the store, with a
	// RetryAfter of [Never], since only the caller knows when Held ends. Default:
	// nil, no such hits.
	Held []int64
}

func (a *Ask) checkHeld() error {
	if a.Held == nil {
		return nil
	}
	if len(a.Held) != len(a.Limits) {
		return fmt.Errorf("counter: Ask.Held has %d numbers, want one for each of %d limits, or nil", len(a.Held), len(a.Limits))
	}
	for i, held := range a.Held {
		if held < 0 || held > MaxCount {
			return fmt.Errorf("counter: Ask.Held[%d] is %d, want 0 to %d", i, held, int64(MaxCount))
		}
	}
	return nil
}

// Take counts n hits of key if all limits have room, and otherwise none. n is
// one or more.
//
// In no window of length Per are more than Max hits of a limit admitted, under
// any number of callers, while their clocks agree within Config.Skew and the
// store keeps its buckets. See docs/guarantees.md.
//
// A denial is not an error. An error is an [ErrStore], the error of ctx, or a
// mistake of the caller; the Verdict is then the zero Verdict, which denies.
// Hits of a failed call are taken back, even if the store answers late. Hits of
// which the store never confirmed or denied the addition stay until they age
// out.
func (c *Counter) Take(ctx context.Context, key Key, n int64, limits Limits) (v Verdict, err error) {
	if q := c.quota(key.Event, limits); q != nil {
		err = q.take(ctx, &v, key.Feature, n)
	} else {
		err = c.one(ctx, &v, Ask{Key: key, Limits: limits}, n, false, time.Time{})
	}
	return v, err
}

// Peek returns the answer that Take would give now, and counts nothing. The
// Verdict of a Peek cannot be refunded.
func (c *Counter) Peek(ctx context.Context, key Key, n int64, limits Limits) (v Verdict, err error) {
	err = c.one(ctx, &v, Ask{Key: key, Limits: limits}, n, true, time.Time{})
	return v, err
}

// TakeAll is Take for several keys: n hits of each key if all limits of all
// keys have room, otherwise none. A key given twice is taken once, under the
// limits of both. A call has at most [MaxKeys] keys.
//
// On a store that cannot check all keys in one atomic step, the keys are taken
// one after the other, in the same order by all callers, and given back if a
// later key is denied. Until then the taken keys can cause denials of other
// calls. A process that dies in between leaves n hits in the keys already
// taken.
func (c *Counter) TakeAll(ctx context.Context, n int64, asks ...Ask) (Verdict, error) {
	return c.all(ctx, n, asks, false)
}

// PeekAll returns the answer that TakeAll would give now, and counts nothing.
// The Verdict of a PeekAll cannot be refunded.
func (c *Counter) PeekAll(ctx context.Context, n int64, asks ...Ask) (Verdict, error) {
	return c.all(ctx, n, asks, true)
}

// MaxKeys is the largest number of keys of a [Counter.TakeAll] or
// [Counter.PeekAll].
const MaxKeys = 100

func (c *Counter) all(ctx context.Context, n int64, asks []Ask, peek bool) (v Verdict, err error) {
	if len(asks) == 0 {
		return Verdict{}, errors.New("counter: no keys, want at least one")
	}
	if len(asks) > MaxKeys {
		return Verdict{}, fmt.Errorf("counter: %d keys, want at most %d", len(asks), MaxKeys)
	}
	if len(asks) == 1 && asks[0].Held == nil && !peek {
		return c.Take(ctx, asks[0].Key, n, asks[0].Limits)
	}
	if len(asks) == 1 {
		err = c.one(ctx, &v, asks[0], n, peek, time.Time{})
		return v, err
	}
	for i := range asks {
		if err := asks[i].checkHeld(); err != nil { // before with joins them
			return Verdict{}, fmt.Errorf("%w, event %q", err, asks[i].Key.Event)
		}
	}
	k := c.calls.Get().(*call)
	k.distinct = merge(k.distinct[:0], asks)
	err = k.answer(ctx, &v, k.distinct, n, peek, time.Time{})
	c.calls.Put(k)
	if err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// merge appends asks to merged, which is empty: each key once, with all limits
// given for the key.
func merge(merged, asks []Ask) []Ask {
next:
	for _, ask := range asks {
		for i := range merged {
			if merged[i].Key == ask.Key {
				merged[i] = merged[i].with(ask)
				continue next
			}
		}
		merged = append(merged, ask)
	}
	return merged
}

// with returns a with the limits of b, for the same key.
func (a Ask) with(b Ask) Ask {
	if a.Held != nil || b.Held != nil {
		held := make([]int64, len(a.Limits)+len(b.Limits))
		copy(held, a.Held)
		copy(held[len(a.Limits):], b.Held)
		a.Held = held
	}
	a.Limits = append(a.Limits[:len(a.Limits):len(a.Limits)], b.Limits...)
	return a
}

// one answers a call for a single key, as call.answer. After an error v is
// unchanged.
func (c *Counter) one(ctx context.Context, v *Verdict, ask Ask, n int64, peek bool, now time.Time) error {
	k := c.calls.Get().(*call)
	k.ask[0] = ask
	err := k.answer(ctx, v, k.ask[:], n, peek, now)
	c.calls.Put(k)
	return err
}
