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
		for order := range sh.heaps {
			if err := soundHeap(&sh.heaps[order], order < s.orders(), keys, s.bounds[order][i].Load()); err != nil {
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
		return fmt.Errorf("heap %d has %d items of %d, from %d on, and says %d", h.order, len(h.items), keys, h.bound(), published)
	}
	for j, it := range h.items {
		if it.e.pos[h.order] != uint32(j) || it.at > it.e.rank(h.order) || j > 0 && h.items[(j-1)/4].at > it.at {
			return fmt.Errorf("heap %d item %d: %d, entry says %d and %d", h.order, j, it.at, it.e.pos[h.order], it.e.rank(h.order))
		}
	}
	return nil
}

func soundEntry(e *entry) error {
	if e.lastHit() == never {
		return fmt.Errorf("has no buckets and is still there")
	}
	ahead := e.dropped > plus(e.newest[0].start, e.layout.tiers[0].width)
	if e.newest[0].n > 0 && ahead != (e.flags&droppedAhead != 0) && !e.isMarker() {
		return fmt.Errorf("dropped %d, newest %d of %d, flags %b", e.dropped, e.newest[0].start, e.layout.tiers[0].width, e.flags)
	}
	if e.isLarge() && e.flags&large == 0 {
		return fmt.Errorf("a ring holds more than half of what may be, flags %b", e.flags)
	}
	tiers := len(e.layout.tiers)
	for g := &e.group; g != nil; tiers -= perGroup {
		if err := soundGroup(g, tiers); err != nil {
			return err
		}
		if g.history == nil {
			break
		}
		g = g.history.next
	}
	if tiers > perGroup {
		return fmt.Errorf("%d tiers have no group", tiers-perGroup)
	}
	return nil
}

func soundGroup(g *group, tiers int) error {
	h := g.history
	for k := range perGroup {
		if n := g.newest[k].n; n < 0 || n > 0 && k >= tiers {
			return fmt.Errorf("tier %d of %d has a bucket", k, tiers)
		}
	}
	if h == nil {
		if g.sum0 != 0 || g.first0 != forever {
			return fmt.Errorf("no history, but sum %d from %d", g.sum0, g.first0)
		}
		return nil
	}
	longest := 0
	others := 0
	for k := range perGroup {
		longest = max(longest, len(h.ring(k).buckets))
		if k > 0 {
			others = max(others, len(h.ring(k).buckets))
		}
		if err := soundRing(h.ring(k), g.newest[k]); err != nil {
			return fmt.Errorf("tier %d: %w", k, err)
		}
	}
	switch {
	case g.sum0 != h.first.sum || g.first0 != h.first.first:
		return fmt.Errorf("sum %d from %d, ring says %d from %d", g.sum0, g.first0, h.first.sum, h.first.first)
	case (h.others == noRings) != (others == 0):
		return fmt.Errorf("rings of the other tiers with buffers of %d at most", others)
	case h.next == nil && longest == 0:
		return fmt.Errorf("a history without rings")
	case (longest >= longRing) != (h.totals != nil):
		return fmt.Errorf("totals %v with a ring of %d", h.totals != nil, longest)
	}
	return soundTotals(h)
}

func soundRing(r *ring, newest bucket) error {
	c := len(r.buckets)
	if c == 0 && r.len == 0 && r.sum == 0 && r.first == forever {
		return nil
	}
	if bits.OnesCount(uint(c)) != 1 || c < minRing || int(r.len) > c || r.len == 0 || c > minRing && 4*int(r.len) < c {
		return fmt.Errorf("a buffer of %d for %d buckets", c, r.len)
	}
	for seq := r.head; seq != r.end(); seq++ {
		next := newest
		if seq+1 != r.end() {
			next = *r.at(seq + 1)
		}
		if r.at(seq).n <= 0 || next.n <= 0 || r.at(seq).start >= next.start {
			return fmt.Errorf("bucket %v before %v", *r.at(seq), next)
		}
	}
	if sum := sumFrom(r, r.head); r.sum != sum || newest.n > backend.MaxCount-sum || r.first != r.at(r.head).start {
		return fmt.Errorf("sum %d from %d, want %d from %v; newest %v", r.sum, r.first, sum, *r.at(r.head), newest)
	}
	return nil
}

func sumFrom(r *ring, from uint32) (sum int64) {
	for seq := from; seq != r.end(); seq++ {
		sum += r.at(seq).n
	}
	return sum
}

func soundTotals(h *history) error {
	blocks := 0
	for b := h.totals; b != nil; b = b.next {
		blocks++
		for _, w := range b.list {
			if w.tier == noTier {
				continue
			}
			r := h.ring(int(w.tier))
			if r.len == 0 || w.at-r.head > r.len {
				return fmt.Errorf("total of %d is at %d of a ring from %d to %d", w.reach, w.at, r.head, r.end())
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
