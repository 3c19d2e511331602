package memory

import (
	"hash/maphash"
	"slices"
	"strings"

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
	stored            tier
	back              int64 // of a window in stored buckets: from a label to the last start outside
}

// from returns the instant from which on buckets start in the window at label. Stored
// buckets take no division, and no call.
func (w *quotaWindow) from(label int64) int64 {
	if from := label - w.back + 1; w.width == w.stored.width && from < label {
		return from
	}
	return w.stored.edge(label, w.reach, w.width)
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
	if slices.ContainsFunc(t.Windows, func(w backend.Window) bool { return !w.Period.IsZero() }) {
		return nil // the reach is another in each call
	}
	p := s.layouts.plan(t.Ladder, t.TTLs)
	q := &quota{store: s, plan: p, head: len(t.Key)}
	copy(q.key[:], t.Key)
	for i := range t.Windows {
		w := &t.Windows[i]
		k, reach, width := p.of[w.Finest], int64(w.Reach), int64(t.Ladder.At(w.Finest).Width)
		stored := p.layout.all[k]
		q.windows = append(q.windows, quotaWindow{w.Max, reach, width, k, stored, min(reach, stored.ttl) + width})
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
	if e := sh.table.find(hash, key[:length]); e != nil && e.layout == q.plan.layout && e.dropped <= label+grace &&
		!(e.escaped && strings.Contains(rest, "%")) && q.admit(e, n, label, &a) {
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
		a.Counts[i] = e.ring(w.tier).window(w.from(label), i)
		a.Denied = a.Denied || a.Counts[i] > w.max-n
	}
	if a.Denied {
		q.deny(e, n, label, a)
		return false
	}
	if e.hit(n, label) {
		return true
	}
	cost, ok := e.opening(n, label)
	if !ok || cost > 0 && !q.store.reserve(cost, q.store.max) {
		return false
	}
	q.store.pay(e.open(n, label) - cost)
	return true
}

// deny adds to the answer what a denial says besides the counts.
func (q *quota) deny(e *entry, n, label int64, a *backend.Admission) {
	for i := range q.windows {
		w := &q.windows[i]
		r := e.ring(w.tier)
		a.Newest[i] = r.last.start
		if need := a.Counts[i] - (w.max - n); need > 0 {
			a.FreedBy[i] = r.freedBy(w.from(label), need)
		}
	}
}
