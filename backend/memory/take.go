package memory

import (
	"context"
	"fmt"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// fewKeys is the number of keys of a call that allocates nothing unless buckets do.
const fewKeys = 4

// Take is described in [backend.Atomic]. A key that is denied, or peeked at,
// leaves no trace.
func (s *Store) Take(ctx context.Context, r *backend.TakeRequest) error {
	now, err := begin(ctx, r.Deadline, r.Now)
	if err == nil {
		err = check(r)
	}
	if err != nil {
		return err
	}
	var few [fewKeys]access
	keys := few[:0]
	if len(r.Keys) > fewKeys {
		keys = make([]access, 0, len(r.Keys))
	}
	var held shardSet
	for i := range r.Keys {
		key := &r.Keys[i]
		keys = append(keys, s.access(key.Key, s.layouts.plan(key.Ladder, key.TTLs)))
		held.add(keys[i].shard)
	}
	return s.retry(held, keys, now, func() (need, error) { return s.step(r, keys, now) })
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

// step does r under the locks of its shards: all of it or nothing. If the step lacks
// memory, nothing is done but need filled in.
func (s *Store) step(r *backend.TakeRequest, keys []access, now int64) (need need, err error) {
	for i := range keys {
		a := &keys[i]
		if err := a.find(r.Keys[i].Key); err != nil {
			return need, err
		}
		if a.behind(now) && !r.AnyLabel && a.stale(&r.Keys[i], now, r.Peek) {
			return need, errStale
		}
	}
	r.Allowed = true
	for i := range keys {
		key := &r.Keys[i]
		key.Fits = keys[i].judge(key, now)
		r.Allowed = r.Allowed && (key.Fits || key.Soft)
	}
	if r.Allowed && !r.Peek {
		r.Taken = r.Fitting()
		if need, err = s.addAll(r, keys, now); need.n > 0 || err != nil {
			return need, err
		}
	}
	for i := range keys {
		keys[i].report(&r.Keys[i], now)
	}
	return need, nil
}

// addAll adds to all keys that fit, or to none.
func (s *Store) addAll(r *backend.TakeRequest, keys []access, now int64) (lack need, err error) {
	var buf [tiers.MaxTiers]addition
	for i := range keys {
		a, key := &keys[i], &r.Keys[i]
		if !key.Fits || key.N == 0 {
			continue
		}
		var cost int64
		n := key.N * r.Taken
		if !a.fresh && a.e.layout == a.plan.layout {
			cost, a.newest = a.e.opening(n, now)
		}
		if !a.newest {
			if cost, err = s.want(a, key.Key, a.at(now, buf[:0]), n, now); err != nil {
				return need{}, err
			}
		}
		lack.n += cost
		lack.fresh = lack.fresh || a.fresh
		if cost > 0 {
			lack.own += a.cost()
		}
	}
	if lack.n > 0 && !s.reserve(lack.n, s.bound(lack.fresh)) {
		return lack, nil
	}
	spent := -lack.n
	for i := range keys {
		a, key := &keys[i], &r.Keys[i]
		switch {
		case !key.Fits || key.N == 0:
		case a.newest:
			spent += a.e.open(key.N*r.Taken, now)
		default:
			spent += s.add(a, key.Key, a.at(now, buf[:0]), key.N*r.Taken, now)
		}
	}
	s.pay(spent)
	return need{}, nil
}

// at appends the buckets of all tiers that hold now.
func (a *access) at(now int64, adds []addition) []addition {
	for k, t := range a.plan.layout.tiers() {
		adds = append(adds, addition{k, floor(now, t.width)})
	}
	return adds
}

// judge fills in the count of each window, and reports whether all have room.
func (a *access) judge(key *backend.TakeKey, now int64) bool {
	fits := true
	for i := range key.Windows {
		w := &key.Windows[i]
		k, from := a.plan.edge(w, a.e.layout, now)
		w.Count, w.FreedBy, w.Newest = a.e.ring(k).window(from, i), tiers.Bucket{}, tiers.Bucket{}
		fits = fits && w.Count <= w.Max-key.N
	}
	return fits
}

// report fills in FreedBy and Newest of each window after the step.
func (a *access) report(key *backend.TakeKey, now int64) {
	for i := range key.Windows {
		w := &key.Windows[i]
		width := key.Ladder.At(w.Finest).Width
		k, from := a.plan.edge(w, a.e.layout, now)
		r := a.e.ring(k)
		if r.last.sum > 0 && r.last.start >= from {
			w.Newest = tiers.Bucket{Width: width, Index: tiers.Index(r.last.start, width)}
		}
		if need := w.Count - (w.Max - key.N); need > 0 && w.Count > 0 {
			w.FreedBy = tiers.Bucket{Width: width, Index: tiers.Index(r.freedBy(from, need), width)}
		}
	}
}

// stale reports whether the step needs dropped buckets of the key: for a window,
// or because the label's own bucket would be among them.
func (a *access) stale(key *backend.TakeKey, now int64, peek bool) bool {
	for i := range key.Windows {
		if k, from := a.plan.edge(&key.Windows[i], a.e.layout, now); a.hides(k, from) {
			return true
		}
	}
	if peek || key.N == 0 {
		return false
	}
	for k, t := range a.plan.layout.tiers() {
		if start := floor(now, t.width); a.hides(k, start) && !a.has(k, start) {
			return true
		}
	}
	return false
}
