package memory

import (
	"hash/maphash"

	"github.com/abacus-go/abacus/backend"
)

// quota is the short way of nearly all admissions: a single known key, the label
// in its newest buckets or its rings with room for the next, and room in every
// window.
type quota struct {
	store   *Store
	layout  *layout
	windows []quotaWindow
	head    int               // length of the beginning that all keys share
	key     [maxQuotaKey]byte // the beginning
}

// quotaWindow is a [backend.Window] of a quota; tier is of the layout.
type quotaWindow struct {
	max, reach, width int64
	tier              int
}

// maxQuotaKey is the length of the longest key of a quota. A longer array
// would cost every call time.
const maxQuotaKey = 96

// Bind is described in [backend.Local].
func (s *Store) Bind(asked backend.Store, t *backend.TakeKey) backend.Quota {
	if asked != backend.Store(s) || len(t.Windows) > backend.MaxAdmission || len(t.Key) > maxQuotaKey {
		return nil
	}
	if check(&backend.TakeRequest{Keys: []backend.TakeKey{*t}}) != nil {
		return nil
	}
	p := s.layouts.plan(t.Ladder, t.TTLs)
	q := &quota{store: s, layout: p.layout, head: len(t.Key)}
	copy(q.key[:], t.Key)
	tiers := p.layout.tiers
	for i := range t.Windows {
		w := &t.Windows[i]
		of, reach := &p.of[w.Finest], int64(w.Reach)
		width := tiers[of.at].width
		if len(tiers) > perGroup || width != of.width || reach > tiers[of.at].ttl-tiers[0].width {
			return nil // the tier is a sum, or what was dropped may be needed: see look
		}
		q.windows = append(q.windows, quotaWindow{w.Max, reach, width, of.at})
	}
	return q
}

// Admit is described in [backend.Quota].
func (q *quota) Admit(rest string, n, label int64) (a backend.Admission) {
	key, length := q.key, q.head+len(rest)
	if length > len(key) || n < 1 || n > half {
		return a
	}
	copy(key[q.head:], rest)
	s := q.store
	hash := maphash.Bytes(s.seed, key[:length])
	sh := s.shard(hash)
	sh.mu.Lock()
	e := sh.table.find(hash, key[:length])
	if e == nil || e.layout != q.layout {
		sh.mu.Unlock()
		return a
	}
	l := &sh.latest
	l.set(q.layout, label)
	cost, ok := e.ready(l, n, label)
	if !ok {
		sh.mu.Unlock()
		return a
	}
	for i := range q.windows {
		w := &q.windows[i]
		count := e.count(w.tier, cutoff(label, w.reach, w.width), w.reach, s)
		if count > w.max-n {
			sh.mu.Unlock()
			return backend.Admission{}
		}
		a.Counts[i] = count
	}
	if cost > 0 && !s.reserve(cost, s.max) {
		sh.mu.Unlock()
		return backend.Admission{} // Take finds memory
	}
	if left := cost - e.advance(l, n, label); left != 0 {
		s.spent.Add(-left)
	}
	sh.admissions++
	a.Number = sh.admissions*uint64(len(s.shards)) + uint64(sh.index)
	sh.mu.Unlock()
	return a
}
