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

// profiles remembers the profiles in use. An entry keeps its own alive, so
// forgetting one here is harmless.
type profiles struct {
	list atomic.Pointer[[]*profile] // replaced as a whole
	mu   sync.Mutex                 // of those who replace it
	next int                        // which of a full list goes next
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
	var list []*profile
	if old := ps.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if len(list) < maxProfiles {
		list = append(list, p)
	} else {
		list[ps.next] = p
		ps.next = (ps.next + 1) % maxProfiles
	}
	ps.list.Store(&list)
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

// known is the profile of a ladder whose tiers are kept for ttls; nil if it is
// not remembered.
func (ps *profiles) known(l tiers.Ladder, ttls []time.Duration) *profile {
	list := ps.list.Load()
	if list == nil || l.Len() != len(ttls) {
		return nil
	}
next:
	for _, p := range *list {
		if len(p.tiers) != len(ttls) {
			continue
		}
		for i := range p.tiers {
			if p.tiers[i].width != int64(l.At(i).Width) || p.tiers[i].ttl != int64(ttls[i]) {
				continue next
			}
		}
		return p
	}
	return nil
}

// ladder is the profile of a ladder whose tiers are kept for ttls.
func (ps *profiles) ladder(l tiers.Ladder, ttls []time.Duration) *profile {
	want := make([]tier, len(ttls))
	for i := range ttls {
		want[i] = tier{int64(l.At(i).Width), int64(ttls[i])}
	}
	return ps.get(want)
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
