package memcache

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// seen remembers which buckets this process has met, to guess whether an item
// is there. Of each key and tier it keeps one bucket: nearly all hits come in
// the order of time, and older buckets would push out other keys'. It has a
// fixed number of places, in sets; keys beyond push others out, which costs
// round trips and nothing else. An entry is a tag, which tells the key and tier
// from the others of its set, above the low half of the index.
type seen [1 << 13][8]atomic.Uint64 // a set is a line of the processor's cache

// place is where a key's tier is kept.
type place struct {
	set uint16
	tag uint32
}

func placeOf(key string, width time.Duration) place {
	h := mix(xxhash.Sum64String(key) ^ uint64(width))
	return place{uint16(h) % uint16(len(seen{})), uint32(h>>32) | 1} // a tag of 0 is no entry
}

// has guesses whether the bucket of that index is there: it is the one that was
// met last, or the one before it, which callers a moment behind still hit.
func (s *seen) has(p place, index int64) bool {
	set := &s[p.set]
	for i := range set {
		if entry := set[i].Load(); uint32(entry>>32) == p.tag {
			return uint32(entry)-uint32(index) <= 1
		}
	}
	return false
}

// met remembers that the bucket of that index is there. Of those that do so at
// the same time in one set, one may be forgotten.
func (s *seen) met(p place, index int64) {
	if s.has(p, index) {
		return
	}
	set := &s[p.set]
	at := -1
	for i := range set {
		entry := set[i].Load()
		if uint32(entry>>32) == p.tag {
			at = i
			break
		}
		if entry == 0 && at < 0 {
			at = i
		}
	}
	if at < 0 {
		at = rand.IntN(len(set))
	}
	set[at].Store(uint64(p.tag)<<32 | uint64(uint32(index)))
}
