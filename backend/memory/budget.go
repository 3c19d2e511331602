package memory

import "slices"

// budget is the part of the store's bound that a call has reserved and not yet
// spent. A call whose budget is too small unlocks the shards, obtains more, and
// begins again: an entry removed for the call may be in any shard, and locks are
// taken in order only.
type budget struct {
	left  int64
	fresh bool   // for a key that the store does not know: see Config.Reserve
	spare *entry // memory of a removed entry, for a fresh key
}

// bound is the part of max that a call may fill.
func (s *Store) bound(fresh bool) int64 {
	if fresh {
		return s.max - s.kept
	}
	return s.max
}

// reserve takes n buckets, if they fit into bound.
func (s *Store) reserve(n, bound int64) bool {
	for {
		spent := s.spent.Load()
		if spent+n > bound {
			return false
		}
		if s.spent.CompareAndSwap(spent, spent+n) {
			return true
		}
	}
}

// raise raises b to n buckets, if that removes no entry.
func (s *Store) raise(b *budget, n int64) bool {
	if b.left >= n {
		return true
	}
	if !s.reserve(n-b.left, s.bound(b.fresh)) {
		return false
	}
	b.left = n
	return true
}

// release gives back what was not spent.
func (s *Store) release(b *budget) {
	if b.left != 0 {
		s.spent.Add(-b.left)
		b.left = 0
	}
}

// obtain raises b to n buckets, and removes entries for the purpose: the empty at
// now, and by the policy the oldest. Keys whose hashes are in keep stay: the
// call's own keys, which cost own buckets now. The caller holds no lock.
func (s *Store) obtain(b *budget, n, own, now int64, keep []uint64) error {
	if own+n <= s.bound(b.fresh) { // else nothing helps, and no entry is removed in vain
		for {
			if s.raise(b, n) {
				return nil
			}
			if !s.reclaim(b, now, keep) && (s.policy != EvictOldest || !s.evict(b, keep)) {
				break
			}
		}
	}
	s.refused.Add(1)
	return ErrFull
}

// reclaim removes an entry without buckets at now, and gives its memory to b.
func (s *Store) reclaim(b *budget, now int64, keep []uint64) bool {
	first := int(keep[0] >> s.shift)
	for i := range s.shards {
		i = (first + i) & (len(s.shards) - 1)
		if s.bounds[byEmpty][i].Load() > now {
			continue
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		e, _ := s.first(sh, byEmpty, now, keep)
		if e != nil {
			sh.lose(e, e.emptyAt())
			s.remove(sh, e, b)
			sh.reclaimed++
		}
		sh.mu.Unlock()
		if e != nil {
			return true
		}
	}
	return false
}

// evict removes the entry whose last hit is the oldest, and gives its memory to
// b. Its counts have not expired, so the shard notes no expiry.
func (s *Store) evict(b *budget, keep []uint64) bool {
	atLeast := map[int]int64{} // bounds of shards without the keys to be kept, as far as known
	for {
		least, second, which := int64(forever), int64(forever), -1
		for i := range s.shards {
			bound := s.bounds[byHit][i].Load()
			if at, known := atLeast[i]; known {
				bound = max(bound, at)
			}
			if bound < least {
				least, second, which = bound, least, i
			} else if bound < second {
				second = bound
			}
		}
		if which < 0 {
			return false
		}
		sh := &s.shards[which]
		sh.mu.Lock()
		// Only fresh keys and takings back lower the bounds of other shards: the
		// first entry here, if not after the second bound, is the first of all.
		e, next := s.first(sh, byHit, second, keep)
		if e != nil {
			sh.lose(e, never)
			s.remove(sh, e, b)
			sh.evicted++
		}
		sh.mu.Unlock()
		if e != nil {
			return true
		}
		if next > s.bounds[byHit][which].Load() {
			atLeast[which] = next
		}
	}
}

// first is the first entry of the shard in an order, keys in keep left out, if
// its rank is limit or less; otherwise found is nil, and next a lower bound of
// the ranks of all entries not in keep. Items at the top get their exact rank.
// The caller holds the shard's lock.
func (s *Store) first(sh *shard, order int, limit int64, keep []uint64) (found *entry, next int64) {
	h := &sh.heaps[order]
	var aside []item
	for h.bound() <= limit && len(h.items) > 0 {
		top := h.items[0]
		if at := top.e.rank(order); at != top.at {
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
	s.publish(sh, order)
	return found, next
}

// publish tells the bound of a shard to calls without the lock of the shard.
func (s *Store) publish(sh *shard, order int) {
	if first, b := &s.bounds[order][sh.index], sh.heaps[order].bound(); first.Load() != b {
		first.Store(b)
	}
}

// orders is the number of heaps that s keeps in each shard.
func (s *Store) orders() int {
	if s.policy == EvictOldest {
		return orders
	}
	return byEmpty + 1
}

// insert makes an entry in the shard, paid from b. The entry inherits the shard's
// expiry of dropped buckets: the key may have had an entry before.
func (s *Store) insert(sh *shard, hash uint64, key []byte, p *layout, b *budget) *entry {
	e := b.spare
	b.spare = nil
	if e == nil {
		e = new(entry)
	}
	e.reset(key, p)
	e.dropped = sh.dropped
	b.left -= freshCost(len(key), p)
	sh.table.insert(hash, e)
	return e
}

// enter puts a fresh entry with buckets into the heaps.
func (s *Store) enter(sh *shard, e *entry) {
	for order := range s.orders() {
		sh.heaps[order].push(e.rank(order), e)
		s.publish(sh, order)
	}
}

// settle sets the flags and the positions in the heaps of an entry that may have
// lost buckets, and removes an entry without any.
func (s *Store) settle(sh *shard, e *entry, b *budget) (removed bool) {
	if e.lastHit() == never {
		sh.lose(e, never)
		s.remove(sh, e, b)
		return true
	}
	e.look()
	for order := range s.orders() {
		h := &sh.heaps[order]
		if i, at := int(e.pos[order]), e.rank(order); at < h.items[i].at {
			h.fix(i, at)
			s.publish(sh, order)
		}
	}
	return false
}

// remove removes e and gives its memory to b.
func (s *Store) remove(sh *shard, e *entry, b *budget) {
	sh.table.remove(s.hash(e), e)
	for order := range s.orders() {
		sh.heaps[order].remove(int(e.pos[order]))
		s.publish(sh, order)
	}
	b.left += e.cost()
	*e = entry{}
	b.spare = e
}

// lose notes the expiry of the last bucket of an entry that is removed: never if
// the buckets had not expired. Earlier expiries of the entry count as well.
func (sh *shard) lose(e *entry, expiry int64) {
	if !e.isMarker() {
		sh.dropped = max(sh.dropped, e.dropped, expiry)
	}
}
