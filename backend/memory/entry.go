package memory

import (
	"bytes"
	"hash/maphash"

	"github.com/abacus-go/abacus/backend"
)

// entry is a key with its buckets. An entry has 160 bytes, and nearly every hit needs
// only the first 96: two cache lines, with a key of up to 45 bytes. A pointer to the
// key would be a third wait for memory, after the table's and the entry's.
type entry struct {
	layout  *layout
	finest  ring
	dropped int64 // latest expiry of a dropped bucket; never: none
	length  uint8 // of the key; isLong if the key is in long
	mixed   bool  // a dropped bucket may have had a shorter TTL than the layout has now
	escaped bool  // the key has a %
	name    [69]byte
	others  []ring         // of the other tiers
	pos     [orders]uint32 // in the heaps of the shard
	long    *[]byte        // a key longer than name
}

const isLong = 255

// entryCost is the cost of an entry in buckets, with its slot in a table (16 bytes, and
// the table is 3/8 to 3/4 full) and the items in heaps (16 bytes each, and what append
// holds ready). TestCostIsHonest measures it.
const entryCost = 14

// freshCost is the cost of a new key with a name of n bytes, with at most one
// bucket in each tier of l.
func freshCost(n int, l *layout) (cost int64) {
	cost = entryCost + 2*int64(l.n-1)
	if n > len(entry{}.name) {
		cost += 1 + int64(n+bucketBytes-1)/bucketBytes
	}
	return cost
}

// cost is all that e takes of the store's bound.
func (e *entry) cost() int64 {
	cost := freshCost(len(e.key()), e.layout)
	for k := range e.layout.n {
		cost += e.ring(k).cost()
	}
	return cost
}

// reset makes e the entry of a fresh key.
func (e *entry) reset(key []byte, l *layout) {
	*e = entry{layout: l, dropped: never, escaped: bytes.IndexByte(key, '%') >= 0}
	if l.n > 1 {
		e.others = make([]ring, l.n-1)
	}
	if len(key) <= len(e.name) {
		e.length = uint8(copy(e.name[:], key))
	} else {
		long := bytes.Clone(key)
		e.length, e.long = isLong, &long
	}
}

// key returns the key, which is good as long as e.
func (e *entry) key() []byte {
	if e.length == isLong {
		return *e.long
	}
	return e.name[:e.length]
}

// hash is the hash of the key of e.
func (s *Store) hash(e *entry) uint64 { return maphash.Bytes(s.seed, e.key()) }

// isMarker reports whether e remembers a Forget.
func (e *entry) isMarker() bool { return e.length != isLong && e.name[0] == markerByte }

// ring returns the buckets of tier k.
func (e *entry) ring(k int) *ring {
	if k == 0 {
		return &e.finest
	}
	return &e.others[k-1]
}

// put adds n to the bucket of tier k that starts at start and has not expired by now,
// and drops what has.
func (e *entry) put(k int, start, n, now int64) {
	r := e.ring(k)
	if r.last.start != start || r.last.sum > backend.MaxCount-n {
		e.expire(k, now)
	}
	r.put(start, n)
}

// hit adds n hits at now if the newest bucket of every tier holds now, as nearly always
// with a busy key.
func (e *entry) hit(n, now int64) bool {
	for k, t := range e.layout.tiers() {
		if r := e.ring(k); uint64(now-r.last.start) >= uint64(t.width) || r.last.sum == 0 || r.last.sum > backend.MaxCount-n {
			return false
		}
	}
	for k := range e.layout.n {
		e.ring(k).last.sum += n
	}
	return true
}

// opening returns the memory that n hits at now take at most. ok is false if there is
// a newer bucket, or if a tier might count too much.
func (e *entry) opening(n, now int64) (cost int64, ok bool) {
	for k, t := range e.layout.tiers() {
		r := e.ring(k)
		past := now - r.last.start
		if past < 0 || r.last.sum > backend.MaxCount-n {
			return 0, false
		}
		if past >= t.width {
			cost += r.growth(1, t.expired(now))
		}
	}
	return cost, true
}

// open adds n hits at now, which no bucket is newer than, and returns the memory taken.
func (e *entry) open(n, now int64) (spent int64) {
	for k, t := range e.layout.tiers() {
		spent -= e.ring(k).cost()
		e.put(k, floor(now, t.width), n, now)
		spent += e.ring(k).cost()
	}
	return spent
}

// expire drops the buckets of tier k that have expired by now.
func (e *entry) expire(k int, now int64) {
	t, r := e.layout.all[k], e.ring(k)
	if i := r.follow(plus(t.expired(now), 1), 0); i > 0 {
		last, _ := r.at(i - 1)
		e.dropped = max(e.dropped, t.expiry(last))
		r.drop(i)
	}
}

// prolong makes l the layout of e, whose tiers live as long or longer: longer TTLs do
// not bring expired buckets back.
func (e *entry) prolong(l *layout, now int64) {
	if *e.layout != *l {
		for k := range l.n {
			e.expire(k, now)
		}
		e.mixed = e.mixed || e.dropped != never
	}
	e.layout = l
}

// rank is the instant by which e stands in a heap: never without buckets.
func (e *entry) rank(order int) int64 {
	at := int64(never)
	for k, t := range e.layout.tiers() {
		r := e.ring(k)
		switch {
		case r.last.sum == 0:
		case order == byEmpty:
			at = max(at, t.expiry(r.last.start))
		default:
			at = max(at, r.last.start)
		}
	}
	return at
}
