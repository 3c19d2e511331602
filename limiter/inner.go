package limiter

import (
	"sync"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/inside"
)

// inner returns what a Limiter needs of a Counter and users do not.
func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}

// recallDenial asks the memory of c for a denial of an equal call, or for the last
// denial of a key.
func recallDenial(c *counter.Counter, asks []counter.Ask, ofKey bool) (v counter.Verdict, denied bool) {
	own := asksPool.Get().(*[]counter.Ask)
	*own = append((*own)[:0], asks...)
	if ofKey {
		v, denied = inner(c).LastDenial(*own...)
	} else {
		v, denied = inner(c).Recall(*own...)
	}
	clear(*own)
	asksPool.Put(own)
	return v, denied
}

// asksPool has copies of Asks for the methods of an interface: what is given to
// them is on the heap, and the Asks of a call are to stay on its stack.
var asksPool = sync.Pool{New: func() any { return new([]counter.Ask) }}
