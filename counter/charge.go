package counter

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
)

// Charge counts n hits of key in any case, and reports whether a limit is over with
// these hits: for costs that are known only afterwards. n is 1 or more.
//
// The hits of a denying Verdict are counted too; the RetryAfter is then the time
// until no limit is over, without other hits. A Refund gives the hits of either
// Verdict back. So Charge can count more than Max in a window, and a Take is
// denied until the key has room again.
//
// A count that would exceed 2^53-1 is an error, no [ErrStore], and nothing is counted.
// Other errors are the errors of Take, and the hits of a failed call are taken back,
// with one exception: on a store without an atomic step (memcached) hits
// confirmed later than Config.Settle stay counted. Such a call is reported as
// over or by an [ErrStore], since nobody knows whether a limit was over. Each later
// Take of the process counts them; a Take in another process may miss them for up to
// a minute, as the hits of an [Counter.AddAt].
func (c *Counter) Charge(ctx context.Context, key Key, n int64, limits Limits) (Verdict, error) {
	return c.ChargeAll(ctx, Ask{Key: key, N: n, Limits: limits})
}

// ChargeAll is Charge for several keys: the hits of all keys are counted, or
// after an error none.
func (c *Counter) ChargeAll(ctx context.Context, asks ...Ask) (v Verdict, err error) {
	err = c.all(ctx, &v, asks, charging)
	return v, err
}

// chargeByTicket counts on a store without an atomic step for the keys.
func (k *call) chargeByTicket(ctx context.Context) error {
	for i := range k.Keys {
		defer k.c.denied.raised(string(k.Keys[i].Key), k.c.denied.mark())
	}
	return k.c.protocol.Charge(ctx, &k.Call)
}

// charged completes a charge. It was not counted if a count would have grown
// beyond MaxCount.
func (k *call) charged(ctx context.Context, v *Verdict) error {
	if !k.Allowed {
		return k.failed(ctx, backend.ErrMaxCount)
	}
	over := false
	for i := range k.keys {
		if key := &k.Keys[i]; !key.Soft {
			for j, limit := range k.keys[i].limits {
				w := &key.Windows[j]
				w.Max = limit.Max - k.asks[k.keys[i].ask].heldIn(limit)
				over = over || ticket.Excess(w, key.N) > 0
			}
		}
	}
	if k.Late && !over {
		return k.failed(ctx, fmt.Errorf("the hits are counted, and were confirmed later than Config.Settle of %s: whether a limit is over is not known", k.Settle()))
	}
	v.Allowed = true // also where a limit is over, for fill
	v.fill(k)
	v.count(k)
	if !over {
		return nil
	}
	v.Allowed, v.Remaining, v.RetryAfter = false, 0, k.c.plan.Young()+time.Millisecond
	asks := make([]Ask, len(k.asks))
	for i := range asks {
		asks[i] = k.asks[i]
		asks[i].N = 0
	}
	if now, err := k.c.PeekAll(ctx, asks...); err == nil && !now.Allowed {
		v.Key, v.Limit, v.RetryAfter, v.ResetAfter = now.Key, now.Limit, now.RetryAfter, now.ResetAfter
		if v.details != nil && now.details != nil && len(v.details.states) == len(now.details.states) {
			v.details.states = now.details.states
		}
	}
	return nil
}
