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
			if s.hash(e) != slot.hash || s.shard(slot.hash) != sh || sh.table.find(slot.hash, e.key()) != e {
				return fmt.Errorf("key %q cannot be found", e.key())
			}
			spent += e.cost()
			if err := soundEntry(e); err != nil {
				return fmt.Errorf("key %q: %w", e.key(), err)
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
	if e.rank(byHit) == never {
		return fmt.Errorf("has no buckets and is still there")
	}
	if len(e.others) != e.layout.n-1 {
		return fmt.Errorf("%d further rings for %d tiers", len(e.others), e.layout.n)
	}
	for k, t := range e.layout.tiers() {
		if err := soundRing(e.ring(k), t.width); err != nil {
			return fmt.Errorf("tier %d: %w", k, err)
		}
	}
	return nil
}

func soundRing(r *ring, width int64) error {
	if r.size() == 0 {
		if *r != (ring{}) {
			return fmt.Errorf("an empty ring is %+v", *r)
		}
		return nil
	}
	if o := r.older; o != nil {
		n, c := int(o.n), len(o.buckets)
		if bits.OnesCount(uint(c)) != 1 || c < minRing || n > c || n == 0 || c > minRing && 4*n < c {
			return fmt.Errorf("a buffer of %d for %d buckets", c, n)
		}
	}
	if first, _ := r.at(0); r.first != first || r.last.sum > backend.MaxCount {
		return fmt.Errorf("%d from %d, want at most %d from %d", r.last.sum, r.first, int64(backend.MaxCount), first)
	}
	before := int64(never)
	for i := range r.size() {
		start, sum := r.at(i)
		if start <= before || start != floor(start, width) || sum <= r.upTo(i) {
			return fmt.Errorf("bucket %d: %d to %d from %d, after %d from %d", i, r.upTo(i), sum, start, r.upTo(i), before)
		}
		before = start
	}
	return nil
}
