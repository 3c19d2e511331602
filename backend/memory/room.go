package memory

import "slices"

// room is what a call has reserved of the store's bound and not yet spent.
// A call that lacks room lets go of its locks, makes room, and begins again:
// the victim may be in any shard, and locks are taken in order only.
type room struct {
	left  int64
	spare *entry // memory of a victim, for a fresh key
}

// reserve takes n buckets of the bound, if they are there.
func (s *Store) reserve(n int64) bool {
	for {
		spent := s.spent.Load()
		if spent+n > s.max {
			return false
		}
		if s.spent.CompareAndSwap(spent, spent+n) {
			return true
		}
	}
}

// has makes sure that r has n buckets, if there is room without a victim.
func (s *Store) has(r *room, n int64) bool {
	if r.left >= n {
		return true
	}
	if !s.reserve(n - r.left) {
		return false
	}
	r.left = n
	return true
}

// done gives back what was not spent.
func (s *Store) done(r *room) {
	if r.left != 0 {
		s.spent.Add(-r.left)
		r.left = 0
	}
}

// make makes sure that r has n buckets, at the cost of others: those that are
// empty at now, or by the policy. Keys whose hashes are in keep are not
// touched: they are of the call itself, and cost own buckets as they are.
// The caller holds no lock.
func (s *Store) make(r *room, n, own, now int64, keep []uint64) error {
	if own+n <= s.max { // else nothing helps, and nobody is forgotten in vain
		for {
			if s.has(r, n) {
				return nil
			}
			if !s.reclaim(r, now, keep) && (s.policy != EvictOldest || !s.evict(r, keep)) {
				break
			}
		}
	}
	s.refused.Add(1)
	return ErrFull
}

// reclaim removes one entry that is empty at now, and gives its place to r.
func (s *Store) reclaim(r *room, now int64, keep []uint64) bool {
	first := 0
	if len(keep) > 0 {
		first = int(keep[0] >> s.shift)
	}
	for i := range s.shards {
		i = (first + i) & (len(s.shards) - 1)
		if s.firsts[byEmpty][i].Load() > now {
			continue
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		e, _ := s.first(sh, byEmpty, now, keep)
		if e != nil {
			sh.lost(e, e.emptyAt())
			s.remove(sh, e, r)
			sh.reclaimed++
		}
		sh.mu.Unlock()
		if e != nil {
			return true
		}
	}
	return false
}

// evict removes the entry whose last hit is the oldest.
func (s *Store) evict(r *room, keep []uint64) bool {
	type floor struct {
		shard int
		at    int64
	}
	var floors []floor // bounds of shards without what is to be kept, as far as known
	for {
		least, second, which := int64(forever), int64(forever), -1
		for i := range s.shards {
			b := s.firsts[byHit][i].Load()
			for _, f := range floors {
				if f.shard == i {
					b = max(b, f.at)
				}
			}
			if b < least {
				least, second, which = b, least, i
			} else if b < second {
				second = b
			}
		}
		if which < 0 {
			return false
		}
		sh := &s.shards[which]
		sh.mu.Lock()
		// Only fresh keys and takings back lower the bounds of others: what is
		// first here, and not after the second bound, is first of all.
		e, next := s.first(sh, byHit, second, keep)
		if e != nil {
			sh.lost(e, never)
			s.remove(sh, e, r)
			sh.evicted++
		}
		sh.mu.Unlock()
		if e != nil {
			return true
		}
		if next > s.firsts[byHit][which].Load() {
			floors = append(floors, floor{which, next})
		}
	}
}

// first is the first entry of the shard in that order that is not to be kept,
// if it comes at limit or before; otherwise it is nil, and next a lower bound
// of all that are not to be kept. What has moved since it came to the top is
// put to its place. The caller holds the shard's lock.
func (s *Store) first(sh *shard, which int, limit int64, keep []uint64) (found *entry, next int64) {
	h := &sh.heaps[which]
	var aside []item
	for h.bound() <= limit && len(h.items) > 0 {
		top := h.items[0]
		if at := top.e.order(which); at != top.at {
			h.fix(0, at)
			continue
		}
		if !slices.Contains(keep, s.hash(top.e)) {
			found = top.e
			break
		}
		aside = append(aside, top)
		h.remove(0)
	}
	next = h.bound()
	for _, it := range aside {
		h.push(it.at, it.e)
	}
	s.publish(sh, which)
	return found, next
}

// order is what e is ordered by in the heaps.
func (e *entry) order(which int) int64 {
	if which == byEmpty {
		return e.emptyAt()
	}
	return e.lastHit()
}

// publish tells the bound of a shard to those who do not hold its lock.
func (s *Store) publish(sh *shard, which int) {
	if first, b := &s.firsts[which][sh.index], sh.heaps[which].bound(); first.Load() != b {
		first.Store(b)
	}
}

// orders are the heaps that s keeps.
func (s *Store) orders() int {
	if s.policy == EvictOldest {
		return heaps
	}
	return byEmpty + 1
}

// insert makes an entry in the shard, paid from r.
func (s *Store) insert(sh *shard, hash uint64, key []byte, p *profile, r *room) *entry {
	e := r.spare
	r.spare = nil
	if e == nil {
		e = new(entry)
	}
	e.reset(key, p)
	e.dropped = sh.dropped
	r.left -= freshCost(len(key), p)
	sh.table.insert(hash, e)
	return e
}

// enter puts a fresh entry that has its buckets into the heaps.
func (s *Store) enter(sh *shard, e *entry) {
	for which := range s.orders() {
		sh.heaps[which].push(e.order(which), e)
		s.publish(sh, which)
	}
}

// lower puts e to its place after it has lost buckets, or removes it if it has
// lost all.
func (s *Store) lower(sh *shard, e *entry, r *room) (removed bool) {
	if e.empty() {
		sh.lost(e, never)
		s.remove(sh, e, r)
		return true
	}
	e.look()
	for which := range s.orders() {
		h := &sh.heaps[which]
		if i, at := int(e.pos[which]), e.order(which); at < h.items[i].at {
			h.fix(i, at)
			s.publish(sh, which)
		}
	}
	return false
}

// remove removes e and gives its place to r.
func (s *Store) remove(sh *shard, e *entry, r *room) {
	sh.table.remove(s.hash(e), e)
	for which := range s.orders() {
		sh.heaps[which].remove(int(e.pos[which]))
		s.publish(sh, which)
	}
	r.left += e.cost()
	*e = entry{}
	r.spare = e
}
