package memory

import "math"

// cell is a bucket that is not empty: its first instant, in nanoseconds since
// the Unix epoch, and its count. Starts instead of indices, because then
// whether a cell lies in a window is one comparison, without a division.
type cell struct{ start, n int64 }

const (
	never   = math.MinInt64 // before all starts
	forever = math.MaxInt64 // after all starts
)

// ring is a sorted row of cells, oldest first, in a buffer whose length is a
// power of two, or zero. Cells are named by sequence numbers, which stay the
// same when the buffer grows and when older cells go: running totals point at
// them. The numbers may wrap round; only their differences count.
type ring struct {
	cells []cell
	sum   int64  // of the cells' counts
	first int64  // start of the oldest cell, if there is one: a look at the cell itself would wait for memory
	head  uint32 // sequence number of the oldest cell
	len   uint32
}

// minRing is the capacity of the smallest buffer: one cache line.
const minRing = 4

func (r *ring) at(seq uint32) *cell { return &r.cells[seq&uint32(len(r.cells)-1)] }
func (r *ring) end() uint32         { return r.head + r.len } // one after the newest

// search is the first cell that starts at or after start; end if there is none.
func (r *ring) search(start int64) uint32 {
	// What is looked for out of order is late by a little: mostly it is
	// beside the newest.
	if r.len == 0 || r.at(r.end()-1).start < start {
		return r.end()
	}
	lo, hi := uint32(0), r.len-1 // the cell at hi starts at or after start
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

// capacity is that of the buffer for n cells.
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

// resize moves the cells to a buffer of c cells, which must be enough.
func (r *ring) resize(c int) {
	old := *r
	r.cells = make([]cell, c)
	for seq := old.head; seq != old.end(); seq++ {
		*r.at(seq) = *old.at(seq)
	}
}

// insert makes room for a cell before seq and moves whichever side is shorter.
// It tells whether the older side moved, whose sequence numbers fell by one;
// otherwise those of seq and all after it rose by one.
func (r *ring) insert(seq uint32, c cell) (olderMoved bool) {
	older, newer := seq-r.head, r.end()-seq
	r.len++
	if older < newer {
		r.head--
		for s := r.head; s != seq-1; s++ {
			*r.at(s) = *r.at(s + 1)
		}
		*r.at(seq - 1) = c
		return true
	}
	for s := r.end() - 1; s != seq; s-- {
		*r.at(s) = *r.at(s - 1)
	}
	*r.at(seq) = c
	return false
}

// remove takes the cell at seq out, and tells as insert does which side moved:
// the older one, whose sequence numbers rose by one, or the newer one, whose
// fell.
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

// cutoff is the instant that divides what reaches back from now from what does
// not: a cell of the given width counts if it starts after it. The bucket that
// holds now-reach is the oldest that does. It saturates: reach and width are
// zero or more, and as large as they like.
func cutoff(now, reach, width int64) int64 {
	c := now - reach
	if c > now {
		return never
	}
	if c-width > c {
		return never
	}
	return c - width
}

// add is a+b for a, b of zero or more, at most MaxInt64.
func add(a, b int64) int64 {
	if c := a + b; c >= 0 {
		return c
	}
	return math.MaxInt64
}

// floorDiv is a/b rounded down, for b above zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
