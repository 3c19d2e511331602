// Package memory is the embedded store: buckets in the memory of the process.
//
//	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
//
// A [Store] checks and adds in one atomic step, also for several keys at once. A
// Store starts no goroutine, and has no timer and no clock. Buckets expire by the
// time of each call, so a log of years ago can be replayed. A call whose clock is
// far ahead drops buckets as expired: buckets of the call's keys, and in a full
// store buckets of any key. A clock that is set back later does not bring dropped
// buckets back. A call with an older label that needs dropped buckets, such as a
// call of a process that stood still, does nothing and returns
// [backend.ErrStaleLabel]: a Counter then reads its clock again.
//
// [Store.Forget] empties a key of any size in one short step.
//
// # Memory
//
// A key has the cost of its buckets: an empty bucket takes no memory, any other
// bucket 16 bytes. Of several tiers with equal Keep the store keeps the finest
// tier, and the tiers wider than a sixteenth of Keep; the buckets of the rest are
// sums. [Config.MaxBuckets] bounds the whole store. When the store is full, a
// fresh key takes the memory of any key whose buckets have all expired. If there
// is no such key, [Config.Full] decides.
//
// # Restarts
//
// Counts live as long as the process, unless [Store.SaveFile] writes the counts
// to a file when the process ends, and [Store.LoadFile] reads the file when the
// next process begins. [Store.Snapshot] and [Store.Restore] do the same with any
// stream. A restored store behaves as if the process had stood still since the
// snapshot.
package memory

import (
	"cmp"
	"errors"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/abacus-go/abacus/backend"
)

// DefaultMaxBuckets is about 256 MB: a million keys with a single hit, 110,000
// keys with a hundred hits a day, or 125 keys with a hit in every second of a
// day.
const DefaultMaxBuckets = 256 << 20 / bucketBytes

// Config configures a [Store]. The zero Config is ready to use.
type Config struct {
	// MaxBuckets bounds the memory of the store, in buckets of 16 bytes. A key that was
	// hit once costs 14 buckets, 2 more for each further tier that is stored, and a few
	// more if its stored name is longer than 69 bytes. A second bucket of a tier costs 4
	// more, and from then on a key costs the capacity of its rings as well: a power of
	// two for each tier, and at most four times the buckets in use. The bound is on live
	// memory: while a ring grows, the former copy of the ring is there too, and Go's
	// collector lets the heap become larger, by GOGC. Zero, or less:
	// [DefaultMaxBuckets].
	MaxBuckets int

	// Full decides about a new bucket that finds no memory while no key is empty.
	// An attacker who can make up keys does harm under either policy: see the
	// policies for the two kinds of harm. The default is [Refuse].
	Full Policy

	// Reserve is the part of MaxBuckets, in buckets, that [Refuse] keeps for the keys
	// that the store knows: a new key finds a full store earlier, so that a flood of
	// made-up keys does not stop known keys from growing. Default: an eighth of
	// MaxBuckets. Negative: none.
	Reserve int
}

// Policy is the behaviour of a full store. An attacker who can make up keys,
// for example with a million addresses, can fill any bounded store. See [Config].
type Policy uint8

const (
	// Refuse returns [ErrFull]. No limit is ever broken: known counts are kept.
	// An attacker can shut out every new key, until the attacker's buckets
	// expire. The harm is visible: each refused call is an error. Known keys go
	// on, and grow into Config.Reserve.
	Refuse Policy = iota

	// EvictOldest removes the key whose last hit is the oldest, with all buckets
	// of the key, whatever their counts. No call is refused. An attacker can have
	// a used-up limit forgiven, also the limit of another user, by hitting as
	// many fresh keys as the store holds; denied calls are no hits.
	// [Stats.Evicted] counts the keys.
	EvictOldest
)

// ErrFull is the error of a [Store] under [Refuse] that is full, and under
// [EvictOldest] of a call that needs more than the whole store has. The call
// has changed nothing. A Counter adds [backend.ErrStore].
var ErrFull = errors.New("memory: the store is full")

// Store keeps buckets in memory. A Store is a [backend.Atomic] for any keys and
// a [backend.Local], and safe for use by many goroutines at once. [New]
// makes a Store; the zero Store is of no use.
type Store struct {
	max     int64 // Config.MaxBuckets
	kept    int64 // of max, for known keys: Config.Reserve
	policy  Policy
	seed    maphash.Seed
	layouts layouts
	spares  sync.Pool // memory of removed entries
	shards  [shards]shard

	// bounds[order][i] is heaps[order].bound() of shard i. The bounds of all
	// shards stand together, so that a full store finds the first entry of all
	// in a few cache lines.
	bounds [orders][shards]atomic.Int64

	_       [64]byte
	spent   atomic.Int64 // buckets, of max
	refused atomic.Int64
}

// shards is the number of the shards of a store, which fit into a shardSet.
const shards = 64

// shard is a part of the keys, under one lock.
type shard struct {
	mu    sync.Mutex
	index int
	table table
	heaps [orders]heap

	dropped int64 // latest expiry of the buckets of entries that are gone: see access.behind

	reclaimed, evicted int64
	admissions         uint64 // by a quota

	_ [64]byte
}

var (
	_ backend.Atomic = (*Store)(nil)
	_ backend.Local  = (*Store)(nil)
)

// New makes an empty store.
func New(config Config) *Store {
	s := &Store{max: int64(config.MaxBuckets), policy: config.Full, seed: maphash.MakeSeed()}
	if s.max <= 0 {
		s.max = DefaultMaxBuckets
	}
	if s.policy == Refuse {
		s.kept = min(max(0, cmp.Or(int64(config.Reserve), s.max/8)), s.max)
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.index, sh.table, sh.dropped = i, newTable(), never
		for order := range sh.heaps {
			sh.heaps[order].order = order
			s.bounds[order][i].Store(forever)
		}
	}
	return s
}

// Keeps is true under [Refuse]. See [backend.Local].
func (s *Store) Keeps() bool { return s.policy == Refuse }

// Together is always true: one step can hold any keys.
func (s *Store) Together([]backend.TakeKey) bool { return true }

// Stats is the state of a [Store], and what happened since [New].
type Stats struct {
	Keys    int   // keys in memory, with expired keys that were not yet replaced, and the markers of Forget
	Buckets int64 // memory taken, counted as Config.MaxBuckets says

	Reclaimed int64 // keys that were replaced after the expiry of all buckets
	Evicted   int64 // keys with live counts that EvictOldest removed
	Refused   int64 // calls that returned ErrFull
}

// Stats looks at the shards one after the other, so under load the sums are of
// slightly different instants.
func (s *Store) Stats() Stats {
	st := Stats{Buckets: s.spent.Load(), Refused: s.refused.Load()}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		st.Keys += sh.table.keys
		st.Reclaimed += sh.reclaimed
		st.Evicted += sh.evicted
		sh.mu.Unlock()
	}
	return st
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>(64-6)] }

// shardSet is a set of shards, to be locked together, in the order of the shards.
type shardSet uint64

func (set *shardSet) add(sh *shard) { *set |= 1 << sh.index }

func (s *Store) lock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(uint64(set))].mu.Lock()
	}
}

func (s *Store) unlock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(uint64(set))].mu.Unlock()
	}
}
