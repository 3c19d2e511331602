package memcache

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// seen remembers buckets that this process has met, to guess whether an item
// exists. For each key and tier seen keeps a single bucket: nearly all hits
// come in the order of time, and older buckets would push out buckets of other
// keys. The table has a fixed number of entries, in sets. Further keys push out
// others, at the cost of round trips and nothing else. An entry is a tag, which
// identifies the key and tier within the set, above the low half of the
// bucket's index.
type seen [1 << 13][8]atomic.Uint64 // a set is a line of the processor's cache

// position is the set and the tag of a key's tier.
type position struct {
	set uint16
	tag uint32
}

func positionOf(key string, width time.Duration) position {
	h := mix(xxhash.Sum64String(key) ^ uint64(width))
	return position{uint16(h) % uint16(len(seen{})), uint32(h>>32) | 1} // the tag 0 marks an empty entry
}

// has guesses whether the bucket with that index exists: index is the last met,
// or the index before the last, which callers a moment behind still hit.
func (s *seen) has(p position, index int64) bool {
	set := &s[p.set]
	for i := range set {
		if entry := set[i].Load(); uint32(entry>>32) == p.tag {
			return uint32(entry)-uint32(index) <= 1
		}
	}
	return false
}

// met remembers that the bucket with that index exists. Of several simultaneous
// changes in a set, one may be lost.
func (s *seen) met(p position, index int64) {
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
