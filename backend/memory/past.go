package memory

// The changes of a ring, each with what it does to the sum of tier 0 and to
// the running totals. A cell at or after the position of a running total is in
// it, whatever the window says: the next read moves the position to where it
// belongs.

// push makes the newest cell of tier k the last of the ring.
func (n *entry) push(k int) (spent int64) {
	spent = n.grow(k)
	r, c := &n.past.rings[k], n.newest[k]
	*r.at(r.end()) = c
	if r.len++; r.len == 1 {
		n.first(k)
	}
	r.sum += c.n
	if k == 0 {
		n.older = r.sum
	}
	for t := n.past.totals; t != nil; t = t.next {
		for i := range t.list {
			w := &t.list[i]
			if int(w.tier) != k {
				continue
			}
			if w.at == r.end()-1 {
				w.next = c.start
			}
			w.sum += c.n
		}
	}
	return spent
}

// pop makes the last cell of the ring the newest of tier k, if there is one.
func (n *entry) pop(k int) {
	n.newest[k] = cell{}
	if n.past == nil || n.past.rings[k].len == 0 {
		return
	}
	r := &n.past.rings[k]
	seq := r.end() - 1
	c := *r.at(seq)
	n.change(k, seq, -c.n)
	n.remove(k, seq)
	n.newest[k] = c
}

// change adds d, which may be below zero, to the cell at seq.
func (n *entry) change(k int, seq uint32, d int64) {
	r := &n.past.rings[k]
	r.at(seq).n += d
	r.sum += d
	if k == 0 {
		n.older = r.sum
	}
	for t := n.past.totals; t != nil; t = t.next {
		for i := range t.list {
			if w := &t.list[i]; int(w.tier) == k && int32(seq-w.at) >= 0 {
				w.sum += d
			}
		}
	}
}

// insert puts c before the cell at seq.
func (n *entry) insert(k int, seq uint32, c cell) {
	r := &n.past.rings[k]
	olderMoved := r.insert(seq, cell{c.start, 0})
	at := seq // where it is now
	if olderMoved {
		at--
	}
	n.renumber(k, func(w *window) {
		if olderMoved && int32(seq-w.at) > 0 {
			w.at--
		} else if !olderMoved && int32(w.at-seq) > 0 {
			w.at++
		}
	})
	n.change(k, at, c.n)
}

// remove takes the cell at seq out, whose count must be 0.
func (n *entry) remove(k int, seq uint32) {
	r := &n.past.rings[k]
	olderMoved := r.remove(seq)
	n.renumber(k, func(w *window) {
		if olderMoved && int32(seq-w.at) >= 0 {
			w.at++
		} else if !olderMoved && int32(w.at-seq) > 0 {
			w.at--
		}
	})
}

// renumber moves the positions of all totals of tier k, and puts right what
// they and the entry know of the cells beside them.
func (n *entry) renumber(k int, move func(*window)) {
	r := &n.past.rings[k]
	for t := n.past.totals; t != nil; t = t.next {
		for i := range t.list {
			if int(t.list[i].tier) == k {
				move(&t.list[i])
				t.list[i].look(r)
			}
		}
	}
	n.first(k)
}

// first notes where the ring of tier k begins now.
func (n *entry) first(k int) {
	r, oldest := &n.past.rings[k], int64(forever)
	if r.len > 0 {
		oldest = r.at(r.head).start
	}
	r.first = oldest
	if k == 0 {
		n.oldest, n.older = oldest, r.sum
	}
}

// expire drops the cells of tier k that start at or before cut. last is the
// start of the newest of them, never if there is none; freed is what that gave
// back of the store's bound.
func (n *entry) expire(k int, cut int64) (last, freed int64) {
	c := &n.newest[k]
	if c.n == 0 {
		return never, 0
	}
	if c.start <= cut {
		last = c.start
		*c = cell{}
		return last, n.clear(k)
	}
	if n.past == nil {
		return never, 0
	}
	r := &n.past.rings[k]
	if r.len == 0 || r.first > cut {
		return never, 0
	}
	if last = r.at(r.end() - 1).start; last <= cut {
		return last, n.clear(k)
	}
	for r.at(r.head).start <= cut {
		last = r.at(r.head).start
		n.drop(k)
	}
	n.renumber(k, func(*window) {})
	return last, n.shrink(k)
}

// drop lets the oldest cell of the ring go. The caller renumbers.
func (n *entry) drop(k int) {
	r := &n.past.rings[k]
	c := r.at(r.head)
	r.sum -= c.n
	for t := n.past.totals; t != nil; t = t.next {
		for i := range t.list {
			if w := &t.list[i]; int(w.tier) == k && w.at == r.head {
				w.sum -= c.n
				w.at++
			}
		}
	}
	r.head++
	r.len--
}

// clear empties the ring of tier k.
func (n *entry) clear(k int) (freed int64) {
	if n.past == nil {
		return 0
	}
	r := &n.past.rings[k]
	r.head, r.len, r.sum = r.end(), 0, 0
	n.renumber(k, func(w *window) { w.at, w.sum = r.head, 0 })
	return n.shrink(k)
}

// shrink gives back what the ring of tier k does not need: it lives in less
// than a quarter of its buffer. Half of the new one is free, so that the next
// few cells do not make it grow again.
func (n *entry) shrink(k int) (freed int64) {
	if n.past == nil {
		return 0
	}
	r := &n.past.rings[k]
	old := len(r.cells)
	switch {
	case r.len == 0:
		r.cells = nil
	case old > minRing && int(r.len) < old/4:
		r.resize(capacity(2 * int(r.len)))
	}
	if freed = int64(old - len(r.cells)); freed > 0 {
		freed += n.tidy()
	}
	return freed
}

// tidy lets go what an entry has only beside rings, or beside long ones.
func (n *entry) tidy() (freed int64) {
	longest := 0
	for k := range n.past.rings {
		longest = max(longest, len(n.past.rings[k].cells))
	}
	if longest < longRing {
		for ; n.past.totals != nil; n.past.totals = n.past.totals.next {
			freed += totalsCost
		}
	}
	if longest == 0 && n.past.next == nil {
		n.past = nil
		freed += pastCost
	}
	return freed
}
