package memory

// perEntry is how many tiers an entry has in place; one with more tiers
// continues in another entry.
const perEntry = 4

// entry is all that is known of a key. It is three cache lines. Nearly every hit
// finds what it needs in the first two: the key itself (a pointer to it would be
// a third wait for memory, after the table's and the entry's), the newest bucket
// of each tier, and older and oldest, which answer most windows. Older buckets
// are in past, which a key with one bucket per tier does not have.
type entry struct {
	prof *profile

	// As long as the oldest cell of tier 0 has not left a window, the count is
	// older and the newest: no need to look at the ring.
	older  int64 // sum of the ring of tier 0
	oldest int64 // start of the ring's first cell; forever if it is empty

	length uint8 // of the key; isLong if it is in long
	odd    uint8 // isBig and so on: what forbids the short way of a Take
	name   [38]byte

	newest [perEntry]cell // n is zero if the tier has no cell

	past    *past
	dropped int64         // see stale.go
	pos     [heaps]uint32 // in the shard's heaps
	long    *string       // a key that is longer than name and rest
	rest    [32]byte      // of a key that is longer than name
}

const (
	inEntry = len(entry{}.name) + len(entry{}.rest)
	isLong  = 255
)

// Bits of entry.odd.
const (
	isBig       = 1 << iota // the sum of a ring is beyond half of MaxCount
	isAhead                 // dropped is after the end of the newest bucket of tier 0
	isStretched             // what was dropped had a shorter TTL than the profile has now
)

// past is the buckets of an entry but the newest of each tier.
type past struct {
	totals *totals // running totals of long rings
	rings  [perEntry]ring
	next   *entry // tiers beyond perEntry; of it only past, older, oldest and newest are used
}

func (e *entry) chained() *entry {
	if e.past == nil {
		return nil
	}
	return e.past.next
}

// reset makes e the entry of a fresh key.
func (e *entry) reset(key []byte, p *profile) {
	*e = entry{prof: p, oldest: forever, dropped: never}
	if len(key) <= inEntry {
		e.length = uint8(len(key))
		copy(e.rest[:], key[copy(e.name[:], key):])
	} else {
		long := string(key)
		e.length, e.long = isLong, &long
	}
	e.extend(p)
}

// extend makes room for the tiers of p, which is the profile of e with others
// after it.
func (e *entry) extend(p *profile) (spent int64) {
	if e.dropped != never && e.prof != p {
		e.odd |= isStretched
	}
	e.prof = p
	for left := len(p.tiers); left > perEntry; left -= perEntry {
		if e.past == nil {
			e.past = new(past)
			spent += pastCost
		}
		if e.past.next == nil {
			e.past.next = &entry{oldest: forever}
			spent += chainCost
		}
		e = e.past.next
	}
	return spent
}

// tier is where tier i of the profile is kept: the entry, and its place in it.
func (e *entry) tier(i int) (n *entry, k int) {
	for i >= perEntry {
		e, i = e.past.next, i-perEntry
	}
	return e, i
}

// size is the number of cells of tier k.
func (n *entry) size(k int) int {
	if n.newest[k].n == 0 {
		return 0
	}
	if n.past == nil {
		return 1
	}
	return 1 + int(n.past.rings[k].len)
}

// cell is the j-th of tier k, oldest first; j is below size.
func (n *entry) cell(k, j int) *cell {
	if n.past == nil || j == int(n.past.rings[k].len) {
		return &n.newest[k]
	}
	r := &n.past.rings[k]
	return r.at(r.head + uint32(j))
}

// lower is the first cell of tier k that starts at or after start; size if
// there is none.
func (n *entry) lower(k int, start int64) int {
	size := n.size(k)
	if size == 0 || n.newest[k].start < start {
		return size
	}
	if n.past == nil {
		return 0
	}
	r := &n.past.rings[k]
	return int(r.search(start) - r.head)
}

// get is the count of the cell that starts at start; 0 if there is none.
func (n *entry) get(k int, start int64) int64 {
	if j := n.lower(k, start); j < n.size(k) {
		if c := n.cell(k, j); c.start == start {
			return c.n
		}
	}
	return 0
}

// put adds amount to the cell that starts at start, which must not overflow,
// and returns its count and what it spent on growth.
func (n *entry) put(k int, start, amount int64) (count, spent int64) {
	c := &n.newest[k]
	switch {
	case c.n > 0 && c.start == start:
		c.n += amount
		return c.n, 0
	case c.n == 0:
		*c = cell{start, amount}
		return amount, 0
	case c.start < start:
		spent = n.push(k)
		*c = cell{start, amount}
		return amount, spent
	}
	if n.past != nil {
		r := &n.past.rings[k]
		if seq := r.search(start); seq != r.end() && r.at(seq).start == start {
			n.change(k, seq, amount)
			return r.at(seq).n, 0
		}
	}
	spent = n.grow(k)
	r := &n.past.rings[k]
	n.insert(k, r.search(start), cell{start, amount})
	return amount, spent
}

// grow makes sure that the ring of tier k has room for one more.
func (n *entry) grow(k int) (spent int64) {
	if n.past == nil {
		n.past = new(past)
		spent = pastCost
	}
	r := &n.past.rings[k]
	if have := len(r.cells); int(r.len) == have {
		r.resize(capacity(have + 1))
		spent += int64(len(r.cells) - have)
		if n.past.totals == nil && len(r.cells) >= longRing {
			n.past.totals = newTotals()
			spent += totalsCost
		}
	}
	return spent
}

// take takes up to amount from the cell that starts at start, and returns what
// is left there and what of the store's bound it gave back.
func (n *entry) take(k int, start, amount int64) (left, freed int64) {
	j := n.lower(k, start)
	if j == n.size(k) || n.cell(k, j).start != start {
		return 0, 0
	}
	c := n.cell(k, j)
	if left = c.n - min(amount, c.n); left > 0 {
		if c == &n.newest[k] {
			c.n = left
		} else {
			n.change(k, n.past.rings[k].head+uint32(j), left-c.n)
		}
		return left, 0
	}
	if c == &n.newest[k] {
		n.pop(k)
	} else {
		seq := n.past.rings[k].head + uint32(j)
		n.change(k, seq, -c.n)
		n.remove(k, seq)
	}
	return 0, n.shrink(k)
}

// count is the sum of the cells of tier k that start after cut, as said by
// cutoff(now, reach, width).
func (n *entry) count(k int, cut, reach int64, s *Store) int64 {
	c := &n.newest[k]
	if c.n == 0 || c.start <= cut {
		return 0
	}
	if k == 0 && n.oldest > cut {
		return c.n + n.older
	}
	if n.past == nil {
		return c.n
	}
	r := &n.past.rings[k]
	if len(r.cells) < longRing {
		return c.n + r.after(cut)
	}
	return c.n + n.total(k, cut, reach, s)
}

// all is the sum of the cells of tier k.
func (n *entry) all(k int) int64 {
	sum := n.newest[k].n
	if n.past != nil {
		sum += n.past.rings[k].sum
	}
	return sum
}

// within is the sum of the cells of tier k that start in a span of time.
func (n *entry) within(k int, from, to int64) (sum int64) {
	for j := n.lower(k, from); j < n.size(k) && n.cell(k, j).start < to; j++ {
		sum += n.cell(k, j).n
	}
	return sum
}

// after is the sum of the cells that start after cut, newest first.
func (r *ring) after(cut int64) (sum int64) {
	for seq := r.end(); seq != r.head; {
		seq--
		c := r.at(seq)
		if c.start <= cut {
			break
		}
		sum += c.n
	}
	return sum
}

// emptyAt is the instant from which all buckets of e are expired.
func (e *entry) emptyAt() int64 {
	at := int64(never)
	for i := range e.prof.tiers {
		n, k := e.tier(i)
		if c := n.newest[k]; c.n > 0 {
			t := e.prof.tiers[i]
			at = max(at, after(after(c.start, t.width), t.ttl))
		}
	}
	return at
}

// after is start+d, for d of zero or more; it stops at forever.
func after(start, d int64) int64 {
	if s := start + d; s >= start {
		return s
	}
	return forever
}

// lastHit is the start of the newest bucket of e: hits are told apart by it.
func (e *entry) lastHit() int64 {
	at := int64(never)
	for i := range e.prof.tiers {
		if n, k := e.tier(i); n.newest[k].n > 0 {
			at = max(at, n.newest[k].start)
		}
	}
	return at
}

func (e *entry) empty() bool { return e.lastHit() == never }
