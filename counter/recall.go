package counter

import (
	"github.com/abacus-go/abacus/backend"
)

// Recall returns the denial of a TakeAll of the same arguments, if the memory
// of this process has it: an equal call was denied less than a second ago. The
// store is not asked, and nobody waits. A call for other keys, another n or
// other limits is not equal. Without such a denial, and for a store in this
// process, denied is false.
func (c *Counter) Recall(asks ...Ask) (v Verdict, denied bool) {
	return c.recall(asks, (*denials).recall)
}

// LastDenial is Recall for a time in which the store does not answer: a denial
// of a key is believed until its RetryAfter, for as many hits or more under the
// same limits or lower, whichever other keys were asked with the key. Hits that
// other processes have given back since are not known. The Verdict has the
// counts of the denied keys alone. The memory is bounded: a denial among more
// than 65,536 keys may be lost.
func (c *Counter) LastDenial(asks ...Ask) (v Verdict, denied bool) {
	return c.recall(asks, (*denials).lastDenial)
}

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
