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
		err = c.one(ctx, &v, key, n, limits, false, time.Time{})
	}
	return v, err
}

// Peek returns the answer that Take would give now, and counts nothing. The
// Verdict of a Peek cannot be refunded.
func (c *Counter) Peek(ctx context.Context, key Key, n int64, limits Limits) (v Verdict, err error) {
	err = c.one(ctx, &v, key, n, limits, true, time.Time{})
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
	if len(asks) == 1 && peek {
		return c.Peek(ctx, asks[0].Key, n, asks[0].Limits)
	}
	if len(asks) == 1 {
		return c.Take(ctx, asks[0].Key, n, asks[0].Limits)
	}
	v.details = &details{}
	v.details.asks = merge(v.details.askBuf[:0], asks)
	k := c.calls.Get().(*call)
	err = k.answer(ctx, &v, v.details.asks, n, peek, time.Time{})
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
				limits := merged[i].Limits
				merged[i].Limits = append(limits[:len(limits):len(limits)], ask.Limits...)
				continue next
			}
		}
		merged = append(merged, ask)
	}
	return merged
}

// one answers a call for a single key, as call.answer. After an error v is
// unchanged.
func (c *Counter) one(ctx context.Context, v *Verdict, key Key, n int64, limits Limits, peek bool, now time.Time) error {
	k := c.calls.Get().(*call)
	k.ask[0].Key, k.ask[0].Limits = key, limits
	err := k.answer(ctx, v, k.ask[:], n, peek, now)
	c.calls.Put(k)
	return err
}
