package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

const localShards = 64 // a bit each in a uint64

type localShard struct {
	mu   sync.Mutex
	keys map[counter.Key]*localKey

	// lacking[i] is the time since local.began until which the local counter may
	// lack mirrored hits of keys of slot i, since it was full. It then has all hits
	// of the keys of which it has a hit, but for newcomers: see localKey.lacks.
	lacking [slotsOfShard]time.Duration
}

const slotsOfShard = 64

// localKey is a key with calls under way to the store or with pending hits,
// under the lock of its shard.
type localKey struct {
	local    *local
	key      counter.Key
	hash     uint64
	store    *counter.Counter // on the ladder of the rule
	calls    int              // under way, whose answers have not been judged
	admitted uint64           // number of admissions here since the localKey exists
	pending  []*pendingHits   // oldest first
	lane     *lane            // of the server of the key; nil: the carrier does not have the key
	due      time.Time        // when the carrier sends the next hits of the key
	tries    int              // failed sends in a row
	answered chan struct{}    // closed after the answer to the send under way; nil: nobody waits
}

// pendingHits are hits admitted here in one bucket of the finest tier, and not
// yet known to be in the store.
type pendingHits struct {
	bucket   int64
	at       time.Time // the latest label
	since    time.Time // of the last hit, by the machine's clock
	n        int64
	sending  int64 // of n, under way to the store
	refunded int64 // of sending: to give back when the carry is answered
	held     int   // calls under way for hits of the bucket: the store may yet count these hits, and take them back
}

func (l *local) hash(key counter.Key) uint64 { return maphash.Comparable(l.seed, key) }

func (l *local) shard(hash uint64) *localShard { return &l.shards[hash%localShards] }

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
	hash := l.hash(key)
	keys := l.shard(hash).keys
	k := keys[key]
	if k == nil {
		k = &localKey{local: l, key: key, hash: hash}
		keys[key] = k
	}
	k.store = store
	return k
}

// bucket is the number of the finest bucket that holds at.
func (l *Ladder) bucket(at time.Time) int64 { return tiers.Index(at.UnixNano(), l.width) }

func (k *localKey) shard() *localShard { return k.local.shard(k.hash) }

func (k *localKey) slot() *time.Duration {
	return &k.shard().lacking[k.hash/localShards%slotsOfShard]
}

// heldFor are the pending hits in the window of each limit; nil if there are none.
func (k *localKey) heldFor(rule *Rule) (held []int64) {
	for _, p := range k.pending {
		age := time.Since(p.since)
		for j, limit := range rule.limits {
			if age > limit.Per+k.local.here.Config().Skew {
				continue
			}
			if held == nil {
				held = make([]int64, len(rule.limits))
			}
			held[j] += p.n
		}
	}
	return held
}

// drop forgets a key about which there is nothing to know.
func (k *localKey) drop() {
	if k.calls == 0 && len(k.pending) == 0 && k.lane == nil {
		delete(k.shard().keys, k.key)
	}
}

// find returns the pending hits of a bucket; nil if there are none.
func (k *localKey) find(bucket int64) *pendingHits {
	if i := slices.IndexFunc(k.pending, func(p *pendingHits) bool { return p.bucket == bucket }); i >= 0 {
		return k.pending[i]
	}
	return nil
}

// pend adds n hits of a label to the pending hits of a bucket, under the lock of k.
func (k *localKey) pend(bucket int64, at time.Time, n int64) *pendingHits {
	p := k.find(bucket)
	if p == nil {
		p = &pendingHits{bucket: bucket}
		k.pending = append(k.pending, p)
		k.local.carrier.entries.Add(1)
	}
	p.n += n
	if p.since = time.Now(); at.After(p.at) {
		p.at = at
	}
	k.local.numbers.pending.Add(n)
	return p
}

// tidy forgets p without hits.
func (k *localKey) tidy(p *pendingHits) {
	if p.n > 0 || p.held > 0 {
		return
	}
	if i := slices.Index(k.pending, p); i >= 0 {
		k.pending = slices.Delete(k.pending, i, i+1)
		k.local.carrier.entries.Add(-1)
	}
	k.drop()
}

// Hits are the hits of a Verdict in the local counter. Copies of the Verdict share
// them.
type Hits struct {
	flight   *flight
	here     []counted // to refund
	room     [2]counted
	refunded atomic.Bool

	pending bool // admitted here: to be carried
	at      time.Time
}

// counted is a verdict of the local counter, on the ladder of a rule or of all.
type counted struct {
	on *counter.Counter
	v  counter.Verdict
}

// land ends the call to the store that was under way when the hits were admitted
// here: the hits can be carried now.
func (h *Hits) land() {
	for _, k := range h.flight.keys {
		s := k.shard()
		s.mu.Lock()
		p := k.find(k.rule.bucket(h.at)) // there, as long as hits are held
		p.held--
		if k.tidy(p); p.n > 0 {
			h.flight.local.carrier.put(k.localKey, 0)
		}
		s.mu.Unlock()
	}
}

// refund gives the hits back to the local counter. Pending hits are not carried
// any more, and given back by the store where they were carried.
func (h *Hits) refund(ctx context.Context) (err error) {
	if !h.refunded.CompareAndSwap(false, true) {
		return nil
	}
	for i := range h.here {
		err = errors.Join(err, h.here[i].on.Refund(context.WithoutCancel(ctx), &h.here[i].v))
	}
	if !h.pending {
		return err
	}
	errs := make([]error, len(h.flight.keys))
	var all sync.WaitGroup
	for i, k := range h.flight.keys {
		if carried := k.withdraw(k.rule.bucket(h.at), h.flight.n); carried > 0 {
			all.Go(func() { errs[i] = k.rule.store.RefundAt(ctx, k.key, carried, h.at) })
		}
	}
	all.Wait()
	return errors.Join(append(errs, err)...)
}

// withdraw takes n hits out of the pending hits of a key, and returns the hits
// of n that were carried already.
func (k *localKey) withdraw(bucket, n int64) (carried int64) {
	s := k.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := k.find(bucket)
	if p == nil {
		return n
	}
	waiting := min(n, p.n-p.sending)
	p.n -= waiting
	k.local.numbers.pending.Add(-waiting)
	sent := min(n-waiting, p.sending-p.refunded)
	p.refunded += sent
	k.tidy(p)
	return n - waiting - sent
}

// Carry has a hit of key, which was counted under a Look alone, carried to the store
// by the ladder of the Look. If too many hits wait, the hit stays in this process.
func (r *Rule) Carry(key counter.Key, at time.Time) {
	l := r.local
	if l.carrier.full(1) {
		return
	}
	s := l.shard(l.hash(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	k := l.key(key, r.store)
	k.pend(r.bucket(at), at, 1)
	l.carrier.put(k, 0)
}

// Forget drops the hits of a key that wait to be carried, and waits for the
// answer to a carry under way, which would add its hits afterwards.
func (f *Fallback) Forget(ctx context.Context, key counter.Key) error {
	if f.local == nil {
		return nil
	}
	s := f.local.shard(f.local.hash(key))
	for {
		s.mu.Lock()
		k := s.keys[key]
		if k == nil || !k.empty() {
			s.mu.Unlock()
			return nil
		}
		if k.answered == nil {
			k.answered = make(chan struct{})
		}
		answered := k.answered
		s.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return fmt.Errorf("event %q: hits are being carried to the store: %w", key.Event, cmp.Or(ctx.Err(), context.Canceled))
		}
	}
}

// empty drops the pending hits of k, and reports whether hits are on their way.
func (k *localKey) empty() (sending bool) {
	for _, p := range slices.Clone(k.pending) {
		sending = sending || p.sending > 0
		k.local.numbers.pending.Add(p.sending - p.n)
		p.n = p.sending
		k.tidy(p)
	}
	if !sending {
		k.local.carrier.remove(k)
		k.drop()
	}
	return sending
}
