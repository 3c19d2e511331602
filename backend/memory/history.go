package memory

// history is the buckets of a group but the newest of each tier. The methods of
// group in this file change the history, and count its memory.
type history struct {
	totals *totals             // running totals of long rings
	first  ring                // of tier 0
	others *[perGroup - 1]ring // of the other tiers; noRings as long as all are empty
	next   *group              // tiers beyond perGroup
}

var noRings = &[perGroup - 1]ring{{first: forever}, {first: forever}, {first: forever}}

// ring is the ring of tier k.
func (h *history) ring(k int) *ring {
	if k == 0 {
		return &h.first
	}
	return &h.others[k-1]
}

// Costs in buckets of 16 bytes; TestCostIsHonest measures them.
const (
	bucketBytes = 16
	historyCost = 5
	othersCost  = 9
	totalsCost  = 8
	groupCost   = 6 // a group outside its entry
)

func newHistory() *history { return &history{first: ring{first: forever}, others: noRings} }

// growth is the cost of missing[k] more buckets in each tier k: larger rings, and
// the history and the totals, which all tiers share.
func (g *group) growth(missing *[perGroup]int) (cost int64) {
	hasHistory := g.history != nil
	hasOthers := hasHistory && g.history.others != noRings
	hasTotals := hasHistory && g.history.totals != nil
	for k, n := range missing {
		if n == 0 {
			continue
		}
		want, have := capacity(g.size(k)+n-1), 0
		if g.history != nil {
			have = len(g.history.ring(k).buckets)
		}
		if want <= have {
			continue
		}
		cost += int64(want - have)
		if !hasHistory {
			hasHistory, cost = true, cost+historyCost
		}
		if !hasOthers && k > 0 {
			hasOthers, cost = true, cost+othersCost
		}
		if !hasTotals && want >= longRing {
			hasTotals, cost = true, cost+totalsCost
		}
	}
	return cost
}

// cost is the cost of the history with rings, totals and the next groups.
func (g *group) cost() (c int64) {
	if g.history == nil {
		return 0
	}
	c = historyCost
	if g.history.others != noRings {
		c += othersCost
	}
	for k := range perGroup {
		c += int64(len(g.history.ring(k).buckets))
	}
	for t := g.history.totals; t != nil; t = t.next {
		c += totalsCost
	}
	if g.history.next != nil {
		c += groupCost + g.history.next.cost()
	}
	return c
}

// grow makes room for one more bucket in the ring of tier k.
func (g *group) grow(k int) (spent int64) {
	if g.history == nil {
		g.history = newHistory()
		spent = historyCost
	}
	if k > 0 && g.history.others == noRings {
		others := *noRings
		g.history.others = &others
		spent += othersCost
	}
	r := g.history.ring(k)
	if have := len(r.buckets); int(r.len) == have {
		r.resize(capacity(have + 1))
		spent += int64(len(r.buckets) - have)
		if g.history.totals == nil && len(r.buckets) >= longRing {
			g.history.totals = newTotals()
			spent += totalsCost
		}
	}
	return spent
}

// The changes of a ring follow, each with its effect on the sums and on the
// running totals. A bucket at or after the position of a running total is in the
// total, whatever the window says: the next read moves the position to the
// beginning of the window.

// push makes the newest bucket of tier k the last of the ring, which has room.
func (g *group) push(k int) {
	r, b := g.history.ring(k), g.newest[k]
	*r.at(r.end()) = b
	r.len++
	r.sum += b.n
	if r.len == 1 {
		r.first = b.start
	}
	if k == 0 {
		g.sum0, g.first0 = r.sum, r.first
	}
	for w := range g.history.totals.all(k) {
		if w.at == r.end()-1 {
			w.next = b.start
		}
		w.sum += b.n
	}
}

// pop makes the last bucket of the ring the newest of tier k, if there is one.
func (g *group) pop(k int) {
	g.newest[k] = bucket{}
	if g.history == nil || g.history.ring(k).len == 0 {
		return
	}
	r := g.history.ring(k)
	b := *r.at(r.end() - 1)
	g.remove(k, r.end()-1)
	g.newest[k] = b
}

// change adds d, above or below zero, to the bucket at seq.
func (g *group) change(k int, seq uint32, d int64) {
	r := g.history.ring(k)
	r.at(seq).n += d
	r.sum += d
	if k == 0 {
		g.sum0 = r.sum
	}
	for w := range g.history.totals.all(k) {
		if int32(seq-w.at) >= 0 {
			w.sum += d
		}
	}
}

// insert puts b before the bucket at seq.
func (g *group) insert(k int, seq uint32, b bucket) {
	at := seq // of b, when the ring has moved
	olderMoved := g.history.ring(k).insert(seq, b.start)
	if olderMoved {
		at--
	}
	g.renumber(k, func(w *total) {
		if olderMoved && int32(seq-w.at) > 0 {
			w.at--
		} else if !olderMoved && int32(w.at-seq) > 0 {
			w.at++
		}
	})
	g.change(k, at, b.n)
}

// remove takes the bucket at seq out.
func (g *group) remove(k int, seq uint32) {
	r := g.history.ring(k)
	g.change(k, seq, -r.at(seq).n)
	olderMoved := r.remove(seq)
	g.renumber(k, func(w *total) {
		if olderMoved && int32(seq-w.at) >= 0 {
			w.at++
		} else if !olderMoved && int32(w.at-seq) > 0 {
			w.at--
		}
	})
}

// drop removes the oldest bucket of the ring. The caller renumbers.
func (g *group) drop(k int) {
	r := g.history.ring(k)
	n := r.at(r.head).n
	r.sum -= n
	for w := range g.history.totals.all(k) {
		if w.at == r.head {
			w.sum -= n
			w.at++
		}
	}
	r.head++
	r.len--
}

// clear empties the ring of tier k.
func (g *group) clear(k int) (freed int64) {
	if g.history == nil || g.history.ring(k).len == 0 {
		return 0
	}
	r := g.history.ring(k)
	r.head, r.len, r.sum = r.end(), 0, 0
	g.renumber(k, func(w *total) { w.at, w.sum = r.head, 0 })
	return g.shrink(k)
}

// renumber moves the positions of all totals of tier k, and notes again the
// starts beside them and the start and the sum of the ring.
func (g *group) renumber(k int, move func(*total)) {
	r := g.history.ring(k)
	for w := range g.history.totals.all(k) {
		move(w)
		w.look(r)
	}
	r.first = forever
	if r.len > 0 {
		r.first = r.at(r.head).start
	}
	if k == 0 {
		g.sum0, g.first0 = r.sum, r.first
	}
}

// shrink moves a ring of tier k to a smaller buffer, if the ring fills less than
// a quarter of the buffer. Half of the new buffer is free: the next few buckets
// do not make the ring grow again. An empty ring has neither a buffer nor running
// totals.
func (g *group) shrink(k int) (freed int64) {
	if g.history == nil {
		return 0
	}
	r := g.history.ring(k)
	old := len(r.buckets)
	switch {
	case old == 0:
		return 0
	case r.len == 0: // a later ring of the tier counts from 0 again, and the totals with it
		r.buckets = nil
		for w := range g.history.totals.all(k) {
			*w = total{tier: noTier}
		}
	case old > minRing && int(r.len) < old/4:
		r.resize(capacity(2 * int(r.len)))
	}
	if freed = int64(old - len(r.buckets)); freed > 0 {
		freed += g.tidy()
	}
	return freed
}

// tidy drops totals without a long ring, and empty rings and histories.
func (g *group) tidy() (freed int64) {
	h := g.history
	others := 0
	for k := 1; k < perGroup; k++ {
		others = max(others, len(h.ring(k).buckets))
	}
	if max(others, len(h.first.buckets)) < longRing {
		for ; h.totals != nil; h.totals = h.totals.next {
			freed += totalsCost
		}
	}
	if others == 0 && h.others != noRings {
		h.others = noRings
		freed += othersCost
	}
	if others == 0 && len(h.first.buckets) == 0 && h.next == nil {
		g.history = nil
		freed += historyCost
	}
	return freed
}
