package memory

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// What is remembered of a Forget is a mark: an entry under a key of its own,
// with one bucket that is a nanosecond wide and starts at the label. So a mark
// expires, is counted and gives up its place as any key does, and nothing else
// needs to know of marks.

// markByte begins the keys of marks; counted keys are printable.
const markByte = 0

// markKey is the key of the mark of key. It does not show the feature, which
// may be somebody's address, for as long as the mark is kept.
func markKey(key string) (mark [1 + sha256.Size]byte) {
	sum := sha256.Sum256([]byte(key))
	mark[0] = markByte
	copy(mark[1:], sum[:])
	return mark
}

func (e *entry) isMark() bool { return e.length > 0 && e.length != isLong && e.name[0] == markByte }

// markTier keeps the bucket that starts at label until an instant, or some
// longer: TTLs are rounded up by a sixteenth at most, so that marks share
// profiles.
func markTier(label, until int64) tier {
	ttl := until - label
	switch {
	case until <= label:
		ttl = 0
	case ttl < 0: // beyond 63 bits
		ttl = math.MaxInt64
	default:
		unit := int64(1) << max(0, bits.Len64(uint64(ttl))-5)
		ttl = add(ttl, unit-1) &^ (unit - 1)
	}
	return tier{1, ttl}
}

// Forget is described in [backend.Forgetter]. It is one step, short whatever
// the key holds, and never [ErrFull]: the mark takes the place of the key. Of a
// key that the store does not know, nothing is remembered: there is no hit that
// could be paid back.
//
// A store that evicts may evict a mark, in the order of labels, as it may a
// key. A Refund of a hit from before that Forget then takes back a hit that
// came after it into the same bucket, if there is one.
func (s *Store) Forget(ctx context.Context, f *backend.ForgetRequest) error {
	if err := late(ctx, f.Deadline); err != nil {
		return err
	}
	now, err := instant(f.Now)
	if err != nil {
		return err
	}
	if f.Remember < 0 {
		return fmt.Errorf("memory: to remember a Forget for %s, want zero or more", f.Remember)
	}
	mark := markKey(f.Key)
	hash, markHash := maphash.String(s.seed, f.Key), maphash.Bytes(s.seed, mark[:])
	sh, markSh := s.shard(hash), s.shard(markHash)
	lockBoth(sh, markSh)
	var r room
	m := markSh.table.find(markHash, mark[:])
	e := sh.table.find(hash, []byte(f.Key))
	if e != nil {
		s.remove(sh, e, &r)
	}
	if e != nil || m != nil {
		s.mark(markSh, markHash, mark[:], m, now, f, &r)
	}
	unlockBoth(sh, markSh)
	s.done(&r)
	return nil
}

// mark remembers f under the lock of the mark's shard; m is the mark if it is
// there.
func (s *Store) mark(sh *shard, hash uint64, key []byte, m *entry, now int64, f *backend.ForgetRequest, r *room) {
	label, until := f.Latest(), after(now, int64(f.Remember))
	if m != nil && m.newest[0].start > m.prof.tiers[0].expired(now) {
		label, until = max(label, m.newest[0].start), max(until, m.emptyAt())
	}
	p := s.profiles.get([]tier{markTier(label, until)})
	fresh := m == nil
	if fresh {
		m = s.insert(sh, hash, key, p, r)
	}
	m.prof, m.newest[0] = p, cell{label, 1}
	if fresh {
		s.enter(sh, m)
	} else {
		s.lower(sh, m, r)
	}
}

// Forgotten is described in [backend.Forgetter].
func (s *Store) Forgotten(ctx context.Context, key string, now, deadline time.Time) (label int64, err error) {
	if err := late(ctx, deadline); err != nil {
		return 0, err
	}
	at, err := instant(now)
	if err != nil {
		return 0, err
	}
	mark := markKey(key)
	hash := maphash.Bytes(s.seed, mark[:])
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if m := sh.table.find(hash, mark[:]); m != nil && m.newest[0].start > m.prof.tiers[0].expired(at) {
		label = m.newest[0].start
	}
	return label, nil
}

// lockBoth locks two shards, which may be one, in their order.
func lockBoth(a, b *shard) {
	if a.index > b.index {
		a, b = b, a
	}
	a.mu.Lock()
	if a != b {
		b.mu.Lock()
	}
}

func unlockBoth(a, b *shard) {
	a.mu.Unlock()
	if a != b {
		b.mu.Unlock()
	}
}
