package memory

import (
	"hash/maphash"

	"github.com/abacus-go/abacus/backend"
)

// quota is the fast path of nearly all admissions and denials: a single known key, and
// no label before the newest buckets if hits are added.
type quota struct {
	store   *Store
	plan    *plan
	windows []quotaWindow
	head    int               // length of the beginning that all keys share
	key     [maxQuotaKey]byte // the beginning
}

// quotaWindow is a [backend.Window] of a quota, in buckets of the given width.
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
	q := &quota{store: s, plan: p, head: len(t.Key)}
	copy(q.key[:], t.Key)
	for i := range t.Windows {
		w := &t.Windows[i]
		q.windows = append(q.windows, quotaWindow{w.Max, int64(w.Reach), int64(t.Ladder.At(w.Finest).Width), p.of[w.Finest]})
	}
	return q
}

// Admit is described in [backend.Quota].
func (q *quota) Admit(rest string, n, label int64) (a backend.Admission) {
	key, length := q.key, q.head+len(rest)
	if length > len(key) || n < 1 || n > backend.MaxCount {
		return a
	}
	copy(key[q.head:], rest)
	hash := maphash.Bytes(q.store.seed, key[:length])
	sh := q.store.shard(hash)
	sh.mu.Lock()
	if e := sh.table.find(hash, key[:length]); e != nil && e.layout == q.plan.layout && e.dropped <= label+grace && q.admit(e, n, label, &a) {
		sh.admissions++
		a.Number = sh.admissions*shards + uint64(sh.index)
	}
	sh.mu.Unlock()
	return a
}

// admit adds n hits to e, or denies them, and fills in the answer; or does nothing: if
// the label is older than the newest bucket, or if a full store has to find memory.
func (q *quota) admit(e *entry, n, label int64, a *backend.Admission) bool {
	for i := range q.windows {
		w := &q.windows[i]
		r, from := e.ring(w.tier), e.layout.all[w.tier].edge(label, w.reach, w.width)
		a.Counts[i], a.Newest[i] = r.window(from, i), r.last.start
		if need := a.Counts[i] - (w.max - n); need > 0 {
			a.Denied, a.FreedBy[i] = true, r.freedBy(from, need)
		}
	}
	if a.Denied {
		return false
	}
	cost, ok := e.opening(n, label)
	if !ok || cost > 0 && !q.store.reserve(cost, q.store.max) {
		return false
	}
	q.store.pay(e.open(n, label) - cost)
	return true
}
