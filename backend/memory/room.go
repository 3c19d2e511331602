package memory

import "slices"

// need is the memory that a step lacks. The call unlocks its shards, makes room, and
// begins again: an entry removed for the call may be in any shard, and locks are
// taken in order only.
type need struct {
	n     int64 // buckets
	own   int64 // what the call's keys that grow cost now
	fresh bool  // a key is not known to the store: see Config.Reserve
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

// pay takes or gives back n buckets, which were not reserved.
func (s *Store) pay(n int64) {
	if n != 0 {
		s.spent.Add(n)
	}
}

// retry does step under the locks of held, as often as the step lacks memory and room
// can be made for it.
func (s *Store) retry(held shardSet, keys []access, now int64, step func() (need, error)) error {
	for {
		s.lock(held)
		need, err := step()
		s.unlock(held)
		if err != nil || need.n == 0 {
			return err
		}
		if err := s.makeRoom(need, now, keys); err != nil {
			return err
		}
	}
}

// makeRoom removes entries until a need can be met: those that are empty at now, and
// by the policy the oldest. The keys of the call stay. The caller holds no lock.
func (s *Store) makeRoom(need need, now int64, keys []access) error {
	bound := s.bound(need.fresh)
	full := need.own+need.n > bound // nothing helps, and no entry is removed in vain
	for !full && s.spent.Load()+need.n > bound {
		full = !s.removeFirst(byEmpty, now, keys) && (s.policy != EvictOldest || !s.removeFirst(byHit, forever-1, keys))
	}
	if full {
		s.refused.Add(1)
		return ErrFull
	}
	return nil
}

// removeFirst removes the entry of all shards that comes first in an order, if its
// rank is limit or less. The keys of the call stay.
func (s *Store) removeFirst(order int, limit int64, keys []access) bool {
	atLeast := map[int]int64{} // bounds of shards without the keys that stay, as far as known
	for {
		least, second, which := int64(forever), limit, -1
		for i := range s.bounds[order] {
			bound := s.bounds[order][i].Load()
			if bound < least && len(atLeast) > 0 {
				if at, known := atLeast[i]; known {
					bound = max(bound, at)
				}
			}
			if bound < least {
				least, second, which = bound, min(least, limit), i
			} else {
				second = min(second, bound)
			}
		}
		if least > limit {
			return false
		}
		sh := &s.shards[which]
		sh.mu.Lock()
		// Only fresh keys and undone hits lower the bounds of other shards: the first
		// entry here, if not after the second bound, is the first of all.
		e, next := s.first(sh, order, second, keys)
		switch {
		case e == nil:
			if next > s.bounds[order][which].Load() {
				atLeast[which] = next
			}
		case order == byEmpty:
			sh.reclaimed++
			e.dropped = max(e.dropped, e.rank(byEmpty))
			s.remove(sh, e)
		default: // these counts have expired for no label
			sh.evicted++
			s.remove(sh, e)
		}
		sh.mu.Unlock()
		if e != nil {
			return true
		}
	}
}

// first returns the first entry of the shard in an order, without the keys that stay,
// if its rank is limit or less; otherwise found is nil, and next a lower bound of
// the ranks of the entries. Items at the top get their exact rank. The caller holds
// the lock of the shard.
func (s *Store) first(sh *shard, order int, limit int64, keys []access) (found *entry, next int64) {
	h := &sh.heaps[order]
	var aside []item
	for h.bound() <= limit && len(h.items) > 0 {
		top := h.items[0]
		if at := top.e.rank(order); at != top.at {
			h.put(0, item{at, top.e})
			continue
		}
		hash := s.hash(top.e)
		if !slices.ContainsFunc(keys, func(a access) bool { return a.hash == hash }) {
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

// insert makes an entry in the shard, without buckets yet. The entry inherits the
// shard's expiry of dropped buckets: the key may have had an entry before.
func (s *Store) insert(sh *shard, hash uint64, key []byte, l *layout) *entry {
	e, _ := s.spares.Get().(*entry)
	if e == nil {
		e = new(entry)
	}
	e.reset(key, l)
	e.dropped = sh.dropped
	sh.table.insert(hash, e)
	return e
}

// settle puts an entry where it belongs in the heaps, after a change that may have made
// its newest buckets older, or a fresh entry. It removes an entry without buckets.
func (s *Store) settle(sh *shard, e *entry) (removed bool) {
	if e.rank(byHit) == never {
		s.remove(sh, e)
		return true
	}
	for order := range s.orders() {
		h := &sh.heaps[order]
		i, at := int(e.pos[order]), e.rank(order)
		if fresh := i >= len(h.items) || h.items[i].e != e; fresh {
			h.push(at, e)
		} else if at < h.items[i].at {
			h.put(i, item{at, e})
		}
		s.publish(sh, order)
	}
	return false
}

// remove removes e and gives its memory back.
func (s *Store) remove(sh *shard, e *entry) {
	if !e.isMarker() {
		sh.dropped = max(sh.dropped, e.dropped)
	}
	sh.table.remove(s.hash(e), e)
	for order := range s.orders() {
		sh.heaps[order].remove(int(e.pos[order]))
		s.publish(sh, order)
	}
	s.spent.Add(-e.cost())
	*e = entry{}
	s.spares.Put(e)
}
