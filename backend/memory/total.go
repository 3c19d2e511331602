package memory

import "math"

// longRing is the capacity from which a ring has running totals. Adding up the
// buckets of a shorter ring is faster than keeping a total right.
const longRing = 16

// total is the running total of a window of one tier: the sum of the ring's
// buckets from the position at on. A total is a cache, and exact for every
// instant: read for a later instant, buckets that left are subtracted; read for
// an earlier instant (a slower clock, a late label), buckets that return are
// added back. Nothing is lost, because the ring keeps the buckets.
type total struct {
	reach int64 // length of the window, back from now
	sum   int64
	next  int64  // start of the bucket at at; forever if there is none
	prev  int64  // start of the bucket before at; never if there is none
	at    uint32 // a sequence number of the ring
	tier  uint8  // of the group; noTier if the total is free
	hot   bool   // read since a search for a total to replace came by
}

const (
	noTier    = math.MaxUint8
	perTotals = 3

	// maxTotals is the most blocks of totals of a group: 33 windows, where a call
	// of the Counter has 32. A program that limits a key by more windows has
	// rings added up again and again: right, and slow.
	maxTotals = 11
)

// totals is a block of running totals of a group.
type totals struct {
	next *totals
	list [perTotals]total
}

func newTotals() *totals {
	return &totals{list: [perTotals]total{{tier: noTier}, {tier: noTier}, {tier: noTier}}}
}

// all yields the totals of tier k in the chain of blocks.
func (t *totals) all(k int) func(yield func(*total) bool) {
	return func(yield func(*total) bool) {
		for ; t != nil; t = t.next {
			for i := range t.list {
				if w := &t.list[i]; int(w.tier) == k && !yield(w) {
					return
				}
			}
		}
	}
}

// look notes the starts of the buckets beside the position.
func (w *total) look(r *ring) {
	w.next, w.prev = forever, never
	if w.at != r.end() {
		w.next = r.at(w.at).start
	}
	if w.at != r.head {
		w.prev = r.at(w.at - 1).start
	}
}

// move moves the position to the first bucket that starts after cut.
func (w *total) move(r *ring, cut int64) {
	if r.len == 0 || r.at(r.end()-1).start <= cut { // all has left
		w.at, w.sum = r.end(), 0
	} else {
		for w.at != r.end() && r.at(w.at).start <= cut {
			w.sum -= r.at(w.at).n
			w.at++
		}
		for w.at != r.head && r.at(w.at-1).start > cut {
			w.at--
			w.sum += r.at(w.at).n
		}
	}
	w.look(r)
}

// read is the sum of the buckets of r, the ring of tier k, that start after cut.
func (t *totals) read(r *ring, k int, cut, reach int64, s *Store) int64 {
	for b := t; b != nil; b = b.next {
		for i := range b.list {
			w := &b.list[i]
			if w.reach != reach || int(w.tier) != k {
				continue
			}
			w.hot = true
			if w.next <= cut || w.prev > cut {
				w.move(r, cut)
			}
			return w.sum
		}
	}
	w := t.free(s)
	*w = total{reach: reach, at: r.end(), tier: uint8(k), hot: true}
	w.move(r, cut)
	return w.sum
}

// free finds memory for a total: a free total, or a new block if the store has
// room without evicting anything, or else a total that no call read lately.
func (t *totals) free(s *Store) *total {
	blocks, last := 0, t
	for b := t; b != nil; b = b.next {
		blocks, last = blocks+1, b
		for i := range b.list {
			if b.list[i].tier == noTier {
				return &b.list[i]
			}
		}
	}
	if blocks < maxTotals && s.reserve(totalsCost, s.max) {
		last.next = newTotals()
		return &last.next.list[0]
	}
	for b := t; ; b = b.next {
		if b == nil {
			b = t // all were hot: none is now
		}
		for i := range b.list {
			if !b.list[i].hot {
				return &b.list[i]
			}
			b.list[i].hot = false
		}
	}
}
