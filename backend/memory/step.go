package memory

import (
	"math"
	"math/bits"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// step is a [backend.TakeRequest] on its way. It lives on the stack: a call of up to
// a few demands allocates nothing unless buckets do.
type step struct {
	t    *backend.TakeRequest
	now  int64
	room room
	own  int64 // cost of the keys as they are

	parts     [inPlace]part // of the demands, in their order
	moreParts []part        // instead, if they are more
}

// part is what is known of one demand.
type part struct {
	key   *backend.TakeKey
	shape *shape // of the key's ladder
	hash  uint64
	e     *entry // nil if the key is not known
}

// inPlace is how many demands a step has room for without allocating.
const inPlace = 4

func (st *step) all() []part {
	if st.moreParts != nil {
		return st.moreParts
	}
	return st.parts[:len(st.t.Keys)]
}

// try does the step under the locks of its shards, all of it or nothing. It
// lacks room for that many buckets if the result is above zero.
func (s *Store) try(st *step) (lacks int64, err error) {
	parts := st.all()
	if len(parts) == 1 {
		sh := s.shard(parts[0].hash)
		sh.mu.Lock()
		lacks, err = s.locked(st, parts)
		sh.mu.Unlock()
		return lacks, err
	}
	var held [maxShards / 64]uint64
	for i := range parts {
		sh := parts[i].hash >> s.shift
		held[sh/64] |= 1 << (sh % 64)
	}
	each(&held, func(i int) { s.shards[i].mu.Lock() })
	lacks, err = s.locked(st, parts)
	each(&held, func(i int) { s.shards[i].mu.Unlock() })
	return lacks, err
}

func each(set *[maxShards / 64]uint64, f func(i int)) {
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			f(64*w + bits.TrailingZeros64(word))
		}
	}
}

func (s *Store) locked(st *step, parts []part) (lacks int64, err error) {
	t := st.t
	t.Allowed, st.own = true, 0
	for i := range parts {
		p := &parts[i]
		sh := s.shard(p.hash)
		if p.e = sh.table.find(p.hash, p.key.Key); sh.droppedOf(p.e) > st.now && !t.AnyLabel && st.stale(sh, p) {
			return 0, errStale
		}
	}
	for i := range parts {
		p := &parts[i]
		p.key.Fits = s.weigh(st, p)
		t.Allowed = t.Allowed && (p.key.Fits || p.key.Soft)
	}
	if t.Allowed && !t.Peek {
		for i := range parts {
			if !parts[i].adds() {
				continue
			}
			n, bad := s.lacks(st, &parts[i])
			lacks += n
			if bad != nil {
				err = bad
			}
		}
		if err != nil || lacks > 0 && !s.has(&st.room, lacks) {
			if s.settle(st, parts) {
				return s.locked(st, parts) // with fresh keys, which need less
			}
			return lacks, err
		}
		for i := range parts {
			if parts[i].adds() {
				s.add(st, &parts[i])
			}
		}
	}
	for i := range parts {
		if p := &parts[i]; p.e != nil {
			st.report(p, &s.shard(p.hash).clock)
		}
	}
	return 0, nil
}

// settle puts right what expired cells have left where nothing is added after
// all: entries that are not where they belong in the heaps, or are empty, and
// removed. (An addition makes an entry newer than anything that expired.)
func (s *Store) settle(st *step, parts []part) (removed bool) {
	for _, p := range parts {
		if p.e != nil && s.lower(s.shard(p.hash), p.e, &st.room) {
			removed = true
		}
	}
	return removed
}

// weigh fills in the count of each window, and tells whether all have room.
func (s *Store) weigh(st *step, p *part) bool {
	all := true
	for i := range p.key.Windows {
		w := &p.key.Windows[i]
		w.Count, w.FreedBy, w.Newest = 0, tiers.Bucket{}, tiers.Bucket{}
		if p.e != nil {
			if n, k, t := p.e.locate(p.shape.prof, p.shape.of[w.Finest].at); n != nil {
				cut, reach := p.edge(w, t, st.now)
				w.Count = n.count(k, cut, reach, s)
			}
		}
		all = all && w.Count <= w.Max-p.key.N
	}
	return all
}

// adds tells whether the key is added to in a step that is allowed.
func (p *part) adds() bool { return p.key.Fits && p.key.N > 0 }

// locate is where e keeps tier i of p; n is nil if it does not.
func (e *entry) locate(p *profile, i int) (n *entry, k int, t *tier) {
	if e.prof != p {
		if i = e.prof.find(p.tiers[i].width); i < 0 {
			return nil, 0, nil
		}
	}
	n, k = e.tier(i)
	return n, k, &e.prof.tiers[i]
}

// lacks is what the addition to a demand needs of the bound. It drops what is
// expired, so that rings do not grow for it, and longer TTLs do not bring it
// back.
func (s *Store) lacks(st *step, p *part) (n int64, err error) {
	e, sh, hits := p.e, s.shard(p.hash), p.key.N
	sh.clock.set(p.shape.prof, st.now)
	if e == nil {
		return freshCost(len(p.key.Key), p.shape.prof), nil
	}
	covered := e.prof == p.shape.prof || e.prof.covers(p.shape.prof.tiers)
	if !covered {
		n = s.profiles.union(e.prof, p.shape.prof.tiers).chain() - e.prof.chain()
	}
	// All that is expired goes before anything is reckoned, because rings share
	// what is beside them.
	for j := range p.shape.prof.tiers {
		at, k, t := e.locate(p.shape.prof, j)
		if at == nil {
			continue
		}
		// Where the newest bucket is the label's own, nothing is to be dropped for it
		// to grow; but what has expired counts no more against counter.MaxCount.
		if c := &at.newest[k]; !covered || c.start != sh.clock.at[j].start || at.all(k) > backend.MaxCount-hits {
			if last, freed := at.expire(k, t.expired(st.now)); last != never {
				st.room.left += freed
				e.drops(last, t)
			}
		}
	}
	b := bill{lacks: n}
	for j := range p.shape.prof.tiers {
		at, k, t := e.locate(p.shape.prof, j)
		if at == nil {
			continue
		}
		start := sh.clock.at[j].start
		if sum := at.all(k); sum > backend.MaxCount-hits {
			return 0, full(t.width, sum, hits)
		}
		if at.get(k, start) == 0 {
			b = b.plus(at, k, 1)
		}
	}
	if b.lacks > 0 {
		st.own += e.cost()
	}
	return b.lacks, nil
}

// add adds to a demand, for which there is room.
func (s *Store) add(st *step, p *part) {
	e, sh := p.e, s.shard(p.hash)
	sh.clock.set(p.shape.prof, st.now) // keys of one shard may have different ladders
	fresh := e == nil
	if fresh {
		e = s.insert(sh, p.hash, p.key.Key, p.shape.prof, &st.room)
		p.e = e
	} else if e.prof != p.shape.prof && !e.prof.covers(p.shape.prof.tiers) {
		st.room.left -= e.extend(s.profiles.union(e.prof, p.shape.prof.tiers))
	}
	for j := range p.shape.prof.tiers {
		n, k, _ := e.locate(p.shape.prof, j)
		_, spent := n.put(k, sh.clock.at[j].start, p.key.N)
		st.room.left -= spent
	}
	e.look()
	if fresh {
		s.enter(sh, e)
	}
}

// report fills in what is known of each window after the step.
func (st *step) report(p *part, c *clock) {
	e, added := p.e, st.t.Allowed && !st.t.Peek && p.adds()
	if added {
		c.set(p.shape.prof, st.now)
	}
	for i := range p.key.Windows {
		w := &p.key.Windows[i]
		at, width := p.shape.of[w.Finest].at, p.shape.of[w.Finest].width
		n, k, t := e.locate(p.shape.prof, at)
		if n == nil {
			continue
		}
		cut, _ := p.edge(w, t, st.now)
		start := n.newest[k].start
		if m := &c.at[at]; added && start == m.start && width == t.width {
			w.Newest = tiers.Bucket{Width: time.Duration(width), Index: m.index}
		} else if n.newest[k].n > 0 && start > cut {
			w.Newest = bucket(start, width)
		}
		if need := w.Count - (w.Max - p.key.N); need > 0 && w.Count > 0 {
			w.FreedBy = bucket(n.leaves(k, cut, need), width)
		}
	}
}

// edge is the instant after which cells of t start that count in w, and how far
// that looks back: not beyond what has expired.
func (p *part) edge(w *backend.Window, t *tier, now int64) (cut, reach int64) {
	width := p.shape.of[w.Finest].width
	reach = max(0, min(int64(w.Reach), t.ttl-(width-t.width))) // see sumTTL
	cut = cutoff(now, reach, width)
	if width != t.width && cut != never {
		// All of the oldest bucket that starts after that, and none of the one before.
		if first := floorDiv(cut, width) + 1; first <= math.MaxInt64/width {
			cut = first*width - 1
		}
	}
	return cut, reach
}

// leaves is the start of the cell of tier k with which, and all before that
// start after cut, need is gone.
func (n *entry) leaves(k int, cut, need int64) int64 {
	j, last := n.lower(k, after(cut, 1)), n.size(k)-1
	for ; j < last; j++ {
		if need -= n.cell(k, j).n; need <= 0 {
			break
		}
	}
	return n.cell(k, j).start
}
