// Package memory is the embedded store: buckets in the memory of the process.
//
//	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
//
// A [Store] checks and adds in one atomic step, also for several keys at once.
// It starts no goroutine, has no timer, and no clock of its own: what is
// expired is decided by the time that comes with each call, so a log of years
// ago can be replayed. A call whose clock is far ahead sees, and drops, as
// expired what that time makes expired, of the keys that it adds to, and in a
// full store of any key; a clock that is set back later does not bring it back.
// A call with an older label that needs what was dropped, such as one of a
// process that stood still, is [counter.ErrStaleLabel], and does nothing: a
// [counter.Counter] reads its clock again.
//
// [Store.Forget] empties a key of any size in one short step.
//
// # Memory
//
// A key costs what its buckets cost: a bucket that is empty takes no memory,
// and 16 bytes hold one that is not. Of tiers that are kept equally long the
// finest is stored, and what is wider than a sixteenth of that time: other
// buckets are sums. The whole store is bounded by
// [Config.MaxBuckets]. When it is full, a fresh key takes the place of one
// whose buckets are all expired, wherever in the store that is. If there is
// none, [Config.Full] decides.
//
// Counts live as long as the process: nothing is written to disk.
package memory

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/abacus-go/abacus/backend"
)

// DefaultMaxBuckets is about 256 MB: a million keys that were hit once, 85,000
// that are hit a hundred times a day, or 125 that are hit every second of it.
const DefaultMaxBuckets = 256 << 20 / bucketBytes

// Config configures a [Store]. The zero Config is ready to use.
type Config struct {
	// MaxBuckets bounds the memory of the store, in buckets of 16 bytes. A key
	// that was hit once costs 16 of them, on a ladder of up to four tiers, and
	// some more if its stored name is longer than 70 bytes. With a second bucket
	// of any tier come 13, and from then on the capacity of its rings, a power
	// of two for each tier and at most four times what is in them; at 16 cells
	// 8 more for running totals. That is what lives. While a ring grows, the one
	// it replaces is there too, and Go's collector lets the heap become larger,
	// by as much as GOGC says. Zero, or less: [DefaultMaxBuckets].
	MaxBuckets int

	// Full says what happens when a new bucket finds no room, and no key is
	// empty. Either way someone who can make up keys can do harm; what harm is
	// yours to choose. The default is [Refuse].
	Full Policy
}

// Policy is what a full store does. An attacker who can make up keys, such as
// one with a million addresses, can fill any bounded store. See [Config].
type Policy uint8

const (
	// Refuse returns [ErrFull]. No limit is ever broken: what is known is
	// kept. An attacker can shut out every new key, until the buckets that he
	// filled expire: visibly, as an error for each of them. Keys that the
	// store knows go on as long as their rings need not grow.
	Refuse Policy = iota

	// EvictOldest removes the key whose last hit is the oldest: all of its
	// buckets, whatever they count. No call is refused. An attacker can have a
	// limit forgiven that he, or anyone, has used up, by hitting as many fresh
	// keys as the store holds; denied calls are no hits. [Stats.Evicted]
	// counts the keys.
	EvictOldest
)

// ErrFull is what a [Store] under [Refuse] returns when there is no room, and
// one under [EvictOldest] if a single call needs more than the whole store has. The
// call has changed nothing. Inside a [counter.Counter] it comes with
// [counter.ErrStore].
var ErrFull = errors.New("memory: the store is full")

// Store keeps buckets in memory. It is a [backend.Atomic] for any demands and a
// [backend.Forgetter], and safe for use by many goroutines at once. Make one
// with [New].
type Store struct {
	max      int64
	policy   Policy
	seed     maphash.Seed
	shards   []shard
	shift    uint // of a hash, to the number of its shard
	profiles profiles

	// For each shard a lower bound of when the first of its entries is empty,
	// and was last hit: in one place, so that a full store finds the first of
	// all in a few cache lines.
	firsts [heaps][]atomic.Int64

	_       [64]byte
	spent   atomic.Int64 // buckets, of max
	refused atomic.Int64
}

// shard is a part of the keys, under one lock. Whoever holds several locks has
// taken them in the order of the shards.
type shard struct {
	mu    sync.Mutex
	table table
	clock clock
	heaps [heaps]heap
	index int

	dropped int64 // see stale.go

	reclaimed, evicted int64

	_ [64]byte
}

var (
	_ backend.Atomic    = (*Store)(nil)
	_ backend.Forgetter = (*Store)(nil)
	_ backend.Local     = (*Store)(nil)
)

const minShards, maxShards = 16, 256

// New makes an empty store.
func New(config Config) *Store {
	n := min(max(minShards, 8<<bits.Len(uint(runtime.GOMAXPROCS(0)-1))), maxShards)
	s := &Store{
		max:    int64(config.MaxBuckets),
		policy: config.Full,
		seed:   maphash.MakeSeed(),
		shards: make([]shard, n),
		shift:  uint(64 - bits.Len(uint(n-1))),
	}
	if s.max <= 0 {
		s.max = DefaultMaxBuckets
	}
	for which := range s.firsts {
		s.firsts[which] = make([]atomic.Int64, n)
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.index, sh.table, sh.dropped = i, newTable(), never
		for which := range sh.heaps {
			sh.heaps[which].which = which
			s.firsts[which][i].Store(forever)
		}
	}
	return s
}

// Local says that a [Store] is in the caller's own process.
func (s *Store) Local() {}

// Together is always true: one step can hold any demands.
func (s *Store) Together([]backend.TakeKey) bool { return true }

// Stats tell what a [Store] holds, and what it has done since [New].
type Stats struct {
	Keys    int   // known, the expired that nobody has needed the place of and what is remembered of Forgets included
	Buckets int64 // memory taken, counted as Config.MaxBuckets says

	Reclaimed int64 // keys whose place was taken after all their buckets had expired
	Evicted   int64 // keys that EvictOldest removed while they still counted
	Refused   int64 // calls that returned ErrFull
}

// Stats looks at one part of the store after the other, so under load the sums
// are of slightly different instants.
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

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>s.shift] }
