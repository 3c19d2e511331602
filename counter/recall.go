package counter

import (
	"github.com/abacus-go/abacus/backend"
)

// recall answers a call by what the memory of denials finds: see package inside.
func (c *Counter) recall(asks []Ask, find func(d *denials, keys []backend.TakeKey, now int64) bool) (v Verdict, denied bool) {
	if c.denied == nil || !c.denied.used.Load() || len(asks) == 0 || len(asks) > MaxKeys {
		return Verdict{}, false
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	distinct := k.ask[:]
	if len(asks) == 1 {
		k.ask[0] = asks[0]
	} else {
		k.distinct = merge(k.distinct[:0], asks)
		distinct = k.distinct
	}
	never, err := k.resolve(distinct, taking)
	if never || err != nil || c.protocol.Relabel(&k.Call) != nil || !find(c.denied, k.Keys, k.Label()) {
		return Verdict{}, false // a Take tells errors
	}
	v.fill(k)
	return v, true
}
