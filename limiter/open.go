package limiter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// opens are the open hits of this process, by key.
type opens struct {
	used atomic.Int64 // keys; none: nobody takes the lock
	mu   sync.Mutex
	keys map[counter.Key]*openKey
}

type openKey struct {
	calls    int   // that refer to the key
	hits     int64 // that are open, or asked for by calls that may leave them open
	admitted int64 // of hits: those that are open
	refunded int64 // in the time of these calls
}

// open is the part of a call in the open hits, and the answer to a denied call. The
// nil open has no part.
type open struct {
	of    *opens
	asked bool // the hits of the call are in those of the keys
	let   bool // they are in the admitted of the keys
	keys  []openAsk

	after time.Duration // RetryAfter of the limits that open hits may free
}

type openAsk struct {
	key      counter.Key
	state    *openKey
	n        int64 // hits of the call
	refunded int64 // of state, when the call began
	free     int64 // hits of others that may be undone, or were since the call began; known after a denial
	sure     int64 // of free: those that are not of calls that may be denied themselves
}

// begin begins a call with open hits.
func (o *opens) begin(asks []counter.Ask) *open {
	call := &open{of: o}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range asks {
		if asks[i].Soft || asks[i].N == 0 {
			continue
		}
		k := o.keys[asks[i].Key]
		if k == nil {
			if o.keys == nil {
				o.keys = map[counter.Key]*openKey{}
			}
			k = &openKey{}
			o.keys[asks[i].Key] = k
			o.used.Add(1)
		}
		k.calls++
		call.keys = append(call.keys, openAsk{key: asks[i].Key, n: asks[i].N, state: k, refunded: k.refunded})
	}
	return call
}

// ask counts the hits of the call, which the store is asked for from now on.
func (c *open) ask() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.asked = true
	for i := range c.keys {
		c.keys[i].state.hits += c.keys[i].n
	}
}

// admit counts the hits of the call as admitted.
func (c *open) admit() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.let = true
	for i := range c.keys {
		c.keys[i].state.admitted += c.keys[i].n
	}
}

// close ends the part of the call, of whose hits so many were given back at most. Only the
// first close has an effect.
func (c *open) close(refunded int64) {
	if c == nil || c.of == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for i := range c.keys {
		k, n := c.keys[i].state, c.keys[i].n
		if k == nil {
			break
		}
		if c.asked {
			k.hits -= n
		}
		if c.let {
			k.admitted -= n
		}
		k.refunded += min(n, refunded)
		if k.calls--; k.calls == 0 {
			delete(c.of.keys, c.keys[i].key)
			c.of.used.Add(-1)
		}
		c.keys[i].state = nil
	}
}

// others returns the hits that may be undone, or were since own began, at the keys of a
// denied call with the open hits own, or nil; without the hits of own itself. It returns
// nil if there are none.
func (o *opens) others(asks []counter.Ask, own *open) *open {
	if o.used.Load() == 0 {
		return nil
	}
	var keys []openAsk
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range asks {
		k := o.keys[asks[i].Key]
		if k == nil || asks[i].Soft {
			continue
		}
		free, sure := k.hits, k.admitted
		for j := 0; own != nil && j < len(own.keys); j++ {
			if own.keys[j].state == k {
				refunded := k.refunded - own.keys[j].refunded
				free, sure = free+refunded, sure+refunded
				if own.asked {
					free -= own.keys[j].n
				}
			}
		}
		if free > 0 {
			keys = append(keys, openAsk{key: asks[i].Key, n: fallback.Least(&asks[i]), free: free, sure: sure})
		}
	}
	if keys == nil {
		return nil
	}
	return &open{keys: keys, after: fallback.AfterFailure()}
}

// frees reports whether open hits may free the limit of s, a state of the denied
// call.
func (c *open) frees(s *counter.State) bool {
	k := c.find(s)
	return k != nil && s.Remaining+k.free >= k.n
}

// pardons reports whether open hits may free the limit of s, without those of calls
// under way: parallel attempts, each of which is denied, would pardon each other.
func (c *open) pardons(s *counter.State) bool {
	k := c.find(s)
	return k != nil && k.sure > 0 && s.Remaining+k.sure >= k.n
}

func (c *open) find(s *counter.State) *openAsk {
	if c == nil || s.RetryAfter == counter.Never {
		return nil
	}
	for i := range c.keys {
		if c.keys[i].key == s.Key {
			return &c.keys[i]
		}
	}
	return nil
}
