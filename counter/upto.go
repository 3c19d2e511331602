package counter

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// askUpTo makes a call with [Ask.UpTo] a call for one hit, as often as there is room.
func (k *call) askUpTo(m mode) error {
	if k.asks[0].together > 0 {
		k.Times = k.asks[0].together
		return nil
	}
	first := slices.IndexFunc(k.asks, func(a Ask) bool { return a.UpTo && a.N > 0 })
	if first < 0 || m == charging || k.asks[first].N > MaxCount {
		return nil // check refuses n
	}
	n := k.asks[first].N
	for i := range k.asks {
		if a := &k.asks[i]; a.N != 0 && (a.N != n || !a.UpTo) {
			return fmt.Errorf("counter: event %q: a key of %d hits, with Ask.UpTo %v, next to a key of up to %d, want the same N and UpTo for all keys with hits", a.Key.Event, a.N, a.UpTo, n)
		}
	}
	for i := range k.asks {
		k.asks[i].N = min(k.asks[i].N, 1)
	}
	k.Times, k.upTo = n, n
	return nil
}

// tookUpTo completes the answer to an admitted call with UpTo: N become the hits of the
// call.
func (k *call) tookUpTo() {
	if k.Peek {
		k.Took(k.Fitting())
	}
	for i := range k.asks {
		k.asks[i].N *= max(1, k.Taken)
	}
}

// judgeRest finds out when one more hit has room, after a call that has counted fewer hits
// than it asked for.
func (k *call) judgeRest(ctx context.Context, v *Verdict) {
	limited := func(a *Ask) bool { return !a.Soft && !a.Charge && a.N > 0 }
	var asks []Ask
	for _, a := range k.asks {
		if limited(&a) {
			a.N, a.UpTo = 1, false
			asks = append(asks, a)
		}
	}
	now, err := k.c.PeekAll(ctx, asks...)
	switch {
	case err != nil:
		v.RetryAfter = k.c.plan.Young() + time.Millisecond
		return
	case !now.Allowed: // else hits were given back
		v.Key, v.Limit, v.RetryAfter, v.ResetAfter = now.Key, now.Limit, now.RetryAfter, now.ResetAfter
	}
	of, states := 0, now.All()
	for i := range k.asks {
		for range k.asks[i].Limits {
			if v.details != nil && limited(&k.asks[i]) {
				v.details.states[of].retryAfter, states = states[0].RetryAfter, states[1:]
			}
			of++
		}
	}
}
