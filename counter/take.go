package counter

import (
	"context"
	"errors"
	"fmt"
)

// Ask is one key of a [Counter.TakeAll] and its limits.
type Ask struct {
	Key    Key
	Limits Limits
}

// Take counts n hits of key, if every limit has room for them, and otherwise
// counts nothing: all limits or none. n is one or more.
//
// Never are more than Max of a limit admitted within any window of its length,
// however many callers there are, while their clocks agree within Config.Skew
// and the store keeps its buckets. See docs/guarantees.md.
//
// A denial is not an error. An error is an [ErrStore], the error of ctx, or the
// caller's mistake; the Verdict is then the zero one, which denies. Hits of a
// call that failed are taken back, also if the store answers late; those of
// which the store never said whether it added them stay until they age out.
func (c *Counter) Take(ctx context.Context, key Key, n int64, limits Limits) (Verdict, error) {
	return c.one(ctx, key, n, limits, false)
}

// Peek is what Take would answer now. It counts nothing. Its Verdict cannot be
// refunded.
func (c *Counter) Peek(ctx context.Context, key Key, n int64, limits Limits) (Verdict, error) {
	return c.one(ctx, key, n, limits, true)
}

// TakeAll is Take for several keys: n hits of each of them if all limits of all
// of them have room, otherwise none. A key that is given twice is taken once,
// under the limits of both.
//
// Where the store cannot check all keys in one atomic step, they are taken one
// after the other, in an order that is the same for all callers, and given
// back if a later one is denied. Until then they can make others be denied. A
// process that dies in between leaves n hits in the keys already taken. A call
// has at most [MaxKeys] keys.
func (c *Counter) TakeAll(ctx context.Context, n int64, asks ...Ask) (Verdict, error) {
	return c.all(ctx, n, asks, false)
}

// PeekAll is what TakeAll would answer now. It counts nothing. Its Verdict
// cannot be refunded.
func (c *Counter) PeekAll(ctx context.Context, n int64, asks ...Ask) (Verdict, error) {
	return c.all(ctx, n, asks, true)
}

// MaxKeys is the most keys that a [Counter.TakeAll] or [Counter.PeekAll] may have.
const MaxKeys = 100

func (c *Counter) all(ctx context.Context, n int64, asks []Ask, peek bool) (v Verdict, err error) {
	if len(asks) == 0 {
		return Verdict{}, errors.New("counter: no keys, want at least one")
	}
	if len(asks) > MaxKeys {
		return Verdict{}, fmt.Errorf("counter: %d keys, want at most %d", len(asks), MaxKeys)
	}
	if len(asks) == 1 {
		return c.one(ctx, asks[0].Key, n, asks[0].Limits, peek)
	}
	v.rest = &rest{}
	v.rest.asks = merge(v.rest.askBuf[:0], asks)
	k := c.calls.Get().(*call)
	err = k.answer(ctx, &v, v.rest.asks, n, peek)
	c.calls.Put(k)
	if err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// merge appends asks to merged, which is empty: each key once, with the limits
// of all its mentions.
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

func (c *Counter) one(ctx context.Context, key Key, n int64, limits Limits, peek bool) (v Verdict, err error) {
	v.limits = limits
	k := c.calls.Get().(*call)
	k.ask[0].Key, k.ask[0].Limits = key, limits
	err = k.answer(ctx, &v, k.ask[:], n, peek)
	c.calls.Put(k)
	if err != nil {
		return Verdict{}, err
	}
	return v, nil
}
