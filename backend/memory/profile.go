package memory

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// tier is how the buckets of one width are kept: a bucket is expired ttl after
// its end. Counted from the end, because a TTL runs from an instant in the
// bucket; so none expires early, and a window that reaches back no further
// than ttl holds no expired one.
type tier struct{ width, ttl int64 }

func (t tier) expired(now int64) (cut int64) { return cutoff(now, t.ttl, t.width) }

// profile is the list of tiers of an entry. It is immutable, and shared by all
// entries with the same tiers.
type profile struct{ tiers []tier }

// find is where the tier of the given width stands in p, or -1.
func (p *profile) find(width int64) int {
	for i := range p.tiers {
		if p.tiers[i].width == width {
			return i
		}
	}
	return -1
}

// covers tells whether all that want needs is in p: its widths, for as long.
func (p *profile) covers(want []tier) bool {
	for _, t := range want {
		if i := p.find(t.width); i < 0 || p.tiers[i].ttl < t.ttl {
			return false
		}
	}
	return true
}

// maxProfiles bounds the profiles that are remembered for sharing. A program
// has one for each of its ladders; one that has more, or that names ever new
// widths in Do, has some of them twice, which costs memory only.
const maxProfiles = 32

// profiles remembers the profiles and shapes in use. An entry keeps its own
// profile alive, so forgetting one here is harmless.
type profiles struct {
	list      atomic.Pointer[[]*profile] // replaced as a whole
	shapes    atomic.Pointer[[]*shape]   // the same
	mu        sync.Mutex                 // of those who replace them
	next      int                        // which of a full list goes next
	nextShape int
}

// get is the profile with exactly these tiers, in this order.
func (ps *profiles) get(want []tier) *profile {
	if p := ps.find(want); p != nil {
		return p
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.find(want); p != nil {
		return p
	}
	p := &profile{slices.Clone(want)}
	remember(&ps.list, &ps.next, p)
	return p
}

func (ps *profiles) find(want []tier) *profile {
	if list := ps.list.Load(); list != nil {
		for _, p := range *list {
			if slices.Equal(p.tiers, want) {
				return p
			}
		}
	}
	return nil
}

// base is the tier of l that the buckets of tier i are summed up from: the finest
// that is kept as long. A bucket that takes up much of that time is stored by
// itself: else all it is made of would have to live on for as long as it does.
func base(l tiers.Ladder, i int) int {
	keep := l.At(i).Keep
	if l.At(i).Width > keep/16 {
		return i
	}
	for i > 0 && l.At(i-1).Keep == keep {
		i--
	}
	return i
}

// shape is how a ladder is kept: which of its tiers are stored, and which are
// sums of those.
type shape struct {
	prof *profile
	of   []served // the tiers of the ladder
}

// served is a tier of a ladder, and where its counts are: in tier at of the
// shape's profile.
type served struct {
	width, keep, ttl int64
	at               int
}

// sum tells whether tier i of the ladder is made of finer buckets.
func (sh *shape) sum(i int) bool { return sh.of[i].width != sh.prof.tiers[sh.of[i].at].width }

// known is how a ladder is kept whose tiers live for ttls; nil if that is not
// remembered.
func (ps *profiles) known(l tiers.Ladder, ttls []time.Duration) *shape {
	list := ps.shapes.Load()
	if list == nil || l.Len() != len(ttls) {
		return nil
	}
next:
	for _, sh := range *list {
		if len(sh.of) != len(ttls) {
			continue
		}
		for i := range sh.of {
			s, t := &sh.of[i], l.At(i)
			if s.width != int64(t.Width) || s.keep != int64(t.Keep) || s.ttl != int64(ttls[i]) {
				continue next
			}
		}
		return sh
	}
	return nil
}

// ladder is how a ladder is kept whose tiers live for ttls.
func (ps *profiles) ladder(l tiers.Ladder, ttls []time.Duration) *shape {
	var want []tier
	sh := &shape{of: make([]served, len(ttls))}
	for i := range ttls {
		t, b := l.At(i), base(l, i)
		sh.of[i] = served{int64(t.Width), int64(t.Keep), int64(ttls[i]), len(want)}
		if b == i {
			want = append(want, tier{width: int64(t.Width)})
		} else {
			sh.of[i].at = sh.of[b].at
		}
		w := &want[sh.of[i].at]
		w.ttl = max(w.ttl, sumTTL(add(int64(ttls[i]), grace), int64(t.Width), w.width))
	}
	sh.prof = ps.get(want)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if there := ps.known(l, ttls); there != nil {
		return there
	}
	remember(&ps.shapes, &ps.nextShape, sh)
	return sh
}

// remember puts v into a list of maxProfiles at most, in the place of next if it
// is full.
func remember[T any](list *atomic.Pointer[[]T], next *int, v T) {
	var all []T
	if old := list.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if len(all) < maxProfiles {
		all = append(all, v)
	} else {
		all[*next] = v
		*next = (*next + 1) % maxProfiles
	}
	list.Store(&all)
}

// sumTTL is how long after its end a bucket of width fine must live, so that
// none is gone of one of that width and ttl that it is a part of.
func sumTTL(ttl, width, fine int64) int64 { return add(ttl, width-fine) }

// baseOf is the width of the buckets that those of a width are made of: the same,
// if the ladder does not say otherwise.
func baseOf(l tiers.Ladder, width time.Duration) time.Duration {
	for i := range l.Len() {
		if l.At(i).Width == width {
			return l.At(base(l, i)).Width
		}
	}
	return width
}

// union is the profile with all tiers of p, which keep their places, and of
// want, the longer TTL where both have one.
func (ps *profiles) union(p *profile, want []tier) *profile {
	var buf [16]tier
	all := append(buf[:0], p.tiers...)
	for _, t := range want {
		if i := slices.IndexFunc(all, func(a tier) bool { return a.width == t.width }); i >= 0 {
			all[i].ttl = max(all[i].ttl, t.ttl)
		} else {
			all = append(all, t)
		}
	}
	return ps.get(all)
}

// mark is a bucket by its start and by its index.
type mark struct{ start, index int64 }

// clock remembers, for one profile, the buckets that held the latest now: as
// long as the next falls into the same ones, nothing is divided: three 64-bit
// divisions are 10 ns of a Take's 60.
type clock struct {
	prof *profile
	at   [tiers.MaxTiers]mark // of tier i
}

func (c *clock) set(p *profile, now int64) {
	fresh := c.prof != p
	c.prof = p
	for i := range p.tiers {
		m, width := &c.at[i], p.tiers[i].width
		if fresh || uint64(now-m.start) >= uint64(width) {
			m.index = floorDiv(now, width)
			m.start = m.index * width
		}
	}
}
