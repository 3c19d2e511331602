package memory

import (
	"math/bits"
	"sort"
)

// ring is the buckets of a tier that have hits, in the order of time. A bucket holds
// the running sum of the hits up to its end: so a window of any length is a difference
// of two sums, and the bucket that has to leave is found by its sum. The newest bucket
// stands in the ring itself, and nearly every hit needs no other. The zero ring is
// empty.
type ring struct {
	last  bucket // the newest; its sum is all hits of the ring, 0 if it is empty
	first int64  // start of the oldest bucket
	older *older // all buckets but the newest; nil if there is no other
}

// bucket is a bucket by its first instant: to compare a start with a window takes no
// division.
type bucket struct{ start, sum int64 }

// older is a ring buffer. Sums in it include the hits of buckets dropped before.
type older struct {
	buckets []bucket  // the length is a power of two
	head, n uint32    // sequence number of the oldest bucket, which may wrap round; number of buckets
	base    int64     // sum of the bucket dropped last
	edges   [4]uint32 // sequence numbers of the buckets where windows began last
}

// Costs in buckets of 16 bytes; minRing is the smallest buffer: one cache line.
const (
	bucketBytes = 16
	olderCost   = 4
	minRing     = 4
)

// cost is the memory of r next to its entry.
func (r *ring) cost() int64 {
	if r.older == nil {
		return 0
	}
	return olderCost + int64(len(r.older.buckets))
}

// size is the number of the buckets of r.
func (r *ring) size() int {
	switch {
	case r.last.sum == 0:
		return 0
	case r.older == nil:
		return 1
	}
	return int(r.older.n) + 1
}

func (o *older) at(i int) *bucket {
	return &o.buckets[(o.head+uint32(i))&uint32(len(o.buckets)-1)]
}

// at returns the start of bucket i, and the hits up to its end.
func (r *ring) at(i int) (start, upTo int64) {
	if r.older == nil || i == int(r.older.n) {
		return r.last.start, r.last.sum
	}
	b := r.older.at(i)
	return b.start, b.sum - r.older.base
}

// upTo returns the hits of the first i buckets.
func (r *ring) upTo(i int) int64 {
	if i == 0 {
		return 0
	}
	_, n := r.at(i - 1)
	return n
}

// search returns the number of the first bucket that starts at from or later: the size
// of r if there is none. Labels out of order are late by a little, mostly.
func (r *ring) search(from int64) int { return r.follow(from, r.size()) }

// follow is search from bucket i on, which is quick if the answer is near i.
func (r *ring) follow(from int64, i int) int {
	switch {
	case r.last.start < from:
		return r.size()
	case r.first >= from:
		return 0
	}
	o := r.older
	i = min(max(0, i), int(o.n))
	for range 4 {
		switch {
		case i < int(o.n) && o.at(i).start < from:
			i++
		case i > 0 && o.at(i-1).start >= from:
			i--
		default:
			return i
		}
	}
	return sort.Search(int(o.n), func(i int) bool { return o.at(i).start >= from })
}

// before returns the hits of the buckets that start before at.
func (r *ring) before(at int64) int64 { return r.upTo(r.search(at)) }

// within returns the hits of the buckets that start in a span of time.
func (r *ring) within(from, to int64) int64 { return r.before(to) - r.before(from) }

// since returns the hits of the buckets that start at from or later.
func (r *ring) since(from int64) int64 { return r.last.sum - r.before(from) }

// window is since for window number i of a call, which moves on from call to call: the
// search begins where it ended last.
func (r *ring) window(from int64, i int) int64 {
	switch {
	case r.last.start < from:
		return 0
	case r.first >= from:
		return r.last.sum
	}
	edge := &r.older.edges[i%len(r.older.edges)]
	i = r.follow(from, int(int32(*edge-r.older.head)))
	*edge = r.older.head + uint32(i)
	return r.last.sum - r.upTo(i)
}

// freedBy returns the start of the bucket with which need of the hits since from have
// left: the newest if there are fewer.
func (r *ring) freedBy(from, need int64) int64 {
	need += r.before(from)
	start, _ := r.at(sort.Search(r.size()-1, func(i int) bool { return r.upTo(i+1) >= need }))
	return start
}

// growth returns the memory that more buckets take at most, once those that start
// at cut or before have been dropped.
func (r *ring) growth(more int, cut int64) int64 {
	n := r.size() + more - 1
	if n > 0 && (r.older == nil || n > len(r.older.buckets)) {
		n -= r.search(plus(cut, 1))
	}
	if n <= 0 {
		return 0
	}
	return max(0, olderCost+int64(capacity(n))-r.cost())
}

// put adds n to the bucket that starts at start.
func (r *ring) put(start, n int64) {
	switch last := r.last.start; {
	case r.last.sum == 0:
		r.last.start, r.first = start, start
	case last < start:
		i := r.size() - 1
		r.insert(i, last, r.last.sum-r.upTo(i))
		r.last.start = start
	case last > start:
		i := r.search(start)
		if found, _ := r.at(i); found == start {
			r.older.add(i, n)
		} else {
			r.insert(i, start, n)
			r.first = min(r.first, start)
		}
	}
	r.last.sum += n
}

// insert puts a bucket with n hits before older bucket i. Like add and remove it moves
// the buckets on the shorter side of i.
func (r *ring) insert(i int, start, n int64) {
	if r.older == nil {
		r.older = new(older)
	}
	o := r.older
	if int(o.n) == len(o.buckets) {
		o.resize(int(o.n) + 1)
	}
	sum := o.base + r.upTo(i)
	o.n++
	if o.front(i) {
		o.head--
		for j := range i {
			*o.at(j) = *o.at(j + 1)
		}
	} else {
		for j := int(o.n) - 1; j > i; j-- {
			*o.at(j) = *o.at(j - 1)
		}
	}
	*o.at(i) = bucket{start, sum}
	o.add(i, n)
}

// front reports whether bucket i is in the older half.
func (o *older) front(i int) bool { return i < int(o.n)/2 }

// add adds n to the sums from bucket i on.
func (o *older) add(i int, n int64) {
	if o.front(i) {
		o.base -= n
		for j := range i {
			o.at(j).sum -= n
		}
		return
	}
	for ; i < int(o.n); i++ {
		o.at(i).sum += n
	}
}

// take takes up to n hits from the bucket that starts at start.
func (r *ring) take(start, n int64) {
	had := r.within(start, start+1)
	if had == 0 {
		return
	}
	i := r.search(start)
	n = min(n, had)
	r.last.sum -= n
	if r.older != nil {
		r.older.add(i, -n)
	}
	if n == had {
		r.remove(i)
	}
}

// remove removes bucket i, which has no hits.
func (r *ring) remove(i int) {
	o := r.older
	if o == nil {
		*r = ring{}
		return
	}
	if o.n--; i > int(o.n) { // the newest
		r.last.start = o.at(int(o.n)).start
	}
	if o.front(i) {
		for ; i > 0; i-- {
			*o.at(i) = *o.at(i - 1)
		}
		o.head++
	} else {
		for ; i < int(o.n); i++ {
			*o.at(i) = *o.at(i + 1)
		}
	}
	r.shrink()
}

// drop drops the first i buckets, one or more.
func (r *ring) drop(i int) {
	if i == r.size() {
		*r = ring{}
		return
	}
	o := r.older
	gone := r.upTo(i)
	r.last.sum -= gone
	o.base += gone
	o.head += uint32(i)
	o.n -= uint32(i)
	r.shrink()
}

// shrink gives memory back after buckets have gone, and notes the oldest again.
func (r *ring) shrink() {
	o := r.older
	switch n, c := int(o.n), len(o.buckets); {
	case n == 0:
		r.older, r.first = nil, r.last.start
		return
	case c > minRing && n < c/4: // half of the new buffer is free
		o.resize(2 * n)
	}
	r.first = o.at(0).start
}

// capacity is the length of the buffer for n buckets, one or more.
func capacity(n int) int { return max(minRing, 1<<bits.Len(uint(n-1))) }

// resize moves the buckets to a buffer for n.
func (o *older) resize(n int) {
	former := *o
	o.buckets = make([]bucket, capacity(n))
	for i := range int(o.n) {
		*o.at(i) = *former.at(i)
	}
}
