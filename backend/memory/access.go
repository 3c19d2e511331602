package memory

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// access is a key of a call, under the lock of the key's shard.
type access struct {
	shard  *shard
	hash   uint64
	e      *entry  // nil if the store does not know the key
	layout *layout // of the entry after an addition: see need
}

// addition is a bucket that a call adds to.
type addition struct {
	tier  int // position among the tiers that the call wants
	start int64
}

// expire drops the expired buckets of the tiers of an addition: rings do not grow
// for expired buckets, and longer TTLs do not bring expired buckets back.
func (a *access) expire(wanted []tier, now int64, b *budget) {
	if a.e == nil {
		return
	}
	for i := range wanted {
		if g, k, t := a.e.find(wanted[i].width); g != nil {
			b.left += a.e.expire(g, k, t, now)
		}
	}
}

// need is the cost of adding n to each of the buckets, in buckets of the store's
// bound. a.layout is the layout of the wanted tiers, nil will do if the key is
// known, and becomes the layout of the entry after the addition. A tier that would
// count beyond MaxCount is an error.
func (s *Store) need(a *access, key []byte, wanted []tier, adds []addition, n int64) (cost int64, err error) {
	if a.e == nil {
		cost = freshCost(len(key), a.layout)
	} else if a.layout != a.e.layout {
		a.layout = s.layouts.union(a.e.layout, wanted)
		cost = a.layout.chainCost() - a.e.layout.chainCost()
	}
	for first := 0; first < len(a.layout.tiers); first += perGroup {
		var none group // in place of a group that is not there yet
		g := &none
		if a.e != nil && first < len(a.e.layout.tiers) {
			g, _ = a.e.tier(first)
		}
		var missing, all [perGroup]int
		for _, add := range adds {
			t := &wanted[add.tier]
			k := find(a.layout.tiers, t.width) - first
			if k < 0 || k >= perGroup {
				continue
			}
			if all[k]++; n > (backend.MaxCount-g.sum(k))/int64(all[k]) {
				return 0, fmt.Errorf("memory: the key's buckets of %s hold %d, %d more is beyond %d: %w",
					time.Duration(t.width), g.sum(k), n, int64(backend.MaxCount), backend.ErrMaxCount)
			}
			if g.get(k, add.start) == 0 {
				missing[k]++
			}
		}
		cost += g.growth(&missing)
	}
	return cost, nil
}

// add adds n to each of the buckets, at the cost told by need and covered by b. If
// a bucket is older than the expired buckets, the caller settles the entry.
func (s *Store) add(a *access, key []byte, wanted []tier, adds []addition, n int64, b *budget) {
	fresh := a.e == nil
	if fresh {
		a.e = s.insert(a.shard, a.hash, key, a.layout, b)
	} else if a.layout != a.e.layout {
		b.left -= a.e.extend(a.layout)
	}
	for _, add := range adds {
		g, k, _ := a.e.find(wanted[add.tier].width)
		b.left -= g.put(k, add.start, n)
	}
	a.e.look()
	if fresh {
		s.enter(a.shard, a.e)
	}
}

// A call may stand still between its clock and the lock (a frozen process), and
// come to a key after callers with later labels: buckets that the old label still
// needs have expired by the later labels, and are dropped. Dropped buckets must
// not be taken for empty. So the store remembers the expiry of the last dropped
// bucket, for each entry, and in each shard for the removed entries. The shard's
// instant stands for unknown keys, and passes to a new entry. A known key goes by
// its own dropped buckets: a caller whose clock is ahead makes only the callers of
// the same keys read their clocks again.
//
// An expiry instead of a start, so that a single number does for tiers of any TTL:
// of two buckets dropped at the same instant, both had expired by then. The number
// errs, where tiers differ, on the side of another reading of the clock. Evicted
// counts leave no expiry: evicted counts may have expired for no label.

var errStale = fmt.Errorf("memory: %w", backend.ErrStaleLabel)

// horizon is the end of what a store remembers of a key.
type horizon struct {
	expiry int64 // latest expiry of a dropped bucket; never if none was dropped
	mixed  bool  // the dropped buckets had any TTL
}

func (a *access) horizon() horizon {
	if a.e == nil {
		return horizon{expiry: a.shard.dropped}
	}
	return horizon{a.e.dropped, a.e.flags&mixedTTL != 0}
}

// behind reports whether a label may need what was dropped.
func (h horizon) behind(now int64) bool { return h.expiry > plus(now, grace) }

// hides reports whether the bucket of t with that start may have been dropped.
func (h horizon) hides(t *tier, start int64) bool {
	if h.mixed {
		return plus(start, t.width) <= h.expiry
	}
	return t.expiry(start) <= h.expiry
}

// has reports whether the key has the bucket with that width and start.
func (a *access) has(width, start int64) bool {
	if a.e == nil {
		return false
	}
	g, k, _ := a.e.find(width)
	return g != nil && g.get(k, start) > 0
}
