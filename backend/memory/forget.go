package memory

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/abacus-go/abacus/backend"
)

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
	name := markerKey(r.Key)
	hash, markerHash := maphash.String(s.seed, r.Key), maphash.Bytes(s.seed, name[:])
	sh, markerShard := s.shard(hash), s.shard(markerHash)
	var held shardSet
	held.add(sh)
	held.add(markerShard)
	s.lock(&held)
	var b budget
	m := markerShard.table.find(markerHash, name[:])
	e := sh.table.find(hash, []byte(r.Key))
	if e != nil {
		s.remove(sh, e, &b)
	}
	if e != nil || m != nil {
		s.putMarker(markerShard, markerHash, name[:], m, now, r, &b)
	}
	s.unlock(&held)
	s.release(&b)
	return nil
}

// Forgotten is described in [backend.Store].
func (s *Store) Forgotten(ctx context.Context, r *backend.ForgetRequest) (label int64, err error) {
	at, err := begin(ctx, r.Deadline, r.Now)
	if err != nil {
		return 0, err
	}
	name := markerKey(r.Key)
	hash := maphash.Bytes(s.seed, name[:])
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if m := sh.table.find(hash, name[:]); m != nil && m.newest[0].start > m.layout.tiers[0].expired(at) {
		label = m.newest[0].start
	}
	return label, nil
}

// A marker remembers a Forget: an entry under a key of its own, with a single
// bucket, a nanosecond wide, starting at the label. So a marker expires, is
// counted and gives up memory as any key does, and nothing else needs to know of
// markers.

// markerByte begins the keys of markers; counted keys are printable.
const markerByte = 0

// markerKey is the key of the marker of key, a digest: the feature, which may be
// somebody's address, must not show for as long as the marker is kept.
func markerKey(key string) (name [1 + sha256.Size]byte) {
	sum := sha256.Sum256([]byte(key))
	name[0] = markerByte
	copy(name[1:], sum[:])
	return name
}

func (e *entry) isMarker() bool {
	return e.length > 0 && e.length != isLong && e.name[0] == markerByte
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

// putMarker remembers r under the lock of the marker's shard; m is the marker, nil if
// there is none.
func (s *Store) putMarker(sh *shard, hash uint64, name []byte, m *entry, now int64, r *backend.ForgetRequest, b *budget) {
	label, until := r.Latest(), plus(now, int64(r.Remember))
	if m != nil && m.newest[0].start > m.layout.tiers[0].expired(now) {
		label, until = max(label, m.newest[0].start), max(until, m.emptyAt())
	}
	p := s.layouts.get([]tier{markerTier(label, until)})
	fresh := m == nil
	if fresh {
		m = s.insert(sh, hash, name, p, b)
	}
	m.layout, m.newest[0] = p, bucket{label, 1}
	if fresh {
		s.enter(sh, m)
	} else {
		s.settle(sh, m, b)
	}
}
