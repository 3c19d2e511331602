package memory

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// Do is described in [backend.Store]. All of the additions are one atomic step
// with the reads: an error means that nothing was added. A bucket is kept for its
// TTL at least, and longer for another TTL of the same width and key, or for a
// Request.Now far from the bucket.
//
// Buckets of a tier may be sums of buckets of a finer tier that is kept as long.
// So an addition must name a bucket of the finer tier as well, and undoing hits of
// the coarser tier alone has no effect.
func (s *Store) Do(ctx context.Context, r *backend.Request) error {
	r.Ordered = false
	for i := range r.Add {
		r.Add[i].Count = 0
	}
	now, err := begin(ctx, r.Deadline, r.Now)
	if err != nil {
		return err
	}
	var room [256]byte
	var buf [16]addition
	p, adds, err := s.request(r, now, buf[:0])
	if err != nil {
		return err
	}
	key := append(room[:0], r.Key...)
	keys := [1]access{s.access(key, p)}
	var held shardSet
	held.add(keys[0].shard)
	err = s.retry(held, keys[:], now, func() (need, error) { return s.do(r, &keys[0], key, adds, now) })
	r.Ordered = err == nil
	return err
}

// request finds the caller's mistakes. It returns the plan of r, and appends to adds
// those buckets of Add that are stored themselves.
func (s *Store) request(r *backend.Request, now int64, adds []addition) (*plan, []addition, error) {
	var ttls [tiers.MaxTiers]time.Duration
	var longer time.Duration // by which buckets live longer than Width and Keep
	for i := range r.Add {
		slot := &r.Add[i]
		at := tierOf(r.Ladder, slot.Width)
		if at < 0 {
			return nil, nil, fmt.Errorf("memory: a bucket of width %s, want a width of the ladder %q", slot.Width, r.Ladder)
		}
		if slot.TTL < 0 {
			return nil, nil, fmt.Errorf("memory: TTL %s of bucket %s, want above zero", slot.TTL, slot.Bucket)
		}
		width := int64(slot.Width)
		if slot.Index > math.MaxInt64/width-1 || slot.Index < math.MinInt64/width+1 {
			return nil, nil, fmt.Errorf("memory: bucket %d of width %s is out of range", slot.Index, slot.Width)
		}
		if r.N > 0 {
			ttl := time.Duration(stretched(int64(slot.TTL), now, (slot.Index+1)*width))
			ttls[at] = max(ttls[at], ttl)
			longer = max(longer, ttl-slot.Width-r.Ladder.At(at).Keep)
		}
	}
	for i := range r.Read {
		if width := r.Read[i].Width; tierOf(r.Ladder, width) < 0 {
			return nil, nil, fmt.Errorf("memory: a span of width %s, want a width of the ladder %q", width, r.Ladder)
		}
	}
	n := r.Ladder.Len()
	for i, ttl := range ttls[:n] {
		if t := r.Ladder.At(i); ttl == 0 { // a tier that is left out
			ttls[i] = time.Duration(plus(int64(t.Width+t.Keep), int64(longer)))
		}
	}
	p := s.layouts.plan(r.Ladder, ttls[:n])
	for i := range r.Add {
		slot := &r.Add[i]
		k := p.of[tierOf(r.Ladder, slot.Width)]
		width := time.Duration(p.layout.all[k].width)
		if width == slot.Width {
			adds = append(adds, addition{k, slot.Index * int64(width)})
		} else if r.N > 0 && !slices.ContainsFunc(r.Add, func(part backend.Slot) bool {
			return part.Width == width && tiers.Index(part.Index, slot.Width/width) == slot.Index
		}) {
			return nil, nil, fmt.Errorf("memory: an addition to bucket %s without one to a bucket of %s in it", slot.Bucket, width)
		}
	}
	return p, adds, nil
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

// do does r under the lock of the shard, all or nothing. If the call lacks memory,
// nothing is done but need filled in.
func (s *Store) do(r *backend.Request, a *access, key []byte, adds []addition, now int64) (lack need, err error) {
	if err := a.find(key); err != nil {
		return lack, err
	}
	if r.N >= 0 && !r.AnyLabel && a.behind(now) && a.staleReads(r, now) {
		return lack, errStale
	}
	switch {
	case r.N > 0 && len(adds) > 0:
		if !r.AnyLabel && a.staleAdds(r) {
			return lack, errStale
		}
		n, err := s.want(a, key, adds, r.N, now)
		if err != nil {
			return lack, err
		}
		if n > 0 && !s.reserve(n, s.bound(a.fresh)) {
			return need{n: n, own: a.cost(), fresh: a.fresh}, nil
		}
		s.pay(s.add(a, key, adds, r.N, now) - n)
	case r.N < 0 && !a.fresh:
		was := a.e.cost()
		for _, add := range adds {
			if add.start > a.e.layout.all[add.tier].expired(now) {
				a.e.ring(add.tier).take(add.start, -max(r.N, -math.MaxInt64))
			}
		}
		s.pay(a.e.cost() - was)
		if s.settle(a.shard, a.e) {
			a.e = &a.plan.none
		}
	}
	a.count(r, now)
	for i := range r.Read {
		a.read(&r.Read[i], now)
	}
	return lack, nil
}

// stored returns the stored tier with the buckets of a width.
func (a *access) stored(width time.Duration) (k int, t tier) {
	k = a.plan.of[tierOf(a.plan.ladder, width)]
	return k, a.e.layout.all[k]
}

// count fills in the counts of the slots. A sum expires with its first bucket.
func (a *access) count(r *backend.Request, now int64) {
	for i := range r.Add {
		slot := &r.Add[i]
		k, t := a.stored(slot.Width)
		if start := slot.Index * int64(slot.Width); start > t.expired(now) {
			slot.Count = a.e.ring(k).within(start, start+int64(slot.Width))
		}
	}
}

// read fills in a span, bucket by bucket with hits.
func (a *access) read(span *backend.Span, now int64) {
	clear(span.Counts)
	k, t := a.stored(span.Width)
	r, width := a.e.ring(k), int64(span.Width)
	if span.First > math.MaxInt64/width {
		return
	}
	from := plus(t.expired(now), 1)
	if width != t.width {
		from = -floor(-from, width) // a sum expires with its first bucket
	}
	if span.First > cover.Index(from, width) {
		from = span.First * width
	}
	size := r.size()
	for i := r.search(from); i < size; {
		start, _ := r.at(i)
		index := cover.Index(start, width)
		if uint64(index-span.First) >= uint64(len(span.Counts)) { // the difference may wrap round
			return
		}
		next, end := i+1, plus(index*width, width)
		if next < size {
			if start, _ := r.at(next); start < end {
				next = r.search(end)
			}
		}
		span.Counts[index-span.First] = r.upTo(next) - r.upTo(i)
		i = next
	}
}

// staleAdds reports whether an addition is to a bucket that may have been
// dropped. Made again, the bucket would lack the former hits, and undoing a
// former hit would take a hit of another caller.
func (a *access) staleAdds(r *backend.Request) bool {
	for i := range r.Add {
		slot := &r.Add[i]
		k, t := a.stored(slot.Width)
		start := slot.Index * int64(slot.Width)
		// A sum lacks its first bucket as soon as the bucket is dropped.
		if a.hides(k, start) && (t.width != int64(slot.Width) || !a.has(k, start)) {
			return true
		}
	}
	return false
}

// staleReads reports whether a span is to read dropped buckets that had not
// expired by the caller's own clock. Buckets that had expired by the caller's
// clock are zero, and not stale.
func (a *access) staleReads(r *backend.Request, now int64) bool {
	for i := range r.Read {
		span := &r.Read[i]
		k, t := a.stored(span.Width)
		first, width := int64(never), int64(span.Width)
		if span.First > never/width && span.First < forever/width {
			first = span.First * width
		}
		if a.hides(k, max(first, plus(t.expired(now), 1))) {
			return true
		}
	}
	return false
}
