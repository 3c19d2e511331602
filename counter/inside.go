package counter

import (
	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/inside"
)

// insider is a Counter as package limiter knows it, with the methods that users do
// not need.
type insider Counter

var _ inside.Counter[Key, Ask, Verdict] = (*insider)(nil)

func init() { inside.Of = func(c any) any { return (*insider)(c.(*Counter)) } }

func (c *insider) Recall(asks ...Ask) (v Verdict, denied bool) {
	return (*Counter)(c).recall(asks, (*denials).recall)
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
