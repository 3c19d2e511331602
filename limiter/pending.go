package limiter

import (
	"context"
	"errors"
	"hash/maphash"
	"math/bits"
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
	// of the keys of which it has a hit, but for newcomers: see local.lacks.
	lacking [slotsOfShard]time.Duration
}

const slotsOfShard = 64

// localKey is a key with calls under way to the store or with pending hits,
// under the lock of its shard.
type localKey struct {
	key      counter.Key
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

// held are the pending hits in the window of each limit; nil if there are none.
func (k *localKey) held(rule *localRule, skew time.Duration) (held []int64) {
	for _, p := range k.pending {
		age := time.Since(p.since)
		for j, limit := range rule.limits {
			if age > limit.Per+skew {
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
func (s *localShard) drop(k *localKey) {
	if k.calls == 0 && len(k.pending) == 0 && k.lane == nil {
		delete(s.keys, k.key)
	}
}

// find returns the pending hits of a bucket.
func (k *localKey) find(bucket int64) *pendingHits {
	for i := len(k.pending) - 1; i >= 0; i-- {
		if k.pending[i].bucket == bucket {
			return k.pending[i]
		}
	}
	return nil
}

// pend adds n hits of a label to the pending hits of a bucket, under the lock of k.
func (k *localKey) pend(l *local, bucket int64, at time.Time, n int64) *pendingHits {
	p := k.find(bucket)
	if p == nil {
		p = &pendingHits{bucket: bucket}
		k.pending = append(k.pending, p)
		l.carrier.entries.Add(1)
	}
	p.n += n
	if p.since = time.Now(); at.After(p.at) {
		p.at = at
	}
	l.numbers.pending.Add(n)
	return p
}

func (s *localShard) slot(hash uint64) *time.Duration {
	return &s.lacking[hash/localShards%slotsOfShard]
}

// localHits are the hits of a Verdict in the local counter. Copies of the
// Verdict share them.
type localHits struct {
	flight   *flight
	here     counter.Verdict   // to refund
	apart    []counter.Verdict // instead, if the keys were mirrored one by one
	refunded atomic.Bool

	pending bool // admitted here: to be carried
	at      time.Time
}

// bucket is the number of the finest bucket of key i that the hits are in.
func (h *localHits) bucket(i int) int64 {
	return tiers.Index(h.at.UnixNano(), h.flight.keys[i].rule.width)
}

// land ends the call to the store that was under way when the hits were admitted
// here: the hits can be carried now.
func (h *localHits) land() {
	l := h.flight.local
	for i := range h.flight.keys {
		k := &h.flight.keys[i]
		s := l.shard(k.hash)
		s.mu.Lock()
		state := s.keys[k.key] // there, as long as hits are held
		p := state.find(h.bucket(i))
		p.held--
		l.tidy(s, state, p)
		if p.n > 0 {
			l.carrier.put(state, 0)
		}
		s.mu.Unlock()
	}
}

// refund gives the hits back to the local counter. Pending hits are not carried
// any more, and given back by the store where they were carried.
func (h *localHits) refund(ctx context.Context) error {
	if !h.refunded.CompareAndSwap(false, true) {
		return nil
	}
	l, n := h.flight.local, h.flight.n
	err := l.here.Refund(context.WithoutCancel(ctx), &h.here)
	for i := range h.apart {
		err = errors.Join(err, l.here.Refund(context.WithoutCancel(ctx), &h.apart[i]))
	}
	if !h.pending {
		return err
	}
	errs := make([]error, len(h.flight.keys))
	var all sync.WaitGroup
	for i := range h.flight.keys {
		k := &h.flight.keys[i]
		if carried := l.withdraw(k, h.bucket(i), n); carried > 0 {
			all.Go(func() { errs[i] = k.rule.store.RefundAt(ctx, k.key, carried, h.at) })
		}
	}
	all.Wait()
	return errors.Join(append(errs, err)...)
}

// withdraw takes n hits out of the pending hits of a key, and returns the hits
// of n that were carried already.
func (l *local) withdraw(k *flightKey, bucket, n int64) (carried int64) {
	s := l.shard(k.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.keys[k.key]
	if state == nil {
		return n
	}
	p := state.find(bucket)
	if p == nil {
		return n
	}
	waiting := min(n, p.n-p.sending)
	p.n -= waiting
	l.numbers.pending.Add(-waiting)
	sent := min(n-waiting, p.sending-p.refunded)
	p.refunded += sent
	l.tidy(s, state, p)
	return n - waiting - sent
}

// tidy forgets p without hits.
func (l *local) tidy(s *localShard, k *localKey, p *pendingHits) {
	if p.n > 0 || p.held > 0 {
		return
	}
	for i := range k.pending {
		if k.pending[i] == p {
			k.pending = append(k.pending[:i], k.pending[i+1:]...)
			l.carrier.entries.Add(-1)
			break
		}
	}
	s.drop(k)
}

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
