package ticket

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// settledCache remembers settled buckets of the keys that this process takes
// again and again, for a store over a network without an atomic step. All hits
// that will be admitted are in a settled bucket: later its count can only fall,
// by a Refund, a Forget or an eviction. Hits that no Take has admitted can raise
// the count: hits of an Add or a Charge confirmed later than Settle, and hits of an
// AddAt. These end the memory of the key in all Counters of the process; another
// process may miss them for as long as an entry lasts. So a remembered count is an
// upper bound of the admitted hits. A call can be admitted by remembered counts,
// and is never denied by remembered counts.
//
// The cache is of bounded size: a slot holds one key, for a minute at most, and
// until then no other key gets the slot. A key enters on its second call, so
// that a flood of fresh keys costs no memory. A key without a slot costs reads
// and nothing else. Full of entries of 25 buckets, as a day has on the default
// ladder, the cache takes 3 MB; full of the longest entries 12 MB.
//
// A Protocol of exact numbers, or of a store with an atomic step, has the nil cache,
// which is not asked.
type settledCache struct {
	skew  time.Duration
	slots [settledSlots]settledSlot
}

// raises are common to all caches of the process: raises[i] is the time since
// settledSince of the last raise of a key with slot i. What was read before is no
// upper bound.
var (
	raises       [settledSlots]atomic.Int64
	settledSeed  = maphash.MakeSeed()
	settledSince = time.Now()
)

const (
	settledSlots   = 1 << 13
	settledBuckets = 128         // of an entry
	settledFor     = time.Minute // a clock that drifts, or counts that fall, are believed for no longer
)

type settledSlot struct {
	entry  atomic.Pointer[settledEntry]
	caller atomic.Uint64 // the hash of the last key that came without an entry
}

// settledEntry is immutable.
type settledEntry struct {
	key    string
	at     time.Time // the label by which the buckets were settled
	read   time.Time // the machine's clock at the label
	counts Counts    // of coarse covers
	tight  bool      // coarse covers were above Max: exact covers should be read at once
}

// recall returns what is remembered of the key at now, or an empty entry.
func (s *settledCache) recall(key string, now time.Time) *settledEntry {
	slot, _ := s.slot(key)
	if e := slot.entry.Load(); e != nil && e.key == key && s.fresh(e, now) && !s.outdated(e) {
		return e
	}
	return &nothingSettled
}

var nothingSettled settledEntry

// fresh reports whether an entry may be used at now. An entry ends when the wall
// clock parts from the monotonic clock by more than Skew: the wall clock may
// have been ahead when the entry was made, and unsettled buckets were taken for
// settled. A clock of the caller's own may have no monotonic reading, and may have
// been set back and have caught up since: an entry also ends if the machine's clock
// says that more than Skew of time has been set back.
func (s *settledCache) fresh(e *settledEntry, now time.Time) bool {
	elapsed := now.Sub(e.at)
	if time.Since(e.read)-elapsed > s.skew {
		return false
	}
	return elapsed <= settledFor && (elapsed-now.Round(0).Sub(e.at.Round(0))).Abs() <= s.skew
}

// admits reports whether the cache has a place for the key, and notes that the
// key has come.
func (s *settledCache) admits(key string, now time.Time) bool {
	slot, hash := s.slot(key)
	if e := slot.entry.Load(); e != nil && s.fresh(e, now) {
		return e.key == key
	}
	return slot.caller.Swap(hash) == hash
}

// put remembers an entry that admits has admitted, unless counts were raised
// after the entry was read.
func (s *settledCache) put(e *settledEntry) {
	slot, _ := s.slot(e.key)
	slot.entry.Store(e)
	if s.outdated(e) {
		slot.entry.CompareAndSwap(e, nil)
	}
}

// outdated reports whether counts were raised after the entry was read.
func (s *settledCache) outdated(e *settledEntry) bool {
	return raises[settledHash(e.key)%settledSlots].Load() >= int64(e.read.Sub(settledSince))
}

// Raise ends what the caches of the process remember of the key, and what calls in
// flight have read: settled counts may be higher now.
func Raise(key string) {
	raised := &raises[settledHash(key)%settledSlots]
	now, last := int64(time.Since(settledSince)), raised.Load()
	for last < now && !raised.CompareAndSwap(last, now) {
		last = raised.Load()
	}
}

// drop forgets the key, whose counts this process has lowered.
func (s *settledCache) drop(key string) {
	if s == nil {
		return
	}
	slot, _ := s.slot(key)
	if e := slot.entry.Load(); e != nil && e.key == key {
		slot.entry.CompareAndSwap(e, nil)
	}
}

// slot returns the slot and the hash of a key.
func (s *settledCache) slot(key string) (*settledSlot, uint64) {
	hash := settledHash(key)
	return &s.slots[hash%settledSlots], hash
}

func settledHash(key string) uint64 { return maphash.String(settledSeed, key) }
