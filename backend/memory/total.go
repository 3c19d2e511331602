package memory

import "math"

// longRing is the capacity from which a ring has running totals. The cells of
// a shorter one are added up faster than a total is kept right.
const longRing = 16

// window is the running total of a window of one tier: the sum of the ring's
// cells from the position at on. It is a cache, and exact for every instant:
// read for a later one it subtracts the cells that left, read for an earlier
// one (a slower clock, a late label) it adds back those that return. Nothing
// is forgotten, because the ring keeps the cells.
type window struct {
	reach int64 // which window: how far it reaches back
	sum   int64
	next  int64  // start of the cell at at; forever if there is none
	prev  int64  // start of the cell before at; never if there is none
	at    uint32 // a sequence number of the ring
	tier  uint8  // whose ring; noTier if the total is free
	hot   bool   // asked for since a search for one to replace came by
}

const perTotals = 3

// maxTotals is how many blocks of totals an entry has at most: 33 windows,
// where a call of the counter has 32.
const maxTotals = 11

// totals is a block of running totals of an entry, of any of its tiers.
type totals struct {
	next *totals
	list [perTotals]window
}

const noTier = math.MaxUint8

func newTotals() *totals {
	return &totals{list: [perTotals]window{{tier: noTier}, {tier: noTier}, {tier: noTier}}}
}

// look finds out what is beside the position.
func (w *window) look(r *ring) {
	w.next, w.prev = forever, never
	if w.at != r.end() {
		w.next = r.at(w.at).start
	}
	if w.at != r.head {
		w.prev = r.at(w.at - 1).start
	}
}

// move moves the position to the first cell that starts after cut.
func (w *window) move(r *ring, cut int64) {
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

// total is the sum of the cells of the ring of tier k that start after cut.
func (n *entry) total(k int, cut, reach int64, s *Store) int64 {
	for t := n.past.totals; t != nil; t = t.next {
		for i := range t.list {
			w := &t.list[i]
			if w.reach != reach || int(w.tier) != k {
				continue
			}
			w.hot = true
			if w.next <= cut || w.prev > cut {
				w.move(&n.past.rings[k], cut)
			}
			return w.sum
		}
	}
	w := n.place(s)
	r := &n.past.rings[k]
	*w = window{reach: reach, at: r.end(), tier: uint8(k), hot: true}
	w.move(r, cut)
	return w.sum
}

// place finds a place for a total: a free one, one in a new block
// if the store has room for it without forgetting anything, or that of a
// window which nobody asked for lately. (A program that limits a key by more
// windows than there is room for adds up rings again and again; it is right,
// and slow.)
func (n *entry) place(s *Store) *window {
	blocks := 0
	for t := n.past.totals; t != nil; t = t.next {
		blocks++
		for i := range t.list {
			if t.list[i].tier == noTier {
				return &t.list[i]
			}
		}
	}
	if blocks < maxTotals && s.reserve(totalsCost) {
		last := n.past.totals
		for last.next != nil {
			last = last.next
		}
		last.next = newTotals()
		return &last.next.list[0]
	}
	for t := n.past.totals; ; t = t.next {
		if t == nil {
			t = n.past.totals // all were hot: none is now
		}
		for i := range t.list {
			if !t.list[i].hot {
				return &t.list[i]
			}
			t.list[i].hot = false
		}
	}
}
