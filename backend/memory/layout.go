package memory

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// tier is the width of stored buckets and their life: a bucket expires ttl after
// its end. The life begins at the end, because a TTL begins at an instant in the
// bucket; so no bucket expires early, and a window that reaches back no further
// than ttl holds no expired bucket.
type tier struct{ width, ttl int64 }

// expired is the latest start of a bucket that has expired by now.
func (t tier) expired(now int64) (cut int64) { return cutoff(now, t.ttl, t.width) }

// expiry is the instant of expiry of the bucket from start on.
func (t tier) expiry(start int64) int64 { return plus(plus(start, t.width), t.ttl) }

// grace is the time that buckets live beyond their TTL. A label late by less than
// grace needs no bucket that was dropped for a later label: goroutines waiting
// for a processor are late by as much, and need not be labelled anew.
const grace = int64(10 * time.Millisecond)

// sumTTL is the TTL of buckets of width fine that make up a bucket of width and
// ttl: the first must not be gone before the whole has expired.
func sumTTL(ttl, width, fine int64) int64 { return plus(ttl, width-fine) }

// base is the tier of l that stores the buckets of tier i: [tiers.Ladder.Base]. A
// tier wider than a sixteenth of its Keep is its own base: otherwise the parts of
// a bucket would live far longer than needed.
func base(l tiers.Ladder, i int) int {
	if t := l.At(i); t.Width > t.Keep/16 {
		return i
	}
	return l.Base(i)
}

// baseWidth is the width of the stored buckets that make up a bucket of a width:
// the same width, if l has no other.
func baseWidth(l tiers.Ladder, width time.Duration) int64 {
	for i := range l.Len() {
		if l.At(i).Width == width {
			return int64(l.At(base(l, i)).Width)
		}
	}
	return int64(width)
}

// leastTTL is a tier of the given width, with the shortest TTL for a bucket of an
// addition on l.
func leastTTL(l tiers.Ladder, width int64) tier {
	t := tier{width: width}
	for i := range l.Len() {
		if of := l.At(i); int64(l.At(base(l, i)).Width) == width {
			t.ttl = max(t.ttl, sumTTL(plus(int64(of.Width+of.Keep), grace), int64(of.Width), width))
		}
	}
	return t
}

// layout is the list of the tiers that an entry stores. A layout is immutable,
// and shared by all entries with the same tiers.
type layout struct{ tiers []tier }

// find is the position of the tier of that width, or -1.
func find(tiers []tier, width int64) int {
	for i := range tiers {
		if tiers[i].width == width {
			return i
		}
	}
	return -1
}

// plan assigns each tier of a ladder to the storing tier of a layout.
type plan struct {
	layout *layout
	of     []planned // the tiers of the ladder
}

// planned is a tier of a ladder; at is the storing tier of the layout.
type planned struct {
	width, keep, ttl int64
	at               int
}

// maxLayouts bounds the layouts and the plans that a store remembers for sharing.
// A program has a layout for each ladder; a program with more ladders, or with
// ever new widths in Do, has equal layouts twice, at the cost of memory only.
const maxLayouts = 32

// layouts remembers the layouts and plans in use. An entry keeps its own layout
// alive, so a layout may be dropped from the list at any time.
type layouts struct {
	list     atomic.Pointer[[]*layout] // replaced as a whole
	plans    atomic.Pointer[[]*plan]   // the same
	mu       sync.Mutex                // held by a call that replaces a list
	next     int                       // position in a full list that is replaced next
	nextPlan int
}

// get is the layout with exactly the given tiers, in the given order.
func (ls *layouts) get(wanted []tier) *layout {
	if p := ls.find(wanted); p != nil {
		return p
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if p := ls.find(wanted); p != nil {
		return p
	}
	p := &layout{slices.Clone(wanted)}
	remember(&ls.list, &ls.next, p)
	return p
}

func (ls *layouts) find(wanted []tier) *layout {
	if list := ls.list.Load(); list != nil {
		for _, p := range *list {
			if slices.Equal(p.tiers, wanted) {
				return p
			}
		}
	}
	return nil
}

// union is p with the wanted tiers: the tiers of p keep their positions, and a
// width of both has the longer TTL. The result is p if p has all for as long.
func (ls *layouts) union(p *layout, wanted []tier) *layout {
	var buf [16]tier
	all := append(buf[:0], p.tiers...)
	for _, t := range wanted {
		if i := find(all, t.width); i >= 0 {
			all[i].ttl = max(all[i].ttl, t.ttl)
		} else {
			all = append(all, t)
		}
	}
	if slices.Equal(all, p.tiers) {
		return p
	}
	return ls.get(all)
}

// known is the plan for a ladder whose tiers live for ttls; nil if the plan is
// not remembered.
func (ls *layouts) known(l tiers.Ladder, ttls []time.Duration) *plan {
	list := ls.plans.Load()
	if list == nil || l.Len() != len(ttls) {
		return nil
	}
next:
	for _, p := range *list {
		if len(p.of) != len(ttls) {
			continue
		}
		for i := range p.of {
			have, t := &p.of[i], l.At(i)
			if have.width != int64(t.Width) || have.keep != int64(t.Keep) || have.ttl != int64(ttls[i]) {
				continue next
			}
		}
		return p
	}
	return nil
}

// plan makes the plan for a ladder whose tiers live for ttls, where no plan is
// known.
func (ls *layouts) plan(l tiers.Ladder, ttls []time.Duration) *plan {
	var stored []tier
	p := &plan{of: make([]planned, len(ttls))}
	for i := range ttls {
		t, b := l.At(i), base(l, i)
		p.of[i] = planned{int64(t.Width), int64(t.Keep), int64(ttls[i]), len(stored)}
		if b == i {
			stored = append(stored, tier{width: int64(t.Width)})
		} else {
			p.of[i].at = p.of[b].at
		}
		w := &stored[p.of[i].at]
		w.ttl = max(w.ttl, sumTTL(plus(int64(ttls[i]), grace), int64(t.Width), w.width))
	}
	p.layout = ls.get(stored)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if there := ls.known(l, ttls); there != nil {
		return there
	}
	remember(&ls.plans, &ls.nextPlan, p)
	return p
}

// remember puts v into a list of at most maxLayouts, in the position of next if
// the list is full.
func remember[T any](list *atomic.Pointer[[]T], next *int, v T) {
	var all []T
	if old := list.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if len(all) < maxLayouts {
		all = append(all, v)
	} else {
		all[*next] = v
		*next = (*next + 1) % maxLayouts
	}
	list.Store(&all)
}
