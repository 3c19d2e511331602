package memory

import (
	"hash/maphash"
	"slices"
)

// entry is a key with its buckets and its positions in the heaps. An entry is
// three cache lines. Nearly every hit needs only the first two lines: the key (a
// pointer to the key would be a third wait for memory, after the table's and the
// entry's) and the group up to the newest buckets.
type entry struct {
	layout *layout
	length uint8 // of the key; isLong if the key is in long
	flags  uint8 // large, droppedAhead, mixedTTL: any of them keeps a Take from the short way
	name   [38]byte

	group // of the first tiers of the layout

	dropped int64          // latest expiry of a dropped bucket: see horizon
	pos     [orders]uint32 // in the shard's heaps
	long    *string        // a key longer than name and rest
	rest    [32]byte       // of a key longer than name
}

const (
	inEntry = len(entry{}.name) + len(entry{}.rest)
	isLong  = 255
)

// Flags of an entry.
const (
	large        = 1 << iota // a ring holds more than half
	droppedAhead             // dropped is after the end of the newest bucket of tier 0
	mixedTTL                 // a dropped bucket may have had a shorter TTL than the layout has now
)

// entryCost is the cost of an entry, in buckets of 16 bytes: with the entry's
// slot in a table (16 bytes, and the table is 3/8 to 3/4 full) and the items in
// heaps (16 bytes each, and what append holds ready).
const entryCost = 16

// longCost is the cost of a key of n bytes beside its entry.
func longCost(n int) int64 {
	if n <= inEntry {
		return 0
	}
	return 1 + int64(n+bucketBytes-1)/bucketBytes
}

// chainCost is the cost of the groups beyond the first, each with the history
// of the group before.
func (p *layout) chainCost() int64 {
	return int64(max(0, len(p.tiers)-1)/perGroup) * (groupCost + historyCost)
}

// freshCost is the cost of the entry of a new key with a name of n bytes, and
// with at most one bucket in each tier of p.
func freshCost(n int, p *layout) int64 { return entryCost + longCost(n) + p.chainCost() }

// cost is all that e takes of the store's bound.
func (e *entry) cost() int64 {
	c := entryCost + e.group.cost()
	if e.length == isLong {
		c += longCost(len(*e.long))
	}
	return c
}

// reset makes e the entry of a fresh key.
func (e *entry) reset(key []byte, p *layout) {
	*e = entry{layout: p, group: newGroup(), dropped: never}
	if len(key) <= inEntry {
		e.length = uint8(len(key))
		copy(e.rest[:], key[copy(e.name[:], key):])
	} else {
		long := string(key)
		e.length, e.long = isLong, &long
	}
	e.extend(p)
}

// extend makes p the layout of e, and adds the groups for p. All tiers of the
// former layout keep their positions in p.
func (e *entry) extend(p *layout) (spent int64) {
	if former := e.layout.tiers; e.dropped != never && !slices.Equal(former, p.tiers[:len(former)]) {
		e.flags |= mixedTTL // the tiers of p alone had no buckets to drop
	}
	e.layout = p
	g := &e.group
	for left := len(p.tiers); left > perGroup; left -= perGroup {
		if g.history == nil {
			g.history = newHistory()
			spent += historyCost
		}
		if g.history.next == nil {
			next := newGroup()
			g.history.next = &next
			spent += groupCost
		}
		g = g.history.next
	}
	return spent
}

// tier returns the group and the position in the group of tier i of the layout.
func (e *entry) tier(i int) (g *group, k int) {
	g = &e.group
	for ; i >= perGroup; i -= perGroup {
		g = g.history.next
	}
	return g, i
}

// find returns the tier of the given width with its buckets; g is nil if e has no
// such tier.
func (e *entry) find(width int64) (g *group, k int, t *tier) {
	i := find(e.layout.tiers, width)
	if i < 0 {
		return nil, 0, nil
	}
	g, k = e.tier(i)
	return g, k, &e.layout.tiers[i]
}

// expire drops the buckets of tier t, which is k of g, that have expired by now,
// and returns the memory freed, in buckets. The caller settles e.
func (e *entry) expire(g *group, k int, t *tier, now int64) (freed int64) {
	last, freed := g.expire(k, t.expired(now))
	if last != never {
		e.dropped = max(e.dropped, t.expiry(last))
	}
	return freed
}

// ready reports whether the newest buckets can take n hits at now, and the cost.
// The newest buckets are the buckets of l, or the buckets of l come after them.
func (e *entry) ready(l *latest, n, now int64) (cost int64, ok bool) {
	tiers := e.layout.tiers
	if len(tiers) > perGroup || n < 1 || n > half || e.flags != 0 {
		return 0, false
	}
	var missing [perGroup]int
	grows := false
	for k := range tiers {
		if b := &e.newest[k]; b.start == l.at[k].start && b.n > 0 && b.n <= half-n {
			continue
		}
		fits, full := e.fits(k, l.at[k].start, tiers[k].expired(now))
		if !fits {
			return 0, false
		}
		if full {
			missing[k], grows = 1, true
		}
	}
	if grows {
		cost = e.growth(&missing)
	}
	return cost, true
}

// advance adds n hits at now to an entry that is ready, and returns the memory
// taken, in buckets: not more than the cost that ready has told.
func (e *entry) advance(l *latest, n, now int64) (spent int64) {
	for k := range e.layout.tiers {
		b := &e.newest[k]
		if b.start != l.at[k].start {
			spent -= e.expire(&e.group, k, &e.layout.tiers[k], now)
			spent += e.put(k, l.at[k].start, n)
			continue
		}
		b.n += n
	}
	return spent
}

// look sets the flags that depend on the buckets. As long as all dropped buckets
// expired before the end of the newest, a label in the newest bucket needs none
// of them for a window that reaches back by a bucket less than the TTL.
func (e *entry) look() {
	e.flags &^= droppedAhead | large
	if e.dropped > plus(e.newest[0].start, e.layout.tiers[0].width) {
		e.flags |= droppedAhead
	}
	if e.isLarge() {
		e.flags |= large
	}
}

// emptyAt is the instant from which all buckets of e are expired.
func (e *entry) emptyAt() int64 { return e.rank(byEmpty) }

// lastHit is the start of the newest bucket of e: never if e has no bucket.
func (e *entry) lastHit() int64 { return e.rank(byHit) }

// rank is the instant by which e stands in a heap.
func (e *entry) rank(order int) int64 {
	at := int64(never)
	for i := range e.layout.tiers {
		g, k := e.tier(i)
		b := g.newest[k]
		switch {
		case b.n == 0:
		case order == byEmpty:
			at = max(at, e.layout.tiers[i].expiry(b.start))
		default:
			at = max(at, b.start)
		}
	}
	return at
}

// is reports whether e is the entry of key.
func (e *entry) is(key []byte) bool {
	switch n := len(e.name); {
	case len(key) <= n:
		return int(e.length) == len(key) && string(e.name[:len(key)]) == string(key)
	case len(key) <= inEntry:
		return int(e.length) == len(key) && string(e.name[:]) == string(key[:n]) && string(e.rest[:len(key)-n]) == string(key[n:])
	default:
		return e.length == isLong && *e.long == string(key)
	}
}

// key appends the key to dst.
func (e *entry) key(dst []byte) []byte {
	if e.length == isLong {
		return append(dst, *e.long...)
	}
	dst = append(dst, e.name[:min(int(e.length), len(e.name))]...)
	return append(dst, e.rest[:max(0, int(e.length)-len(e.name))]...)
}

// hash is the hash of the key of e.
func (s *Store) hash(e *entry) uint64 {
	if int(e.length) <= len(e.name) {
		return maphash.Bytes(s.seed, e.name[:e.length])
	}
	var buf [256]byte
	return maphash.Bytes(s.seed, e.key(buf[:0]))
}
