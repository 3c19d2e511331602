package memory

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
)

// requireSound recomputes everything that is derived in s, and compares. No
// call may be under way.
func requireSound(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, sound(s))
}

func sound(s *Store) error {
	spent := int64(0)
	for i := range s.shards {
		sh := &s.shards[i]
		keys := 0
		for _, slot := range sh.table.slots {
			e := slot.e
			if e == nil {
				continue
			}
			keys++
			if s.hash(e) != slot.hash || s.shard(slot.hash) != sh || sh.table.find(slot.hash, e.key(nil)) != e {
				return fmt.Errorf("key %q cannot be found", e.key(nil))
			}
			spent += e.cost()
			if err := soundEntry(e); err != nil {
				return fmt.Errorf("key %q: %w", e.key(nil), err)
			}
		}
		if keys != sh.table.keys || 4*keys > 3*len(sh.table.slots) {
			return fmt.Errorf("a table of %d slots has %d keys and counts %d", len(sh.table.slots), keys, sh.table.keys)
		}
		for which := range sh.heaps {
			if err := soundHeap(&sh.heaps[which], which < s.orders(), keys, s.firsts[which][i].Load()); err != nil {
				return err
			}
		}
	}
	if got := s.spent.Load(); got != spent || got > s.max {
		return fmt.Errorf("%d buckets are there, %d are counted, %d are allowed", spent, got, s.max)
	}
	return nil
}

func soundHeap(h *heap, kept bool, keys int, published int64) error {
	if !kept {
		keys = 0
	}
	if len(h.items) != keys || h.bound() != published {
		return fmt.Errorf("heap %d has %d items of %d, from %d on, and says %d", h.which, len(h.items), keys, h.bound(), published)
	}
	for j, it := range h.items {
		if it.e.pos[h.which] != uint32(j) || it.at > it.e.order(h.which) || j > 0 && h.items[(j-1)/4].at > it.at {
			return fmt.Errorf("heap %d item %d: %d, entry says %d and %d", h.which, j, it.at, it.e.pos[h.which], it.e.order(h.which))
		}
	}
	return nil
}

func soundEntry(e *entry) error {
	if e.empty() {
		return fmt.Errorf("has no buckets and is still there")
	}
	if e.past != nil {
		big := false
		for k := range e.past.rings {
			big = big || e.past.rings[k].sum > half
		}
		if big && e.odd&isBig == 0 {
			return fmt.Errorf("a ring holds more than half of what may be, odd %b", e.odd)
		}
	}
	if c := e.newest[0]; c.n > 0 && (e.dropped > after(c.start, e.prof.tiers[0].width)) != (e.odd&isAhead != 0) && !e.isMark() {
		return fmt.Errorf("dropped %d, newest %d of %d, odd %b", e.dropped, c.start, e.prof.tiers[0].width, e.odd)
	}
	tiers := len(e.prof.tiers)
	for n := e; n != nil; n = n.chained() {
		longest := 0
		for k := range perEntry {
			if n.newest[k].n < 0 || n.newest[k].n > 0 && k >= tiers {
				return fmt.Errorf("tier %d of %d has a cell", k, tiers)
			}
			if n.past == nil {
				continue
			}
			longest = max(longest, len(n.past.rings[k].cells))
			if err := soundRing(n, k); err != nil {
				return fmt.Errorf("tier %d: %w", k, err)
			}
		}
		switch {
		case n.past == nil && (n.older != 0 || n.oldest != forever):
			return fmt.Errorf("no past, but older %d and oldest %d", n.older, n.oldest)
		case n.past != nil && n.past.next == nil && longest == 0:
			return fmt.Errorf("a past without rings")
		case (longest >= longRing) != (n.past != nil && n.past.totals != nil):
			return fmt.Errorf("totals %v with a ring of %d", n.past != nil && n.past.totals != nil, longest)
		}
		if err := soundTotals(n); err != nil {
			return err
		}
		tiers -= perEntry
	}
	if tiers > 0 {
		return fmt.Errorf("%d tiers have no place", tiers)
	}
	return nil
}

func soundRing(n *entry, k int) error {
	r := &n.past.rings[k]
	c := len(r.cells)
	if c == 0 && r.len == 0 && (k > 0 || n.older == 0 && n.oldest == forever) {
		return nil
	}
	if bits.OnesCount(uint(c)) != 1 || c < minRing || int(r.len) > c || r.len == 0 || c > minRing && 4*int(r.len) < c {
		return fmt.Errorf("a buffer of %d for %d cells", c, r.len)
	}
	for seq := r.head; seq != r.end(); seq++ {
		next := n.newest[k]
		if seq+1 != r.end() {
			next = *r.at(seq + 1)
		}
		if r.at(seq).n <= 0 || next.n <= 0 || r.at(seq).start >= next.start {
			return fmt.Errorf("cell %v before %v", *r.at(seq), next)
		}
	}
	if r.first != r.at(r.head).start {
		return fmt.Errorf("first is %d, cell %v", r.first, *r.at(r.head))
	}
	if sum := sumFrom(r, r.head); r.sum != sum || n.newest[k].n > backend.MaxCount-sum || k == 0 && (n.older != sum || n.oldest != r.first) {
		return fmt.Errorf("older %d from %d, ring says %d, want %d from %d", n.older, n.oldest, r.sum, sum, r.first)
	}
	return nil
}

func sumFrom(r *ring, from uint32) (sum int64) {
	for seq := from; seq != r.end(); seq++ {
		sum += r.at(seq).n
	}
	return sum
}

func soundTotals(n *entry) error {
	blocks := 0
	if n.past == nil {
		return nil
	}
	for b := n.past.totals; b != nil; b = b.next {
		blocks++
		for i := range b.list {
			w := b.list[i]
			if w.tier == noTier {
				continue
			}
			r := &n.past.rings[w.tier]
			if w.at-r.head > r.len {
				return fmt.Errorf("window of %d is at %d of a ring from %d to %d", w.reach, w.at, r.head, r.end())
			}
			want := w
			want.sum = sumFrom(r, w.at)
			want.look(r)
			if w != want {
				return fmt.Errorf("running total %+v, want %+v", w, want)
			}
		}
	}
	if blocks > maxTotals {
		return fmt.Errorf("%d blocks of totals", blocks)
	}
	return nil
}
