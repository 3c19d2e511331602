package memory

import "github.com/abacus-go/abacus/backend"

// perGroup is the number of tiers of a group. An entry holds a group; an entry
// with more tiers has a chain of groups.
const perGroup = 4

// group is the buckets of up to four tiers of a key. Nearly every hit needs the
// group itself only: the newest bucket of each tier, and sum0 and first0, which
// answer most windows. The older buckets are in the history; a key with a single
// bucket per tier has none.
//
// The sum of the buckets of a tier never exceeds MaxCount.
type group struct {
	sum0   int64 // ring(0).sum
	first0 int64 // ring(0).first: as long as the first bucket has not left a window, sum0 and the newest are the count

	newest [perGroup]bucket // n is zero if the tier has no bucket

	history *history
}

func newGroup() group { return group{first0: forever} }

// size is the number of buckets of tier k.
func (g *group) size(k int) int {
	if g.newest[k].n == 0 {
		return 0
	}
	if g.history == nil {
		return 1
	}
	return 1 + int(g.history.ring(k).len)
}

// bucket is the j-th of tier k, oldest first; j is below size.
func (g *group) bucket(k, j int) *bucket {
	if g.history == nil || j == int(g.history.ring(k).len) {
		return &g.newest[k]
	}
	r := g.history.ring(k)
	return r.at(r.head + uint32(j))
}

// search is the number of the first bucket of tier k that starts at or after
// start; size if there is none.
func (g *group) search(k int, start int64) int {
	size := g.size(k)
	if size == 0 || g.newest[k].start < start {
		return size
	}
	if g.history == nil {
		return 0
	}
	r := g.history.ring(k)
	return int(r.search(start) - r.head)
}

// get is the count of the bucket that starts at start; 0 if there is none.
func (g *group) get(k int, start int64) int64 {
	if j := g.search(k, start); j < g.size(k) {
		if b := g.bucket(k, j); b.start == start {
			return b.n
		}
	}
	return 0
}

// sum is the sum of all buckets of tier k.
func (g *group) sum(k int) int64 {
	if g.history == nil {
		return g.newest[k].n
	}
	return g.newest[k].n + g.history.ring(k).sum
}

// count is the sum of the buckets of tier k that start after cut, where cut is
// cutoff(now, reach, width).
func (g *group) count(k int, cut, reach int64, s *Store) int64 {
	b := &g.newest[k]
	if b.n == 0 || b.start <= cut {
		return 0
	}
	if k == 0 && g.first0 > cut {
		return b.n + g.sum0
	}
	if g.history == nil {
		return b.n
	}
	r := g.history.ring(k)
	if r.first > cut {
		return b.n + r.sum
	}
	if len(r.buckets) < longRing {
		return b.n + r.after(cut)
	}
	return b.n + g.history.totals.read(r, k, cut, reach, s)
}

// within is the sum of the buckets of tier k that start in a span of time.
func (g *group) within(k int, from, to int64) (sum int64) {
	for j := g.search(k, from); j < g.size(k) && g.bucket(k, j).start < to; j++ {
		sum += g.bucket(k, j).n
	}
	return sum
}

// freedBy is the start of the last of the oldest buckets of tier k after cut that
// hold need hits together: the newest bucket if all hold less.
func (g *group) freedBy(k int, cut, need int64) int64 {
	j, last := g.search(k, plus(cut, 1)), g.size(k)-1
	for ; j < last; j++ {
		if need -= g.bucket(k, j).n; need <= 0 {
			break
		}
	}
	return g.bucket(k, j).start
}

// half is the greatest sum of a ring, and of its newest bucket, at which neither
// can take the tier beyond MaxCount.
const half = backend.MaxCount / 2

// isLarge reports whether a ring holds more than half of MaxCount.
func (g *group) isLarge() bool {
	if g.history != nil {
		for k := range perGroup {
			if g.history.ring(k).sum > half {
				return true
			}
		}
	}
	return false
}

// put adds n to the bucket of tier k that starts at start, and returns the memory
// taken, in buckets.
func (g *group) put(k int, start, n int64) (spent int64) {
	b := &g.newest[k]
	switch {
	case b.n == 0:
		*b = bucket{start, n}
		return 0
	case b.start == start:
		b.n += n
		return 0
	case b.start < start:
		spent = g.grow(k)
		g.push(k)
		*b = bucket{start, n}
		return spent
	}
	if g.history != nil {
		r := g.history.ring(k)
		if seq := r.search(start); seq != r.end() && r.at(seq).start == start {
			g.change(k, seq, n)
			return 0
		}
	}
	spent = g.grow(k)
	g.insert(k, g.history.ring(k).search(start), bucket{start, n})
	return spent
}

// fits reports whether a bucket starting at start can become the newest of tier
// k. All buckets starting at or before cut have expired, and at least one bucket
// has not; full: the ring has to grow first.
func (g *group) fits(k int, start, cut int64) (fits, full bool) {
	b := &g.newest[k]
	if b.n == 0 || b.n > half || b.start >= start || b.start <= cut {
		return false, false
	}
	if g.history == nil {
		return true, true
	}
	r := g.history.ring(k)
	fits = r.sum+b.n <= half && (r.first > cut || r.at(r.end()-1).start > cut)
	return fits, int(r.len) == len(r.buckets)
}

// take takes up to n from the bucket that starts at start, and returns the memory
// freed, in buckets.
func (g *group) take(k int, start, n int64) (freed int64) {
	j := g.search(k, start)
	if j == g.size(k) || g.bucket(k, j).start != start {
		return 0
	}
	b := g.bucket(k, j)
	if left := b.n - min(n, b.n); left > 0 {
		if b == &g.newest[k] {
			b.n = left
		} else {
			g.change(k, g.history.ring(k).head+uint32(j), left-b.n)
		}
		return 0
	}
	if b == &g.newest[k] {
		g.pop(k)
	} else {
		g.remove(k, g.history.ring(k).head+uint32(j))
	}
	return g.shrink(k)
}

// expire drops the buckets of tier k that start at or before cut. last is the
// start of the newest bucket dropped, never without any; freed is the memory
// freed, in buckets.
func (g *group) expire(k int, cut int64) (last, freed int64) {
	b := &g.newest[k]
	if b.n == 0 {
		return never, 0
	}
	if b.start <= cut {
		last = b.start
		*b = bucket{}
		return last, g.clear(k)
	}
	if g.history == nil {
		return never, 0
	}
	r := g.history.ring(k)
	if r.first > cut {
		return never, 0
	}
	if last = r.at(r.end() - 1).start; last <= cut {
		return last, g.clear(k)
	}
	for r.at(r.head).start <= cut {
		last = r.at(r.head).start
		g.drop(k)
	}
	g.renumber(k, func(*total) {})
	return last, g.shrink(k)
}
