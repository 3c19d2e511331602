package redis

import (
	"hash/maphash"
	"sync/atomic"
)

// likelyDenied remembers keys whose last Take of this process was denied. The next Take
// of such a key asks for exact counts at once, since an upper bound will hardly admit
// it. A wrong guess costs the server a microsecond, and changes no answer. likelyDenied
// is used by many goroutines at once.
type likelyDenied struct {
	seed  maphash.Seed
	slots [4096]atomic.Uint32 // a part of the key's hash, at another part
}

func (l *likelyDenied) slot(key []byte) (slot *atomic.Uint32, mark uint32) {
	hash := maphash.Bytes(l.seed, key)
	return &l.slots[hash%uint64(len(l.slots))], uint32(hash>>32) | 1
}

// has tells whether the last Take of a key was denied.
func (l *likelyDenied) has(key []byte) bool {
	slot, mark := l.slot(key)
	return slot.Load() == mark
}

// note remembers the outcome of a Take.
func (l *likelyDenied) note(key []byte, allowed bool) {
	slot, mark := l.slot(key)
	switch {
	case !allowed:
		slot.Store(mark)
	case slot.Load() == mark:
		slot.Store(0)
	}
}
