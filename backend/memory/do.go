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
)

// doing is a [backend.Request] on its way.
type doing struct {
	op   *backend.Request
	now  int64
	key  []byte
	hash uint64
	want []tier // what the slots need to be kept in
	own  int64  // cost of the key as it is
}

// Do is described in [backend.Store]. All of the additions are one atomic step
// with the reads: an error means that nothing was added. A bucket is kept at
// least as long as its TTL says, and longer if another TTL of the same width
// and key, or the distance of Op.Now from the bucket, asks for it.
//
// Buckets of a tier may be sums of those of a finer one that is kept as long. So
// an addition must name that as well, and taking back from the coarser one alone
// has no effect.
func (s *Store) Do(ctx context.Context, op *backend.Request) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	if err := late(ctx, op.Deadline); err != nil {
		return err
	}
	now, err := instant(op.Now)
	if err != nil {
		return err
	}
	var (
		key  [256]byte
		want [8]tier
		r    room
	)
	d := doing{op: op, now: now, key: append(key[:0], op.Key...)}
	if d.want, err = wanted(want[:0], op, now); err != nil {
		return err
	}
	d.hash = maphash.Bytes(s.seed, d.key)
	sh := s.shard(d.hash)
	for {
		sh.mu.Lock()
		lacks, err := s.do(sh, &d, &r)
		if err == nil && lacks == 0 {
			d.read(sh.table.find(d.hash, d.key))
		}
		sh.mu.Unlock()
		if err == nil && lacks > 0 {
			if err = s.make(&r, lacks, d.own, now, []uint64{d.hash}); err == nil {
				continue
			}
		}
		s.done(&r)
		return err
	}
}

// wanted finds the caller's mistakes, and appends to dst what tiers the slots
// need.
func wanted(dst []tier, op *backend.Request, now int64) ([]tier, error) {
	for i := range op.Read {
		if r := &op.Read[i]; r.Width <= 0 {
			return nil, fmt.Errorf("memory: a span of width %s, want above zero", r.Width)
		}
	}
next:
	for i := range op.Add {
		slot := &op.Add[i]
		if slot.TTL < 0 {
			return nil, fmt.Errorf("memory: TTL %s of bucket %s, want above zero", slot.TTL, slot.Bucket)
		}
		if err := inRange(slot.Bucket); err != nil {
			return nil, err
		}
		fine, width := int64(baseOf(op.Ladder, slot.Width)), int64(slot.Width)
		ttl := sumTTL(add(stretched(int64(slot.TTL), now, (slot.Index+1)*width), grace), width, fine)
		if op.N > 0 && fine != width && !slices.ContainsFunc(op.Add, func(part backend.Slot) bool {
			return int64(part.Width) == fine && floorDiv(part.Index, width/fine) == slot.Index
		}) {
			return nil, fmt.Errorf("memory: an addition to bucket %s without one to a bucket of %s in it", slot.Bucket, time.Duration(fine))
		}
		for j := range dst {
			if dst[j].width == fine {
				dst[j].ttl = max(dst[j].ttl, ttl)
				continue next
			}
		}
		dst = append(dst, tier{fine, ttl})
	}
	return dst, nil
}

// stretched is a ttl from the end of a bucket on, for one that runs from now
// on. It is longer if the bucket had ended before now, and then generously
// rounded up, so that late labels do not make a profile each.
func stretched(ttl, now, end int64) int64 {
	if now < end {
		return ttl
	}
	late := now - end
	if late < 0 || late >= 1<<62 { // since before 1700: for good
		return math.MaxInt64
	}
	return add(ttl, 1<<bits.Len64(uint64(max(late, ttl/16))))
}

// do does the additions under the lock of the shard, all of them or none. It
// lacks room for that many buckets if the result is above zero.
func (s *Store) do(sh *shard, d *doing, r *room) (lacks int64, err error) {
	e := sh.table.find(d.hash, d.key)
	if d.op.N >= 0 && !d.op.AnyLabel && d.staleReads(sh, e) {
		return 0, errStale
	}
	if len(d.op.Add) == 0 {
		return 0, nil
	}
	if d.op.N <= 0 {
		if e != nil {
			s.takeBack(sh, d, e, r)
		}
		return 0, nil
	}
	d.own = 0
	lacks, err = s.doLacks(sh, d, e, r)
	if err != nil || lacks > 0 && !s.has(r, lacks) {
		if e != nil && s.lower(sh, e, r) {
			return s.do(sh, d, r) // as a fresh key, which needs less
		}
		return lacks, err
	}
	fresh := e == nil
	if fresh {
		e = s.insert(sh, d.hash, d.key, s.profiles.get(d.want), r)
	} else if !e.prof.covers(d.want) {
		r.left -= e.extend(s.profiles.union(e.prof, d.want))
	}
	for i := range d.op.Add {
		slot := &d.op.Add[i]
		if !d.stored(slot) {
			continue
		}
		n, k := e.tier(e.prof.find(int64(slot.Width)))
		count, spent := n.put(k, slot.Index*int64(slot.Width), d.op.N)
		slot.Count, r.left = count, r.left-spent
	}
	d.sums(e, s)
	if fresh {
		e.look()
		s.enter(sh, e)
	} else {
		s.lower(sh, e, r)
	}
	return 0, nil
}

// doLacks is what the additions need of the bound. It drops what is expired of
// their tiers, so that rings do not grow for it, and longer TTLs do not bring
// it back.
func (s *Store) doLacks(sh *shard, d *doing, e *entry, r *room) (lacks int64, err error) {
	var prof *profile
	if e == nil {
		prof = s.profiles.get(d.want)
		lacks = freshCost(len(d.key), prof)
	} else {
		for i := range e.prof.tiers {
			t := &e.prof.tiers[i]
			if n, k := e.tier(i); d.wants(t.width) {
				if last, freed := n.expire(k, t.expired(d.now)); last != never {
					r.left += freed
					e.drops(last, t)
				}
			}
		}
		d.own = e.cost()
		if prof = e.prof; !prof.covers(d.want) {
			prof = s.profiles.union(prof, d.want)
			lacks = prof.chain() - e.prof.chain()
		}
	}
	if !d.op.AnyLabel && d.staleAdds(sh, e) {
		return 0, errStale
	}
	b := bill{lacks: lacks}
	var blank [2]entry // in place of entries that are not there yet, one after the other
	for i, t := range prof.tiers {
		n, k := &blank[i/perEntry%2], i%perEntry
		if e != nil && i/perEntry <= (len(e.prof.tiers)-1)/perEntry {
			n, k = e.tier(i)
		}
		missing, err := d.missing(n, k, t.width)
		if err != nil {
			return 0, err
		}
		b = b.plus(n, k, missing)
	}
	return b.lacks, nil
}

func (d *doing) wants(width int64) bool {
	for i := range d.want {
		if d.want[i].width == width {
			return true
		}
	}
	return false
}

// missing is how many cells of that width tier k of n does not have yet. It is
// an error if they would count too far.
func (d *doing) missing(n *entry, k int, width int64) (missing int, err error) {
	var additions int64
	for i := range d.op.Add {
		slot := &d.op.Add[i]
		if int64(slot.Width) != width || !d.stored(slot) {
			continue
		}
		additions++
		if n.get(k, slot.Index*width) == 0 {
			missing++
		}
	}
	if sum := n.all(k); additions > 0 && d.op.N > (backend.MaxCount-sum)/additions {
		return 0, full(width, sum, d.op.N)
	}
	return missing, nil
}

// takeBack takes from the buckets that are there, and not expired.
func (s *Store) takeBack(sh *shard, d *doing, e *entry, r *room) {
	amount := -max(d.op.N, -math.MaxInt64)
	for i := range d.op.Add {
		slot := &d.op.Add[i]
		j, start := e.prof.find(int64(slot.Width)), slot.Index*int64(slot.Width)
		if j < 0 || !d.stored(slot) || start <= e.prof.tiers[j].expired(d.now) {
			continue
		}
		n, k := e.tier(j)
		left, freed := n.take(k, start, amount)
		slot.Count, r.left = left, r.left+freed
	}
	d.sums(e, s)
	s.lower(sh, e, r)
}

// stored tells whether a slot's bucket is one that is stored, and no sum of them.
func (d *doing) stored(slot *backend.Slot) bool {
	return baseOf(d.op.Ladder, slot.Width) == slot.Width
}

// sums fills in the counts of buckets that are sums of stored ones.
func (d *doing) sums(e *entry, s *Store) {
	for i := range d.op.Add {
		slot := &d.op.Add[i]
		if d.stored(slot) {
			continue
		}
		if at := e.prof.find(int64(baseOf(d.op.Ladder, slot.Width))); at >= 0 {
			n, k := e.tier(at)
			width := int64(slot.Width)
			start := slot.Index * width
			switch {
			case start <= e.prof.tiers[at].expired(d.now):
				// With the first that it is made of, all of it is expired.
			case n.newest[k].start < start+width:
				// The newest: all from its start on, for which there is a running
				// total. No window reaches back by less than nothing, so that is its name.
				slot.Count = n.count(k, start-1, -width, s)
			default:
				slot.Count = n.within(k, start, start+width)
			}
		}
	}
}

// read fills in the spans.
func (d *doing) read(e *entry) {
	for i := range d.op.Read {
		span := &d.op.Read[i]
		clear(span.Counts)
		if e == nil {
			continue
		}
		width := int64(span.Width)
		at := e.prof.find(int64(baseOf(d.op.Ladder, span.Width)))
		if at < 0 {
			continue
		}
		n, k := e.tier(at)
		from := after(e.prof.tiers[at].expired(d.now), 1)
		if width != e.prof.tiers[at].width {
			from = -floorDiv(-from, width) * width // with the first that it is made of, all of a bucket is expired
		}
		if span.First > from/width { // else what is before First is passed over below
			if span.First > math.MaxInt64/width {
				continue
			}
			from = span.First * width
		}
		i, end := int64(0), int64(never) // of the bucket that the cell before was in
		for j := n.lower(k, from); j < n.size(k); j++ {
			c := n.cell(k, j)
			if c.start >= end {
				index := floorDiv(c.start, width)
				i, end = index-span.First, after(index*width, width)
			}
			if i >= int64(len(span.Counts)) {
				break
			}
			if i >= 0 {
				span.Counts[i] += c.n
			}
		}
	}
}
