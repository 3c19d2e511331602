package fallback

import "github.com/abacus-go/abacus/counter"

// Unmark has the next admission of key in this process pass unnoticed by the calls under
// way, so that they believe answers that are superseded: a mistake, which the
// simulation must find. The lock of key is held, as during a Take of the local counter.
func Unmark(f *Fallback, key counter.Key) {
	_, s := f.local.shard(key)
	s.keys[key].admitted--
}

// Keys is the number of keys that f knows to be under way or pending.
func Keys(f *Fallback) (n int) {
	for i := range f.local.shards {
		s := &f.local.shards[i]
		s.mu.Lock()
		n += len(s.keys)
		s.mu.Unlock()
	}
	return n
}
