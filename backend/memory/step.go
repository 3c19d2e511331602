package memory

import (
	"math"
	"math/bits"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// step is a [counter.Taking] on its way. It lives on the stack: a call of up to
// a few demands allocates nothing unless buckets do.
type step struct {
	t     *counter.Taking
	now   int64
	shape *shape
	room  room
	own   int64 // cost of the keys as they are

	parts     [inPlace]part // of the demands, in their order
	moreParts []part        // instead, if they are more
}

// part is what is known of one demand.
type part struct {
	hash uint64
	e    *entry // nil if the key is not known
}

// inPlace is how many demands a step has room for without allocating.
const inPlace = 4

func (st *step) all() []part {
	if st.moreParts != nil {
		return st.moreParts
	}
	return st.parts[:len(st.t.Demands)]
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
		if p.e = sh.table.find(p.hash, t.Demands[i].Key); sh.droppedOf(p.e) > st.now && !t.AnyLabel && st.stale(sh, p.e, t.Demands[i].Windows) {
			return 0, errStale
		}
	}
	for i := range parts {
		p, d := &parts[i], &t.Demands[i]
		if !s.weigh(st, p.e, d.Windows) {
			t.Allowed = false
		}
	}
	if t.Allowed && !t.Peek {
		for i := range parts {
			n, bad := s.lacks(st, &parts[i], t.Demands[i].Key)
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
			s.add(st, &parts[i], t.Demands[i].Key)
		}
	}
	for i := range parts {
		if p := &parts[i]; p.e != nil {
			st.report(p.e, &s.shard(p.hash).clock, t.Demands[i].Windows)
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
func (s *Store) weigh(st *step, e *entry, windows []counter.Window) bool {
	all := true
	for i := range windows {
		w := &windows[i]
		w.Count, w.Leaves, w.Newest = 0, tiers.Bucket{}, tiers.Bucket{}
		if e != nil {
			if n, k, t := e.locate(st.shape.prof, st.shape.of[w.Finest].at); n != nil {
				cut, reach := st.edge(w, t)
				w.Count = n.count(k, cut, reach, s)
			}
		}
		all = all && w.Count <= w.Max-st.t.N
	}
	return all
}

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
func (s *Store) lacks(st *step, p *part, key []byte) (n int64, err error) {
	e, sh := p.e, s.shard(p.hash)
	sh.clock.set(st.shape.prof, st.now)
	if e == nil {
		if st.t.N > counter.MaxCount {
			err = full(st.shape.prof.tiers[0].width, sh.clock.at[0].start, 0, st.t.N)
		}
		return freshCost(len(key), st.shape.prof), err
	}
	covered := e.prof == st.shape.prof || e.prof.covers(st.shape.prof.tiers)
	if !covered {
		n = s.profiles.union(e.prof, st.shape.prof.tiers).chain() - e.prof.chain()
	}
	// All that is expired goes before anything is reckoned, because rings share
	// what is beside them.
	for j := range st.shape.prof.tiers {
		at, k, t := e.locate(st.shape.prof, j)
		if at == nil {
			continue
		}
		// Where the newest bucket is the label's own, nothing is to be dropped for it
		// to grow; but what has expired counts no more against counter.MaxCount.
		if c := &at.newest[k]; !covered || c.start != sh.clock.at[j].start || e.odd&isBig != 0 || c.n > st.shape.safe-st.t.N {
			if last, freed := at.expire(k, t.expired(st.now)); last != never {
				st.room.left += freed
				e.drops(last, t)
			}
		}
	}
	b := bill{lacks: n}
	for j := range st.shape.prof.tiers {
		at, k, t := e.locate(st.shape.prof, j)
		if at == nil {
			continue
		}
		start := sh.clock.at[j].start
		count := at.get(k, start)
		if count > counter.MaxCount-st.t.N || (e.odd&isBig != 0 || count > st.shape.safe-st.t.N) && at.all(k) > counter.MaxCount-st.t.N {
			return 0, full(t.width, start, count, st.t.N)
		}
		if count == 0 {
			b = b.plus(at, k, 1)
		}
	}
	if b.lacks > 0 {
		st.own += e.cost()
	}
	return b.lacks, nil
}

// add adds to a demand, for which there is room.
func (s *Store) add(st *step, p *part, key []byte) {
	e, sh := p.e, s.shard(p.hash)
	fresh := e == nil
	if fresh {
		e = s.insert(sh, p.hash, key, st.shape.prof, &st.room)
		p.e = e
	} else if e.prof != st.shape.prof && !e.prof.covers(st.shape.prof.tiers) {
		st.room.left -= e.extend(s.profiles.union(e.prof, st.shape.prof.tiers))
	}
	for j := range st.shape.prof.tiers {
		n, k, _ := e.locate(st.shape.prof, j)
		count, spent := n.put(k, sh.clock.at[j].start, st.t.N)
		st.room.left -= spent
		if count > st.shape.safe {
			e.odd |= isBig
		}
	}
	e.look()
	if fresh {
		s.enter(sh, e)
	}
}

// report fills in what is known of each window after the step.
func (st *step) report(e *entry, c *clock, windows []counter.Window) {
	added := st.t.Allowed && !st.t.Peek // so c is of this step
	for i := range windows {
		w := &windows[i]
		at, width := st.shape.of[w.Finest].at, st.shape.of[w.Finest].width
		n, k, t := e.locate(st.shape.prof, at)
		if n == nil {
			continue
		}
		cut, _ := st.edge(w, t)
		start := n.newest[k].start
		if m := &c.at[at]; added && start == m.start && width == t.width {
			w.Newest = tiers.Bucket{Width: time.Duration(width), Index: m.index}
		} else if n.newest[k].n > 0 && start > cut {
			w.Newest = bucket(start, width)
		}
		if need := w.Count - (w.Max - st.t.N); need > 0 && w.Count > 0 {
			w.Leaves = bucket(n.leaves(k, cut, need), width)
		}
	}
}

// edge is the instant after which cells of t start that count in w, and how far
// that looks back: not beyond what has expired.
func (st *step) edge(w *counter.Window, t *tier) (cut, reach int64) {
	width := st.shape.of[w.Finest].width
	reach = max(0, min(add(int64(w.Per), int64(st.t.Slack)), t.ttl-(width-t.width))) // see sumTTL
	cut = cutoff(st.now, reach, width)
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
