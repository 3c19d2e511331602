package fallback

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
)

const localShards = 64 // a bit each in a uint64

type localShard struct {
	mu   sync.Mutex
	keys map[counter.Key]*localKey
}

// localKey is a key with calls under way to the store or with pending hits,
// under the lock of a shard.
type localKey struct {
	local    *local
	key      counter.Key
	hash     uint64
	store    *counter.Counter // on the ladder of the rule
	calls    int              // under way, whose answers have not been judged
	admitted uint64           // number of admissions here since the localKey exists
	pending  []*pendingHits   // oldest first
	queued   bool             // the carrier has the key
	unsure   bool             // the last carry had no answer, and may have been counted
	answered chan struct{}    // closed after the answer to the carry under way; nil: there is none
}

// pendingHits are hits admitted here in one bucket of the finest tier, and not
// yet known to be in the store.
type pendingHits struct {
	bucket   int64
	at       time.Time // the latest label
	n        int64
	sending  int64 // of n, under way to the store
	refunded int64 // of sending: to give back when the carry is answered
	late     int   // calls under way for hits of the bucket: the store may yet count these hits, and take them back
}

func (l *local) shard(key counter.Key) (hash uint64, s *localShard) {
	hash = maphash.Comparable(l.seed, key)
	return hash, &l.shards[hash%localShards]
}

// lock locks the shards of a set, in one order for all callers.
func (l *local) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		l.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (l *local) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		l.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// key returns the localKey of key, which counts on store now: a Replace may have
// changed the ladder. The caller holds the lock of the shard.
func (l *local) key(key counter.Key, store *counter.Counter) *localKey {
	hash, s := l.shard(key)
	k := s.keys[key]
	if k == nil {
		k = &localKey{local: l, key: key, hash: hash}
		s.keys[key] = k
	}
	k.store = store
	return k
}

func (k *localKey) shard() *localShard { return &k.local.shards[k.hash%localShards] }

// held are the pending hits in the window of each limit; nil if there are none.
func (k *callKey) held() (held []int64) {
	for _, p := range k.pending {
		cfg := k.local.here.Config()
		now := cfg.Now()
		for j, limit := range k.rule.limits {
			if now.Sub(endOf(limit, p.at)) > cfg.Skew {
				continue
			}
			if held == nil {
				held = make([]int64, len(k.rule.limits))
			}
			held[j] += p.n
		}
	}
	return held
}

// endOf is the instant from which on a hit of a label is in no window of limit.
func endOf(limit counter.Limit, label time.Time) time.Time {
	if limit.Period.IsZero() {
		return label.Add(limit.Per)
	}
	_, end := limit.Period.Span(label.UnixNano())
	return time.Unix(0, end)
}

// pend adds n hits of a label to the pending hits of a bucket.
func (k *localKey) pend(bucket int64, at time.Time, n int64) *pendingHits {
	i := slices.IndexFunc(k.pending, func(p *pendingHits) bool { return p.bucket == bucket })
	if i < 0 {
		i = len(k.pending)
		k.pending = append(k.pending, &pendingHits{bucket: bucket})
		k.local.carrier.entries.Add(1)
	}
	p := k.pending[i]
	p.n += n
	if at.After(p.at) {
		p.at = at
	}
	k.local.numbers.pending.Add(n)
	return p
}

// sendable returns the oldest hits that no call under way may yet count; nil if
// there are none.
func (k *localKey) sendable() *pendingHits {
	for _, p := range k.pending {
		if p.late == 0 && p.n > 0 {
			return p
		}
	}
	return nil
}

// tidy forgets pending hits of none, and then the key, if nothing is known of it. The
// table may have another localKey of the key by then.
func (k *localKey) tidy() {
	before := len(k.pending)
	k.pending = slices.DeleteFunc(k.pending, func(p *pendingHits) bool { return p.n == 0 && p.late == 0 })
	k.local.carrier.entries.Add(int64(len(k.pending) - before))
	if keys := k.shard().keys; k.calls == 0 && len(k.pending) == 0 && !k.queued && keys[k.key] == k {
		delete(keys, k.key)
	}
}

// Begin asks the local counter about n hits of key, at which r looks. Hits that it counts
// are carried to the store by the ladder of r, where the other processes find them. If too
// many hits wait, these stay in this process.
func (r *Rule) Begin(m Mode, key counter.Key, n int64, limits counter.Limits) (v counter.Verdict, ok bool) {
	ask := r.here.Take
	switch m {
	case Peeking:
		ask = r.here.Peek
	case Charging:
		ask = r.here.Charge
	}
	v, err := ask(context.Background(), key, n, limits)
	l := r.local
	if err != nil || m == Peeking || m == Taking && !v.Allowed || l.carrier.full(1) {
		return v, err == nil
	}
	at := r.here.Config().Now()
	_, s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := l.key(key, r.store)
	k.pend(r.bucket(at), at, n)
	l.carrier.put(k)
	return v, true
}

// Learn has the local counter know n hits of key beyond limit, one of those by which r
// looks, that the store has answered, for the time without the store: left is the time
// until limit is not exceeded. The hits end here a bucket and the Skew of the local
// counter later at most. A local counter that is full does not learn hits.
func (r *Rule) Learn(key counter.Key, n int64, limit counter.Limit, left time.Duration) {
	if known, err := r.here.Peek(context.Background(), key, 0, counter.Limits{limit}); err == nil && known.RetryAfter > 0 {
		return
	}
	since := max(0, limit.Per-left)
	_ = r.here.AddAt(context.Background(), key, n, r.here.Config().Now().Add(-since))
}

// Forget drops the hits of a key that wait to be carried, and waits for the
// answer to a carry under way, which would add its hits afterwards.
func (f *Fallback) Forget(ctx context.Context, key counter.Key) error {
	for f.local != nil {
		answered := f.local.forget(key)
		if answered == nil {
			break
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return fmt.Errorf("event %q: hits are being carried to the store: %w", key.Event, cmp.Or(ctx.Err(), context.Canceled))
		}
	}
	return nil
}

// forget drops the hits of a key that are not on their way to the store. answered is
// closed after the answer to the others, and nil if there are none.
func (l *local) forget(key counter.Key) (answered <-chan struct{}) {
	_, s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[key]
	if k == nil {
		return nil
	}
	for _, p := range k.pending {
		l.numbers.pending.Add(p.sending - p.n)
		p.n = p.sending
	}
	k.tidy()
	return k.answered
}
