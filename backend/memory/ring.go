package memory

// bucket is the count of a bucket that is not empty, with its first instant: a
// start instead of an index, because to compare a start with a window takes no
// division.
type bucket struct{ start, n int64 }

// ring is the older buckets of a tier, oldest first, in a buffer whose length is
// a power of two, or zero. A bucket has a sequence number, which stays the same
// when the buffer grows and when older buckets go: running totals hold such
// numbers. The numbers may wrap round; only their differences count.
type ring struct {
	buckets []bucket
	sum     int64  // of all counts
	first   int64  // start of the oldest bucket, forever if there is none: a look at the bucket itself would wait for memory
	head    uint32 // sequence number of the oldest bucket
	len     uint32
}

// minRing is the capacity of the smallest buffer: one cache line.
const minRing = 4

func (r *ring) at(seq uint32) *bucket { return &r.buckets[seq&uint32(len(r.buckets)-1)] }
func (r *ring) end() uint32           { return r.head + r.len } // one after the newest

// search is the first bucket that starts at or after start; end if there is none.
func (r *ring) search(start int64) uint32 {
	// Labels out of order are late by a little, mostly: the bucket is beside the
	// newest.
	if r.len == 0 || r.at(r.end()-1).start < start {
		return r.end()
	}
	lo, hi := uint32(0), r.len-1 // the bucket at hi starts at or after start
	for lo < hi {
		mid := (lo + hi) / 2
		if r.at(r.head+mid).start < start {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return r.head + lo
}

// after is the sum of the buckets that start after cut. The loop begins with the
// newest.
func (r *ring) after(cut int64) (sum int64) {
	for seq := r.end(); seq != r.head; {
		seq--
		b := r.at(seq)
		if b.start <= cut {
			break
		}
		sum += b.n
	}
	return sum
}

// capacity is the length of the buffer for n buckets.
func capacity(n int) int {
	if n <= 0 {
		return 0
	}
	c := minRing
	for c < n {
		c *= 2
	}
	return c
}

// resize moves the buckets to a buffer of length c, which must be enough.
func (r *ring) resize(c int) {
	old := *r
	r.buckets = make([]bucket, c)
	for seq := old.head; seq != old.end(); seq++ {
		*r.at(seq) = *old.at(seq)
	}
}

// insert puts an empty bucket before seq and moves whichever side is shorter:
// the older side, whose sequence numbers fall by one, or the newer side from seq
// on, whose numbers rise by one.
func (r *ring) insert(seq uint32, start int64) (olderMoved bool) {
	older, newer := seq-r.head, r.end()-seq
	r.len++
	if older < newer {
		r.head--
		for s := r.head; s != seq-1; s++ {
			*r.at(s) = *r.at(s + 1)
		}
		*r.at(seq - 1) = bucket{start, 0}
		return true
	}
	for s := r.end() - 1; s != seq; s-- {
		*r.at(s) = *r.at(s - 1)
	}
	*r.at(seq) = bucket{start, 0}
	return false
}

// remove takes the bucket at seq out and moves whichever side is shorter: the
// older side, whose sequence numbers rise by one, or the newer side, whose
// numbers fall by one.
func (r *ring) remove(seq uint32) (olderMoved bool) {
	older, newer := seq-r.head, r.end()-1-seq
	if older < newer {
		for s := seq; s != r.head; s-- {
			*r.at(s) = *r.at(s - 1)
		}
		r.head++
		r.len--
		return true
	}
	r.len--
	for s := seq; s != r.end(); s++ {
		*r.at(s) = *r.at(s + 1)
	}
	return false
}
