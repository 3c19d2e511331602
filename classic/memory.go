package classic

import (
	"container/heap"
	"errors"
	"hash/maphash"
	"sync"
	"unsafe"
)

// ErrFull is the error of a call that needs a new state in a memory store whose
// [Config].MaxKeys states all still matter. The error is also a
// [counter.ErrStore], and nothing was counted.
var ErrFull = errors.New("the memory store is full")

// table keeps the states of a kind in memory. Each call is a single step under
// the lock of a shard.
type table[S any] struct {
	store  *Store
	seed   maphash.Seed
	shards [64]shard[S]
}

type shard[S any] struct {
	mu      sync.Mutex
	entries map[string]*entry[S]
	due     queue[S]
	_       [64]byte
}

type entry[S any] struct {
	name    string
	expires int64 // the last instant at which state can matter
	state   S
}

// queue orders entries by the instant of their next check: when the entry
// expires, or earlier, since every hit moves the expiry and leaves the queue as
// it is.
type queue[S any] []item[S]

type item[S any] struct {
	at    int64
	entry *entry[S]
}

func (q queue[S]) Len() int           { return len(q) }
func (q queue[S]) Less(i, j int) bool { return q[i].at < q[j].at }
func (q queue[S]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue[S]) Push(x any)        { *q = append(*q, x.(item[S])) }
func (q *queue[S]) Pop() any {
	last := len(*q) - 1
	it := (*q)[last]
	(*q)[last] = item[S]{}
	*q = (*q)[:last]
	return it
}

// sweeper is a table whose states may be of any type.
type sweeper interface {
	reclaim(now int64) (freed int)
}

// tableOf is the table of s with this name, made on first use. All uses of a
// name have the same S.
func tableOf[S any](s *Store, name string) *table[S] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, is := s.tables[name]; is {
		return t.(*table[S])
	}
	t := &table[S]{store: s, seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].entries = map[string]*entry[S]{}
	}
	s.tables[name] = t
	return t
}

func (t *table[S]) shard(name string) *shard[S] {
	return &t.shards[maphash.String(t.seed, name)%uint64(len(t.shards))]
}

// take makes a step of c on the state of name. A step that writes nothing leaves no
// state behind.
func (t *table[S]) take(name string, c *call, ttl int64, step func(s *S, known bool, c *call)) error {
	sh, asked := t.shard(name), *c
	for {
		*c = asked
		full := sh.take(t, name, c, ttl, step)
		if !full {
			return nil
		}
		if t.store.reclaim(c.now) == 0 {
			return ErrFull
		}
	}
}

func (sh *shard[S]) take(t *table[S], name string, c *call, ttl int64, step func(s *S, known bool, c *call)) (full bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	x, known := sh.entries[name]
	if !known {
		x = &entry[S]{name: name}
	}
	step(&x.state, known, c)
	if c.cost.Writes == 0 {
		return false
	}
	if !known {
		sh.sweep(t, c.now, 2)
		if t.store.states.Add(1) > int64(t.store.cfg.MaxKeys) {
			t.store.states.Add(-1)
			return true
		}
		sh.entries[name] = x
	}
	x.expires = max(x.expires, c.now+ttl)
	if !known {
		heap.Push(&sh.due, item[S]{x.expires, x})
	}
	return false
}

// sweep drops up to most states that no longer matter at now. Two for each new
// state keep pace with any flood.
func (sh *shard[S]) sweep(t *table[S], now int64, most int) (freed int) {
	for freed < most && len(sh.due) > 0 && sh.due[0].at < now {
		top := &sh.due[0]
		if top.entry.expires > top.at {
			top.at = top.entry.expires
			heap.Fix(&sh.due, 0)
			continue
		}
		delete(sh.entries, top.entry.name)
		heap.Pop(&sh.due)
		t.store.states.Add(-1)
		freed++
	}
	return freed
}

func (t *table[S]) reclaim(now int64) (freed int) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		freed += sh.sweep(t, now, 16)
		sh.mu.Unlock()
	}
	return freed
}

// reclaim drops expired states in all tables of s.
func (s *Store) reclaim(now int64) (freed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		freed += t.reclaim(now)
	}
	return freed
}

// edit calls f with the state of name, if there is one; f may change the state.
func (t *table[S]) edit(name string, f func(s *S)) {
	sh := t.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if x, known := sh.entries[name]; known {
		f(&x.state)
	}
}

// overhead of a state in bytes, besides the state and its name: pointers and
// the name's header in a map that is half to seven eighths full, in the queue
// and in the entry, and the rounding of the allocator.
const overhead = 112

// bytes estimates the memory of the state of name, 0 without a state; beyond is
// the memory outside of the state's own struct.
func (t *table[S]) bytes(name string, beyond func(s *S) int64) (n int64) {
	t.edit(name, func(s *S) {
		n = overhead + int64(len(name)) + int64(unsafe.Sizeof(*s)) + beyond(s)
	})
	return n
}
