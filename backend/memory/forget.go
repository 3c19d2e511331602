package memory

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/bits"

	"github.com/abacus-go/abacus/backend"
)

// A marker remembers a Forget: an entry under a key of its own, with a single
// bucket, a nanosecond wide, starting at the label. So a marker expires, is
// counted and gives up memory as any key does, and nothing else needs to know of
// markers. The key is a digest: the feature, which may be an address, must not show
// for as long as the marker is kept.

// markerByte begins the keys of markers; counted keys are printable.
const markerByte = 0

// marker returns the access to the marker of key, and its name.
func (s *Store) marker(key string) (m access, name []byte) {
	sum := sha256.Sum256([]byte(key))
	name = append([]byte{markerByte}, sum[:]...)
	return s.access(name, nil), name
}

// markerTier keeps the bucket that starts at label until an instant, or a little
// longer: TTLs are rounded up by a sixteenth at most, so that markers share
// layouts.
func markerTier(label, until int64) tier {
	ttl := until - label
	switch {
	case until <= label:
		ttl = 0
	case ttl < 0: // beyond 63 bits
		ttl = math.MaxInt64
	default:
		unit := int64(1) << max(0, bits.Len64(uint64(ttl))-5)
		ttl = plus(ttl, unit-1) &^ (unit - 1)
	}
	return tier{1, ttl}
}

// Forget is described in [backend.Store]. Forget is one step, short whatever
// the key holds, and never [ErrFull]: a marker takes the memory of the key. Of an
// unknown key nothing is remembered: there is no hit that could be paid back.
//
// A store that evicts may evict a marker as it evicts keys, in the order of
// labels. A Refund of a hit from before the Forget then takes back a later hit of
// the same bucket, if there is any.
func (s *Store) Forget(ctx context.Context, r *backend.ForgetRequest) error {
	now, err := begin(ctx, r.Deadline, r.Now)
	if err != nil {
		return err
	}
	if r.Remember < 0 {
		return fmt.Errorf("memory: to remember a Forget for %s, want zero or more", r.Remember)
	}
	key := []byte(r.Key)
	a := s.access(key, nil)
	m, name := s.marker(r.Key)
	var held shardSet
	held.add(a.shard)
	held.add(m.shard)
	s.lock(held)
	defer s.unlock(held)
	a.e, m.e = a.shard.table.find(a.hash, key), m.shard.table.find(m.hash, name)
	if a.e != nil {
		s.remove(a.shard, a.e)
	}
	if a.e == nil && m.e == nil {
		return nil
	}
	label, until := r.Latest(), plus(now, int64(r.Remember))
	if m.remembers(now) {
		label, until = max(label, m.e.finest.last.start), max(until, m.e.rank(byEmpty))
	}
	l := s.layouts.share(layout{n: 1, all: [len(layout{}.all)]tier{markerTier(label, until)}})
	if m.e == nil {
		m.e = s.insert(m.shard, m.hash, name, l)
		s.spent.Add(entryCost)
	}
	m.e.layout, m.e.finest = l, ring{last: bucket{label, 1}, first: label}
	s.settle(m.shard, m.e)
	return nil
}

// remembers reports whether a is a marker that has not expired.
func (a *access) remembers(now int64) bool {
	return a.e != nil && a.e.finest.last.start > a.e.layout.all[0].expired(now)
}

// Forgotten is described in [backend.Store].
func (s *Store) Forgotten(ctx context.Context, r *backend.ForgetRequest) (label int64, err error) {
	at, err := begin(ctx, r.Deadline, r.Now)
	if err != nil {
		return 0, err
	}
	m, name := s.marker(r.Key)
	m.shard.mu.Lock()
	defer m.shard.mu.Unlock()
	if m.e = m.shard.table.find(m.hash, name); m.remembers(at) {
		label = m.e.finest.last.start
	}
	return label, nil
}
