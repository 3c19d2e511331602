package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
)

// Do is described in [backend.Store]. All of the additions are one atomic step
// with the reads: an error means that nothing was added. A bucket is kept for its
// TTL at least, and longer for another TTL of the same width and key, or for a
// Request.Now far from the bucket.
//
// Buckets of a tier may be sums of buckets of a finer tier that is kept as long.
// So an addition must name a bucket of the finer tier as well, and taking back
// from the coarser tier alone has no effect.
func (s *Store) Do(ctx context.Context, r *backend.Request) error {
	r.Ordered = false
	for i := range r.Add {
		r.Add[i].Count = 0
	}
	now, err := begin(ctx, r.Deadline, r.Now)
	if err != nil {
		return err
	}
	var (
		key    [256]byte
		wanted [8]tier
		adds   [16]addition
	)
	d := request{Request: r, now: now, key: append(key[:0], r.Key...)}
	if d.wanted, d.adds, err = needs(r, now, wanted[:0], adds[:0]); err != nil {
		return err
	}
	var b budget
	a := access{hash: maphash.Bytes(s.seed, d.key)}
	a.shard = s.shard(a.hash)
	for {
		a.shard.mu.Lock()
		needed, err := s.do(&d, &a, &b)
		if err == nil && needed == 0 {
			d.read(a.e)
			r.Ordered = true
		}
		a.shard.mu.Unlock()
		if err == nil && needed > 0 {
			if err = s.obtain(&b, needed, d.own, now, []uint64{a.hash}); err == nil {
				continue
			}
		}
		s.release(&b)
		return err
	}
}

// request is a [backend.Request] on its way, on the stack: a pointer to an entry
// among the fields would move the buffers to the heap.
type request struct {
	*backend.Request
	now    int64
	key    []byte
	wanted []tier     // tiers that store the buckets of Add
	adds   []addition // the stored buckets of Add
	own    int64      // cost of the key as it is
}

// needs finds the caller's mistakes, appends the tiers that store the buckets of
// Add to wanted, and the buckets that are stored themselves to adds.
func needs(r *backend.Request, now int64, wanted []tier, adds []addition) ([]tier, []addition, error) {
	for i := range r.Read {
		if span := &r.Read[i]; span.Width <= 0 {
			return nil, nil, fmt.Errorf("memory: a span of width %s, want above zero", span.Width)
		}
	}
	for i := range r.Add {
		slot := &r.Add[i]
		if slot.TTL < 0 {
			return nil, nil, fmt.Errorf("memory: TTL %s of bucket %s, want above zero", slot.TTL, slot.Bucket)
		}
		if slot.Width <= 0 {
			return nil, nil, fmt.Errorf("memory: a bucket of width %s, want above zero", slot.Width)
		}
		width := int64(slot.Width)
		if slot.Index > math.MaxInt64/width-1 || slot.Index < math.MinInt64/width+1 {
			return nil, nil, fmt.Errorf("memory: bucket %d of width %s is out of range", slot.Index, slot.Width)
		}
		fine := baseWidth(r.Ladder, slot.Width)
		if r.N > 0 && fine != width && !slices.ContainsFunc(r.Add, func(part backend.Slot) bool {
			return int64(part.Width) == fine && cover.Index(part.Index, width/fine) == slot.Index
		}) {
			return nil, nil, fmt.Errorf("memory: an addition to bucket %s without one to a bucket of %s in it", slot.Bucket, time.Duration(fine))
		}
		ttl := sumTTL(plus(stretched(int64(slot.TTL), now, (slot.Index+1)*width), grace), width, fine)
		at := find(wanted, fine)
		if at < 0 {
			at = len(wanted)
			wanted = append(wanted, tier{width: fine})
		}
		wanted[at].ttl = max(wanted[at].ttl, ttl)
		if fine == width {
			adds = append(adds, addition{at, slot.Index * width})
		}
	}
	return wanted, adds, nil
}

// stretched turns a TTL from now on into a TTL from the end of a bucket. For a
// bucket that ended before now the result is longer, and generously rounded up,
// so that late labels do not make a layout each.
func stretched(ttl, now, end int64) int64 {
	if now < end {
		return ttl
	}
	late := now - end
	if late < 0 || late >= 1<<62 { // since before 1700: for good
		return math.MaxInt64
	}
	return plus(ttl, 1<<bits.Len64(uint64(max(late, ttl/16))))
}

// do does the additions under the lock of the shard, all or none. A result above
// zero is the budget that is needed and that b does not have.
func (s *Store) do(d *request, a *access, b *budget) (needed int64, err error) {
	a.e = a.shard.table.find(a.hash, d.key)
	if d.N >= 0 && !d.AnyLabel && d.staleReads(a) {
		return 0, errStale
	}
	if len(d.Add) == 0 {
		return 0, nil
	}
	if d.N <= 0 {
		if a.e != nil {
			s.takeBack(d, a, b)
		}
		return 0, nil
	}
	a.expire(d.wanted, d.now, b)
	d.own, a.layout = 0, nil
	if b.fresh = a.e == nil; !b.fresh {
		d.own = a.e.cost()
	} else {
		a.layout = s.layouts.get(d.wanted)
	}
	if !d.AnyLabel && d.staleAdds(a) {
		err = errStale
	} else {
		needed, err = s.need(a, d.key, d.wanted, d.adds, d.N)
	}
	if err != nil || needed > 0 && !s.raise(b, needed) {
		if a.e != nil && s.settle(a.shard, a.e, b) {
			return s.do(d, a, b) // as a fresh key, which needs less
		}
		return needed, err
	}
	s.add(a, d.key, d.wanted, d.adds, d.N, b)
	d.count(a.e, s)
	s.settle(a.shard, a.e, b)
	return 0, nil
}

// takeBack takes from the buckets that are there and have not expired.
func (s *Store) takeBack(d *request, a *access, b *budget) {
	n := -max(d.N, -math.MaxInt64)
	for _, add := range d.adds {
		if g, k, t := a.e.find(d.wanted[add.tier].width); g != nil && add.start > t.expired(d.now) {
			b.left += g.take(k, add.start, n)
		}
	}
	d.count(a.e, s)
	if s.settle(a.shard, a.e, b) {
		a.e = nil
	}
}

// count fills in the counts of the slots.
func (d *request) count(e *entry, s *Store) {
	for i := range d.Add {
		slot := &d.Add[i]
		g, k, t := e.find(baseWidth(d.Ladder, slot.Width))
		width := int64(slot.Width)
		start := slot.Index * width
		switch {
		case g == nil || start <= t.expired(d.now):
			// A sum expires with its first bucket.
		case width == t.width:
			slot.Count = g.get(k, start)
		case g.newest[k].start < start+width:
			// The newest sum: all from the start of the sum on, and a running
			// total has all of these hits. No window has a reach below zero: here
			// a reach below zero names the total.
			slot.Count = g.count(k, start-1, -width, s)
		default:
			slot.Count = g.within(k, start, start+width)
		}
	}
}

// read fills in the spans.
func (d *request) read(e *entry) {
	for i := range d.Read {
		span := &d.Read[i]
		clear(span.Counts)
		if e == nil {
			continue
		}
		g, k, t := e.find(baseWidth(d.Ladder, span.Width))
		if g == nil {
			continue
		}
		width := int64(span.Width)
		from := plus(t.expired(d.now), 1)
		if width != t.width {
			from = -cover.Index(-from, width) * width // a sum expires with its first bucket
		}
		if span.First > from/width { // else buckets before First are passed over below
			if span.First > math.MaxInt64/width {
				continue
			}
			from = span.First * width
		}
		i, end := int64(0), int64(never) // of the sum that holds the bucket before
		for j := g.search(k, from); j < g.size(k); j++ {
			b := g.bucket(k, j)
			if b.start >= end {
				index := cover.Index(b.start, width)
				i, end = index-span.First, plus(index*width, width)
			}
			if i >= int64(len(span.Counts)) {
				break
			}
			if i >= 0 {
				span.Counts[i] += b.n
			}
		}
	}
}

// tier is the tier of the given width in the layout of e, or, if e is nil, in the
// layout for a new entry; nil if e never had such buckets.
func (d *request) tier(e *entry, width int64) *tier {
	stored := d.wanted
	if e != nil {
		stored = e.layout.tiers
	}
	if i := find(stored, width); i >= 0 {
		return &stored[i]
	}
	return nil
}

// staleAdds reports whether an addition is to a bucket that may have been
// dropped. Made anew, the bucket would lack the former hits, and taking back a
// former hit would take a hit of another caller.
func (d *request) staleAdds(a *access) bool {
	h := a.horizon()
	if h.expiry == never {
		return false
	}
	for i := range d.Add {
		slot := &d.Add[i]
		// A sum lacks its first bucket as soon as the bucket is dropped.
		t, start := d.tier(a.e, baseWidth(d.Ladder, slot.Width)), slot.Index*int64(slot.Width)
		if t != nil && h.hides(t, start) && (t.width != int64(slot.Width) || !a.has(t.width, start)) {
			return true
		}
	}
	return false
}

// staleReads reports whether a span is to read dropped buckets that had not
// expired by the caller's own clock. Buckets that had expired by the caller's
// clock are zero, and not stale.
func (d *request) staleReads(a *access) bool {
	h := a.horizon()
	if !h.behind(d.now) {
		return false
	}
	for i := range d.Read {
		span := &d.Read[i]
		fine := baseWidth(d.Ladder, span.Width)
		t := d.tier(a.e, fine)
		if a.e == nil {
			least := leastTTL(d.Ladder, fine)
			t = &least
		}
		if t == nil {
			continue
		}
		first := int64(never)
		if width := int64(span.Width); span.First > never/width && span.First < forever/width {
			first = span.First * width
		}
		if h.hides(t, max(first, plus(t.expired(d.now), 1))) {
			return true
		}
	}
	return false
}
