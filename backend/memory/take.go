package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// Take is described in [backend.Atomic]. A key that is denied, or peeked at,
// leaves no trace.
func (s *Store) Take(ctx context.Context, r *backend.TakeRequest) error {
	now, err := begin(ctx, r.Deadline, r.Now)
	if err != nil {
		return err
	}
	return s.step(r, now)
}

// step is a [backend.TakeRequest] on its way, on the stack: a call of up to a
// few keys allocates nothing unless buckets do.
type step struct {
	*backend.TakeRequest
	now    int64
	budget budget
	own    int64 // cost of the keys as they are

	few  [fewKeys]stepKey // in the order of the request's keys
	many []stepKey        // instead, if there are more
}

const fewKeys = 4

// stepKey is a key of a step.
type stepKey struct {
	access
	*backend.TakeKey
	plan  *plan // of the key's ladder
	ready bool  // the addition costs nothing
}

func (st *step) keys() []stepKey {
	if st.many != nil {
		return st.many
	}
	return st.few[:len(st.Keys)]
}

// step does r: all of it or nothing.
func (s *Store) step(r *backend.TakeRequest, now int64) error {
	if err := check(r); err != nil {
		return err
	}
	st := step{TakeRequest: r, now: now}
	if len(r.Keys) > fewKeys {
		st.many = make([]stepKey, len(r.Keys))
	}
	keys := st.keys()
	for i := range keys {
		key := &r.Keys[i]
		p := s.layouts.known(key.Ladder, key.TTLs)
		if p == nil {
			p = s.layouts.plan(key.Ladder, key.TTLs)
		}
		hash := maphash.Bytes(s.seed, key.Key)
		keys[i] = stepKey{access: access{shard: s.shard(hash), hash: hash}, TakeKey: key, plan: p}
	}
	for {
		needed, err := s.try(&st)
		if err == nil && needed > 0 {
			keep := make([]uint64, len(keys))
			for i := range keys {
				keep[i] = keys[i].hash
			}
			if err = s.obtain(&st.budget, needed, st.own, now, keep); err == nil {
				continue
			}
		}
		s.release(&st.budget)
		return err
	}
}

// check finds the caller's mistakes.
func check(r *backend.TakeRequest) error {
	for i := range r.Keys {
		key := &r.Keys[i]
		n := key.Ladder.Len()
		if n == 0 || len(key.TTLs) != n {
			return fmt.Errorf("memory: %d TTLs for a ladder of %d tiers, want one for each", len(key.TTLs), n)
		}
		for _, ttl := range key.TTLs {
			if ttl < 0 {
				return fmt.Errorf("memory: TTL %s, want above zero", ttl)
			}
		}
		if key.N < 0 || key.N > backend.MaxCount {
			return fmt.Errorf("memory: n %d, want 0 to %d", key.N, int64(backend.MaxCount))
		}
		for j := range key.Windows {
			if w := &key.Windows[j]; w.Finest < 0 || w.Finest >= n || w.Reach < 0 {
				return fmt.Errorf("memory: window of %s from tier %d, want a reach of zero or more and a tier of the ladder's %d", w.Reach, w.Finest, n)
			}
		}
	}
	return nil
}

// try does the step under the locks of its shards. A result above zero is the
// budget that the step needs and does not have; nothing was added.
func (s *Store) try(st *step) (needed int64, err error) {
	keys := st.keys()
	if len(keys) == 1 {
		sh := keys[0].shard
		sh.mu.Lock()
		needed, err = s.locked(st, keys)
		sh.mu.Unlock()
		return needed, err
	}
	var held shardSet
	for i := range keys {
		held.add(keys[i].shard)
	}
	s.lock(&held)
	needed, err = s.locked(st, keys)
	s.unlock(&held)
	return needed, err
}

func (s *Store) locked(st *step, keys []stepKey) (needed int64, err error) {
	for i := range keys {
		key := &keys[i]
		key.e = key.shard.table.find(key.hash, key.Key)
		if h := key.horizon(); h.behind(st.now) && !st.AnyLabel && key.stale(h, st) {
			return 0, errStale
		}
	}
	st.Allowed = true
	for i := range keys {
		key := &keys[i]
		key.Fits = key.judge(st.now, s)
		st.Allowed = st.Allowed && (key.Fits || key.Soft)
	}
	if st.Allowed && !st.Peek {
		if needed, err = s.addAll(st, keys); needed > 0 || err != nil {
			return needed, err
		}
	}
	for i := range keys {
		if key := &keys[i]; key.e != nil {
			key.report(st.now)
		}
	}
	return 0, nil
}

// addAll adds to all keys that fit, or to none.
func (s *Store) addAll(st *step, keys []stepKey) (needed int64, err error) {
	var buf [tiers.MaxTiers]addition
	st.own, st.budget.fresh = 0, false
	for i := range keys {
		key := &keys[i]
		if !key.adds() {
			continue
		}
		p, l := key.plan.layout, &key.shard.latest
		l.set(p, st.now)  // keys of one shard may have different ladders
		key.ready = false // an entry may be gone since another attempt
		if key.e != nil && key.e.layout == p {
			cost, ok := key.e.ready(l, key.N, st.now)
			key.ready = ok && cost == 0
		}
		if key.ready {
			continue
		}
		key.expire(p.tiers, st.now, &st.budget)
		key.layout = p
		cost, bad := s.need(&key.access, key.Key, p.tiers, l.additions(buf[:0]), key.N)
		if needed += cost; bad != nil {
			err = bad
		}
		if key.e == nil {
			st.budget.fresh = true
		} else if cost > 0 {
			st.own += key.e.cost()
		}
	}
	if err != nil || needed > 0 && !s.raise(&st.budget, needed) {
		// Nothing is added, so entries that have lost buckets are settled now.
		removed := false
		for i := range keys {
			if key := &keys[i]; key.e != nil && s.settle(key.shard, key.e, &st.budget) {
				removed = true
			}
		}
		if removed {
			return s.locked(st, keys) // with fresh keys, which need less
		}
		return needed, err
	}
	for i := range keys {
		key := &keys[i]
		if !key.adds() {
			continue
		}
		p, l := key.plan.layout, &key.shard.latest
		l.set(p, st.now)
		if key.ready {
			st.budget.left -= key.e.advance(l, key.N, st.now)
		} else {
			s.add(&key.access, key.Key, p.tiers, l.additions(buf[:0]), key.N, &st.budget)
		}
	}
	return 0, nil
}

// adds reports whether the key is added to in a step that is allowed.
func (key *stepKey) adds() bool { return key.Fits && key.N > 0 }

// judge fills in the count of each window, and reports whether all have room.
func (key *stepKey) judge(now int64, s *Store) bool {
	fits := true
	for i := range key.Windows {
		w := &key.Windows[i]
		w.Count, w.FreedBy, w.Newest = 0, tiers.Bucket{}, tiers.Bucket{}
		if g, k, t := key.tier(key.plan.of[w.Finest].at); g != nil {
			cut, reach := key.edge(w, t, now)
			w.Count = g.count(k, cut, reach, s)
		}
		fits = fits && w.Count <= w.Max-key.N
	}
	return fits
}

// tier returns tier i of the plan's layout with its buckets in the entry. If the
// entry has no such tier, g is nil and t the plan's.
func (key *stepKey) tier(i int) (g *group, k int, t *tier) {
	t = &key.plan.layout.tiers[i]
	if key.e == nil {
		return nil, 0, t
	}
	if key.e.layout != key.plan.layout {
		if g, k, stored := key.e.find(t.width); g != nil {
			return g, k, stored
		}
		return nil, 0, t
	}
	g, k = key.e.tier(i)
	return g, k, t
}

// edge returns the cutoff of w among the buckets of t, and the reach of w without
// the time in which all has expired.
func (key *stepKey) edge(w *backend.Window, t *tier, now int64) (cut, reach int64) {
	width := key.plan.of[w.Finest].width
	reach = max(0, min(int64(w.Reach), t.ttl-(width-t.width))) // see sumTTL
	cut = cutoff(now, reach, width)
	if width != t.width && cut != never {
		// All of the oldest sum that starts after the cutoff, and nothing of the sum
		// before.
		if first := cover.Index(cut, width) + 1; first <= math.MaxInt64/width {
			cut = first*width - 1
		}
	}
	return cut, reach
}

// report fills in FreedBy and Newest of each window after the step.
func (key *stepKey) report(now int64) {
	for i := range key.Windows {
		w := &key.Windows[i]
		at, width := key.plan.of[w.Finest].at, key.plan.of[w.Finest].width
		g, k, t := key.tier(at)
		if g == nil {
			continue
		}
		cut, _ := key.edge(w, t, now)
		if b := g.newest[k]; b.n > 0 && b.start > cut {
			if l := &key.shard.latest; l.layout == key.plan.layout && l.at[at].start == b.start && width == t.width {
				w.Newest = tiers.Bucket{Width: time.Duration(width), Index: l.at[at].index}
			} else {
				w.Newest = bucketAt(b.start, width)
			}
		}
		if need := w.Count - (w.Max - key.N); need > 0 && w.Count > 0 {
			w.FreedBy = bucketAt(g.freedBy(k, cut, need), width)
		}
	}
}

// stale reports whether the step needs dropped buckets of the key: for a window,
// or because the label's own bucket would be among them.
func (key *stepKey) stale(h horizon, st *step) bool {
	for i := range key.Windows {
		w := &key.Windows[i]
		_, _, t := key.tier(key.plan.of[w.Finest].at)
		if cut, _ := key.edge(w, t, st.now); h.hides(t, plus(cut, 1)) {
			return true
		}
	}
	if st.Peek || key.N == 0 {
		return false
	}
	for i := range key.plan.layout.tiers {
		_, _, t := key.tier(i)
		if start := cover.Index(st.now, t.width) * t.width; h.hides(t, start) && !key.has(t.width, start) {
			return true
		}
	}
	return false
}
