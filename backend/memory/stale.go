package memory

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// A call may stand still between its clock and the lock (a frozen process), and
// come to a key that callers with later labels have been at meanwhile: buckets
// that its own label still needs have expired by theirs, and are dropped. It
// must not take them for zero. So the store knows of what it has dropped when
// the last of it expired:
//
//   - entry.dropped is the latest expiry of the buckets that were dropped from
//     the entry, never if none were. A window of a tier needs none of them if its
//     oldest possible bucket expires later.
//   - shard.dropped is the latest expiry of the buckets of entries that are gone.
//     It stands for keys that are not there, and passes to an entry that is
//     made. A key that is there goes by what it has dropped itself: a caller
//     whose clock is ahead sends the callers of its own keys round, and not
//     their neighbours.
//
// Expiries instead of starts, so that one number does for tiers of any TTL: of
// two buckets that were dropped at one instant, both had expired by then. It
// errs, where tiers differ, on the side of one more reading of the clock.
//
// Counts that eviction took are not among this: they are not known to have
// expired for any label.

// grace is how much longer buckets live than they must. A label that is late
// by less needs nothing that was dropped for a later one: goroutines that wait
// for a processor are late by as much, and are not sent round.
const grace = int64(10 * time.Millisecond)

var errStale = fmt.Errorf("memory: %w", backend.ErrStaleLabel)

// expiry is when the bucket of t that starts at start expires.
func (t *tier) expiry(start int64) int64 { return after(after(start, t.width), t.ttl) }

// drops takes note that tier t has dropped the bucket that starts at last, and
// older ones. The caller looks, when it has added what it will.
func (e *entry) drops(last int64, t *tier) { e.dropped = max(e.dropped, t.expiry(last)) }

// half is so little that a bucket and a ring of no more have room for each other.
const half = backend.MaxCount / 2

// look finds out whether what e has dropped expired after the end of its newest
// bucket. Otherwise a label in that bucket needs none of it, for a window that
// reaches back by a bucket less than the TTL.
func (e *entry) look() {
	if e.dropped > after(e.newest[0].start, e.prof.tiers[0].width) {
		e.odd |= isAhead
	} else {
		e.odd &^= isAhead
	}
	e.odd &^= isBig
	if e.past != nil {
		for k := range e.past.rings {
			if e.past.rings[k].sum > half {
				e.odd |= isBig
			}
		}
	}
}

// lost takes note of an entry that is removed, and of the expiry of what it
// still had; never stands for counts that were not dropped for their age.
func (sh *shard) lost(e *entry, expiry int64) {
	if !e.isMark() {
		sh.dropped = max(sh.dropped, e.dropped, expiry)
	}
}

// droppedOf is the latest expiry of what was dropped of a key, whose entry is e
// if it is there.
func (sh *shard) droppedOf(e *entry) int64 {
	if e == nil {
		return sh.dropped
	}
	return e.dropped
}

// stale tells whether a step would need buckets of a key that were dropped: for
// a window, or because its own would be one of them.
func (st *step) stale(sh *shard, p *part) bool {
	e := p.e
	dropped := sh.droppedOf(e)
	if dropped <= after(st.now, grace) {
		return false
	}
	if e.isStretched() {
		return true
	}
	for i := range p.key.Windows {
		w := &p.key.Windows[i]
		t := p.tier(p.shape.of[w.Finest].at)
		if cut, _ := p.edge(w, t, st.now); dropped > t.expiry(cut) {
			return true
		}
	}
	if st.t.Peek || p.key.N == 0 {
		return false
	}
	for j := range p.shape.prof.tiers {
		t := p.tier(j)
		if start := floorDiv(st.now, t.width) * t.width; t.expiry(start) <= dropped && !e.has(t.width, start) {
			return true
		}
	}
	return false
}

// has tells whether e, which may be nil, has the bucket of that width that
// starts at start.
func (e *entry) has(width, start int64) bool {
	if e == nil {
		return false
	}
	i := e.prof.find(width)
	if i < 0 {
		return false
	}
	n, k := e.tier(i)
	return n.get(k, start) > 0
}

// isStretched tells that of the buckets that e has dropped only one thing is
// known: all had expired by e.dropped. e may be nil.
func (e *entry) isStretched() bool { return e != nil && e.odd&isStretched != 0 }

// tier is tier i of the key's ladder as the entry keeps it, or would.
func (p *part) tier(i int) *tier {
	if p.e != nil {
		if n, _, t := p.e.locate(p.shape.prof, i); n != nil {
			return t
		}
	}
	return &p.shape.prof.tiers[i]
}

// staleAdds tells whether an addition is to a bucket that may have been dropped.
// Made anew it would not hold what it held, and taking back a hit that was
// dropped with it would take another.
func (d *doing) staleAdds(sh *shard, e *entry) bool {
	dropped := sh.droppedOf(e)
	if dropped == never {
		return false
	}
	for i := range d.op.Add {
		slot := &d.op.Add[i]
		t, start := d.tier(e, int64(baseOf(d.op.Ladder, slot.Width))), slot.Index*int64(slot.Width)
		if t == nil || d.stored(slot) && e.has(t.width, start) {
			continue // else it is a sum, and lacks its first part as soon as that is dropped
		}
		expiry := t.expiry(start)
		if e.isStretched() {
			expiry = after(start, t.width) // its TTL was anything
		}
		if expiry <= dropped {
			return true
		}
	}
	return false
}

// tier is how buckets of that width are kept in e, or would be if it is nil.
func (d *doing) tier(e *entry, width int64) *tier {
	kept := d.want
	if e != nil {
		kept = e.prof.tiers
	}
	for i := range kept {
		if kept[i].width == width {
			return &kept[i]
		}
	}
	return nil // none of that width was ever in e
}

// staleReads tells whether a span is to read buckets that were dropped and had
// not expired by the op's own clock. What has is zero for it, and not stale.
func (d *doing) staleReads(sh *shard, e *entry) bool {
	dropped := sh.droppedOf(e)
	if dropped <= after(d.now, grace) {
		return false
	}
	for i := range d.op.Read {
		if e.isStretched() {
			return true
		}
		span := &d.op.Read[i]
		fine := int64(baseOf(d.op.Ladder, span.Width))
		t := d.tier(e, fine)
		if e == nil {
			least := leastTTL(d.op.Ladder, fine)
			t = &least
		}
		if t == nil {
			continue
		}
		first := int64(never)
		if width := int64(span.Width); span.First > never/width && span.First < forever/width {
			first = span.First*width - 1
		}
		if dropped > t.expiry(max(first, t.expired(d.now))) {
			return true
		}
	}
	return false
}

// leastTTL is how long buckets of that width are kept at least on l, by whoever
// adds to them; for good if they are not of l.
func leastTTL(l tiers.Ladder, width int64) tier {
	t := tier{width: width}
	for i := range l.Len() {
		if of := l.At(i); int64(l.At(base(l, i)).Width) == width {
			t.ttl = max(t.ttl, sumTTL(add(int64(of.Width+of.Keep), grace), int64(of.Width), width))
		}
	}
	return t
}
