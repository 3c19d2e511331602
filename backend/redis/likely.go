package redis

import (
	"hash/maphash"
	"sync/atomic"
)

// likely remembers keys of which something is likely true. A wrong guess costs the server
// a microsecond, and changes no answer. A likely is used by many goroutines at once.
type likely struct {
	seed  maphash.Seed
	slots [4096]atomic.Uint32 // a part of the key's hash, at another part

	guesses, wrong atomic.Int64
}

func (l *likely) slot(key []byte) (slot *atomic.Uint32, mark uint32) {
	hash := maphash.Bytes(l.seed, key)
	return &l.slots[hash%uint64(len(l.slots))], uint32(hash>>32) | 1
}

// has reports whether a key is remembered.
func (l *likely) has(key []byte) bool {
	slot, mark := l.slot(key)
	return slot.Load() == mark
}

// note remembers a key, or forgets it.
func (l *likely) note(key []byte, is bool) {
	slot, mark := l.slot(key)
	was := slot.Load() == mark
	if was {
		l.guesses.Add(1)
	}
	switch {
	case is && !was:
		slot.Store(mark)
	case was && !is:
		l.wrong.Add(1)
		slot.Store(0)
	}
}
