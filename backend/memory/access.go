package memory

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// access is a key of a call, without the name: a pointer to an entry next to the name
// would move the name to the heap. The entry is known under the lock of the shard.
type access struct {
	shard  *shard
	hash   uint64
	plan   *plan
	layout *layout // of the entry after an addition: see want
	fresh  bool    // the store does not know the key
	newest bool    // the addition is to the newest buckets of the entry, or after them
	e      *entry  // plan.none of a fresh key
}

// addition is a stored bucket that a call adds to.
type addition struct {
	tier  int
	start int64
}

func (s *Store) access(key []byte, p *plan) access {
	hash := maphash.Bytes(s.seed, key)
	return access{shard: s.shard(hash), hash: hash, plan: p}
}

// find looks for the entry of the key. A key has one ladder for good.
func (a *access) find(key []byte) error {
	a.e, a.newest = a.shard.table.find(a.hash, key), false
	if a.fresh = a.e == nil; a.fresh {
		a.e = &a.plan.none
	}
	if a.e.layout == a.plan.layout {
		return nil
	}
	for k := range a.e.layout.all {
		if have, want := a.e.layout.all[k].width, a.plan.layout.all[k].width; have != want {
			return fmt.Errorf("memory: the key has buckets of %s, where the ladder of the call has %s: want the same ladder in every call for a key",
				time.Duration(have), time.Duration(want))
		}
	}
	return nil
}

// cost returns the memory that the key takes now: 0 for a fresh key.
func (a *access) cost() int64 {
	if a.fresh {
		return 0
	}
	return a.e.cost()
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

// dropped returns the latest expiry of a dropped bucket of the key.
func (a *access) dropped() int64 {
	if a.fresh {
		return a.shard.dropped
	}
	return a.e.dropped
}

// behind reports whether the label may need what was dropped.
func (a *access) behind(now int64) bool { return a.dropped() > plus(now, grace) }

// hides reports whether the bucket of stored tier k that starts at start may have been
// dropped.
func (a *access) hides(k int, start int64) bool {
	t := a.e.layout.all[k]
	if a.e.mixed {
		t.ttl = 0
	}
	return t.expiry(start) <= a.dropped()
}

// has reports whether the key has the bucket of stored tier k that starts at start.
func (a *access) has(k int, start int64) bool { return a.e.ring(k).within(start, start+1) > 0 }

// want returns the memory that an addition of n to each of the buckets takes at most. A
// tier that would count beyond MaxCount is an error. Nothing is changed.
func (s *Store) want(a *access, key []byte, adds []addition, n, now int64) (cost int64, err error) {
	var missing [tiers.MaxTiers]int
	var planned [tiers.MaxTiers]int64
	a.layout = a.plan.layout
	if a.fresh {
		cost = freshCost(len(key), a.layout)
	} else if a.e.layout != a.layout {
		a.layout = s.layouts.longer(a.e.layout, a.layout)
	}
	for _, add := range adds {
		k, r, t := add.tier, a.e.ring(add.tier), a.e.layout.all[add.tier]
		sum := r.last.sum
		if n > backend.MaxCount-sum-planned[k] {
			sum = r.since(plus(t.expired(now), 1)) // what has expired fills nothing
		}
		if n > backend.MaxCount-sum-planned[k] {
			return 0, fmt.Errorf("memory: the key's buckets of %s hold %d, %d more is beyond %d: %w",
				time.Duration(t.width), sum, n, int64(backend.MaxCount), backend.ErrMaxCount)
		}
		planned[k] += n
		if (r.last.start != add.start || r.last.sum == 0) && !a.has(k, add.start) {
			missing[k]++
		}
	}
	for k := range a.layout.n {
		if missing[k] > 0 {
			cost += a.e.ring(k).growth(missing[k], a.e.layout.all[k].expired(now))
		}
	}
	return cost, nil
}

// add adds n to each of the buckets, and returns the memory taken: not more than want
// said.
func (s *Store) add(a *access, key []byte, adds []addition, n, now int64) (spent int64) {
	was := a.cost()
	if a.fresh {
		a.e, a.fresh = s.insert(a.shard, a.hash, key, a.layout), false
	}
	a.e.prolong(a.layout, now)
	for _, add := range adds {
		a.e.put(add.tier, add.start, n, now)
	}
	s.settle(a.shard, a.e)
	return a.e.cost() - was
}
