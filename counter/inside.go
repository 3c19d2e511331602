package counter

import (
	"context"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/inside"
	"github.com/abacus-go/abacus/internal/ticket"
)

// insider is a Counter as package limiter knows it, with the methods that users do
// not need.
type insider Counter

var _ inside.Counter[Key, Ask, Verdict] = (*insider)(nil)

func init() { inside.Of = func(c any) any { return (*insider)(c.(*Counter)) } }

func (c *insider) Recall(asks ...Ask) (v Verdict, denied bool) {
	return (*Counter)(c).recall(asks, (*denials).Recall)
}

func (c *insider) LastDenial(asks ...Ask) (v Verdict, denied bool) {
	return (*Counter)(c).recall(asks, (*denials).lastDenial)
}

func (c *insider) Redact(key Key) Key { return key.Redact(c.keys.secret) }

func (c *insider) LadderSet() bool { return c.chosen }

func (c *insider) Local() (local, keeps bool) {
	store, local := backend.As[backend.Local](c.store)
	return local, local && store.Keeps()
}

func (c *insider) ServerOf(key Key) string {
	p, ok := backend.As[backend.Placer](c.store)
	if !ok {
		return ""
	}
	return p.ServerOf(string(c.keys.append(nil, key)))
}

func (c *insider) Hits(v *Verdict) ([]Ask, error) {
	return (*Counter)(c).hitsOf(v)
}

func (c *insider) Redeem(v *Verdict) bool {
	first, _ := v.block.redeem(v.bit, refunded)
	return first
}

func (c *insider) Settle(ctx context.Context, v *Verdict, n, used int64) (done bool, err error) {
	return (*Counter)(c).settle(ctx, v, n, used)
}

func (c *insider) GiveBack(ctx context.Context, at int64, hits ...Ask) error {
	r, err := (*Counter)(c).begin(ctx, hits[0].Key)
	if err != nil {
		return err
	}
	return giveBackAll(ctx, hits, r, at)
}

// recall answers a call by what the memory of denials finds.
func (c *Counter) recall(asks []Ask, find func(*denials, *ticket.Call) bool) (v Verdict, denied bool) {
	if c.denied == nil || !c.denied.used.Load() || len(asks) == 0 || len(asks) > MaxKeys {
		return Verdict{}, false
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	never, err := k.resolve(asks, taking)
	if never || err != nil || c.protocol.Relabel(&k.Call) != nil || !find(c.denied, &k.Call) {
		return Verdict{}, false // a Take tells errors
	}
	if _, err := k.charged(); err != nil {
		return Verdict{}, false
	}
	v.fill(k)
	return v, true
}
