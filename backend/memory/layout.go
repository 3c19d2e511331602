package memory

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// tier is the width of stored buckets and their life: a bucket expires ttl after
// its end. The life begins at the end, because a TTL begins at an instant in the
// bucket; so no bucket expires early, and a window that reaches back no further
// than ttl holds no expired bucket.
type tier struct{ width, ttl int64 }

// expired returns the latest start of a bucket that has expired by now.
func (t tier) expired(now int64) (cut int64) { return cutoff(now, t.ttl, t.width) }

// expiry returns the instant at which the bucket from start on expires.
func (t tier) expiry(start int64) int64 { return plus(plus(start, t.width), t.ttl) }

// edge returns the instant from which on buckets of t start in a window that reaches
// back from now and is read in buckets of the given width: the buckets of t, or sums
// of them. A window reaches back no further than the life of its oldest bucket.
func (t tier) edge(now, reach, width int64) int64 {
	cut := cutoff(now, max(0, min(reach, t.ttl-(width-t.width))), width)
	if width == t.width || cut == never {
		return cut + 1
	}
	return (cover.Index(cut, width) + 1) * width
}

// grace is the time that buckets live beyond their TTL. A label late by less than
// grace needs no bucket that was dropped for a later label: goroutines waiting
// for a processor are late by as much, and need not be labelled again.
const grace = int64(10 * time.Millisecond)

// layout is the list of the tiers that an entry stores, finest first. A layout is
// immutable, and shared by the entries with the same tiers.
type layout struct {
	n   int
	all [tiers.MaxTiers]tier
}

func (l *layout) tiers() []tier { return l.all[:l.n] }

// plan is a ladder with the TTLs of its buckets, as a store keeps them: of tiers with
// equal Keep the finest, whose buckets make up the others, and each tier that is wider
// than a sixteenth of its Keep: the parts of such a bucket would live far longer than
// needed.
type plan struct {
	ladder tiers.Ladder
	ttls   []time.Duration
	of     []int // of[i] is the number of the stored tier with the buckets of tier i
	layout *layout
	none   entry // stands for the entry of a key that a store does not know, and is only read
}

// tier returns the number of the tier of the ladder with the given width, or -1.
func tierOf(l tiers.Ladder, width time.Duration) int {
	for i := range l.Len() {
		if l.At(i).Width == width {
			return i
		}
	}
	return -1
}

// maxPlans and maxLayouts bound what a store remembers for sharing. A program has
// a plan for each ladder; with more, or with hits of ever other ages, plans are made
// again, and equal layouts are there twice.
const maxPlans, maxLayouts = 32, 256

// layouts remembers the plans and the layouts in use.
type layouts struct {
	plans atomic.Pointer[[]*plan] // replaced as a whole, the latest first
	mu    sync.Mutex
	all   map[layout]*layout
}

// plan returns the plan for a ladder whose tiers live for ttls.
func (ls *layouts) plan(l tiers.Ladder, ttls []time.Duration) *plan {
	var list []*plan
	if all := ls.plans.Load(); all != nil {
		list = *all
	}
	for _, p := range list {
		if slices.Equal(p.ttls, ttls) && p.ladder.Equal(l) {
			return p
		}
	}
	p := &plan{ladder: l, ttls: slices.Clone(ttls)}
	var stored layout
	for i, ttl := range ttls {
		t, base, at := l.At(i), l.Base(i), stored.n
		if base != i && t.Width <= t.Keep/16 {
			at = p.of[base]
		} else {
			stored.all[at].width = int64(t.Width)
			stored.n++
		}
		p.of = append(p.of, at)
		// The first part of a sum must not be gone before the whole has expired.
		s := &stored.all[at]
		s.ttl = max(s.ttl, plus(plus(int64(ttl), grace), int64(t.Width)-s.width))
	}
	p.layout = ls.share(stored)
	p.none.reset(nil, p.layout)
	longer := append([]*plan{p}, list[:min(len(list), maxPlans-1)]...)
	ls.plans.Store(&longer) // a plan that another call stored meanwhile is made again
	return p
}

// edge returns the stored tier that w counts in, and the first instant of its buckets
// in an entry with the layout l.
func (p *plan) edge(w *backend.Window, l *layout, now int64) (k int, from int64) {
	k = p.of[w.Finest]
	return k, l.all[k].edge(now, int64(w.Reach), int64(p.ladder.At(w.Finest).Width))
}

// share returns the layout with the tiers of l.
func (ls *layouts) share(l layout) *layout {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if p := ls.all[l]; p != nil {
		return p
	}
	if len(ls.all)%maxLayouts == 0 { // the entries keep theirs
		ls.all = map[layout]*layout{}
	}
	made := l
	ls.all[l] = &made
	return &made
}

// longer returns the layout whose tiers live as long as those of l and of m, which
// have the same widths.
func (ls *layouts) longer(l, m *layout) *layout {
	longest := *l
	for k := range longest.all {
		longest.all[k].ttl = max(l.all[k].ttl, m.all[k].ttl)
	}
	switch longest {
	case *m:
		return m
	case *l:
		return l
	}
	return ls.share(longest)
}
