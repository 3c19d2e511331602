package limiter

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// sketch finds the keys with the most denials in a fixed memory. Keys are spread
// over shards by their hash, so callers of different keys seldom wait for each
// other, and the keys of a shard are as random a part as the counters of the
// shard are of all counters. A sketch has the hour under way and the hour before:
// the denials of last month do not hide the denials of today.
type sketch struct {
	seed   maphash.Seed
	shards [sketchShards]sketchShard
}

const (
	sketchShards  = 8
	shardCounters = 128 // 1,024 in all shards
	maxFeature    = 200 // bytes of a feature; a longer feature is kept as a digest
)

type sketchShard struct {
	mu        sync.Mutex
	hour      time.Duration // of now, a multiple of an hour since the beginning
	now, last *spaceSaving
	_         [88]byte // no two shards in a cache line
}

func (s *sketch) init() {
	s.seed = maphash.MakeSeed()
	for i := range s.shards {
		s.shards[i].now, s.shards[i].last = newSpaceSaving(), newSpaceSaving()
	}
}

// at returns the shard of a hash, locked, with the hour of an instant.
func (s *sketch) at(hash uint64, instant time.Duration) *sketchShard {
	sh := &s.shards[hash%sketchShards]
	sh.mu.Lock()
	hour := instant.Truncate(time.Hour)
	if hour <= sh.hour { // of callers that wait for the lock, some are from the hour before
		return sh
	}
	if hour > sh.hour+time.Hour {
		sh.now.reset()
	}
	sh.now, sh.last = sh.last, sh.now
	sh.now.reset()
	sh.hour = hour
	return sh
}

// note counts a denial of key. kind and event may be kept.
func (s *sketch) note(event, kind string, key counter.Key, instant time.Duration, c *counter.Counter) {
	hash := maphash.Comparable(s.seed, key)
	redacted := len(key.Feature) > maxFeature
	if redacted {
		key = inner(c).Redact(key)
	}
	sh := s.at(hash, instant)
	defer sh.mu.Unlock()
	sh.now.add(hash, event, kind, key.Feature, redacted)
}

// forget forgets the denials of key.
func (s *sketch) forget(key counter.Key) {
	hash := maphash.Comparable(s.seed, key)
	sh := s.at(hash, 0)
	defer sh.mu.Unlock()
	sh.now.remove(hash)
	sh.last.remove(hash)
}

// most returns at most n keys, and the instant from which they are counted.
func (s *sketch) most(n int, instant time.Duration, c *counter.Counter) (keys []DeniedKey, since time.Duration) {
	for i := range s.shards {
		sh := s.at(uint64(i), instant)
		keys = sh.appendKeys(keys, c)
		since = max(0, sh.hour-time.Hour)
		sh.mu.Unlock()
	}
	slices.SortFunc(keys, func(a, b DeniedKey) int {
		return cmp.Or(cmp.Compare(b.Denied.Low, a.Denied.Low), cmp.Compare(b.Denied.High, a.Denied.High),
			strings.Compare(a.Key.Event, b.Key.Event), strings.Compare(a.Key.Feature, b.Key.Feature))
	})
	return slices.Clip(keys[:min(len(keys), max(0, n))]), since
}

// appendKeys appends the keys of both hours.
func (sh *sketchShard) appendKeys(keys []DeniedKey, c *counter.Counter) []DeniedKey {
	for _, hours := range [][2]*spaceSaving{{sh.now, sh.last}, {sh.last, sh.now}} {
		this, other := hours[0], hours[1]
		for i := range this.counters {
			d := &this.counters[i]
			if d.count == 0 {
				continue
			}
			count, over := other.floor, other.floor
			if j, found := other.find(d.hash); found {
				if this == sh.last {
					continue // was appended
				}
				count, over = other.counters[j].count, other.counters[j].over
			}
			count, over = count+d.count, over+d.over
			key := counter.Key{Event: d.event, Feature: string(d.feature)}
			if !d.redacted {
				key = inner(c).Redact(key)
			}
			keys = append(keys, DeniedKey{key, d.kind, counter.Count{Low: count - over, High: count}})
		}
	}
	return keys
}

// spaceSaving counts keys by the algorithm of that name (Metwally, Agrawal, El
// Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams",
// 2005): a key without a counter takes the counter with the lowest count, and goes
// on from there. No count is too low, and none is too high by more than over.
//
// A key is known by its hash. Hashes of 64 bits under a random seed are equal for
// two of a million keys once in 40 million times; these two then share a counter.
type spaceSaving struct {
	counters [shardCounters]spaceCounter
	order    [shardCounters]uint8     // numbers of the counters, lowest count first; those without a key have count 0
	heads    [2 * shardCounters]uint8 // by hash, 1 + the number of the first counter of a chain; 0: none
	floor    int64                    // a key without a counter was counted as often at most
}

type spaceCounter struct {
	hash        uint64
	count, over int64
	place       uint8 // in order
	next        uint8 // in the chain, as in heads
	redacted    bool
	event, kind string
	feature     []byte // kept for the next key
}

func newSpaceSaving() *spaceSaving {
	s := &spaceSaving{}
	s.reset()
	return s
}

// reset forgets all keys.
func (s *spaceSaving) reset() {
	s.heads, s.floor = [2 * shardCounters]uint8{}, 0
	for i := range s.counters {
		s.counters[i].count = 0
		s.counters[i].place, s.order[i] = uint8(i), uint8(i)
	}
}

func (s *spaceSaving) add(hash uint64, event, kind, feature string, redacted bool) {
	i, found := s.find(hash)
	c := &s.counters[i]
	if !found {
		i = s.order[0]
		if c = &s.counters[i]; c.count > 0 {
			s.unlink(i)
			s.floor = c.count
		}
		s.last(i)
		c.hash, c.count, c.over = hash, s.floor, s.floor
		c.event, c.kind, c.redacted = event, kind, redacted
		c.feature = append(c.feature[:0], feature...)
		head := s.head(hash)
		c.next, *head = *head, i+1
	}
	s.last(i)
	c.count++
}

// last moves counter i behind all counters of equal count, so that its count can
// rise by one, or from zero to the floor.
func (s *spaceSaving) last(i uint8) {
	c := &s.counters[i]
	p := uint8(sort.Search(shardCounters, func(p int) bool { return s.counters[s.order[p]].count > c.count }) - 1)
	other := s.order[p]
	s.order[c.place], s.order[p] = other, i
	c.place, s.counters[other].place = p, c.place
}

func (s *spaceSaving) head(hash uint64) *uint8 {
	return &s.heads[hash/sketchShards%uint64(len(s.heads))]
}

func (s *spaceSaving) find(hash uint64) (i uint8, found bool) {
	for next := *s.head(hash); next != 0; next = s.counters[next-1].next {
		if s.counters[next-1].hash == hash {
			return next - 1, true
		}
	}
	return 0, false
}

// unlink takes counter i out of its chain.
func (s *spaceSaving) unlink(i uint8) {
	link := s.head(s.counters[i].hash)
	for *link != i+1 {
		link = &s.counters[*link-1].next
	}
	*link = s.counters[i].next
}

// remove forgets a key.
func (s *spaceSaving) remove(hash uint64) {
	i, found := s.find(hash)
	if !found {
		return
	}
	s.unlink(i)
	c := &s.counters[i]
	clear(c.feature[:cap(c.feature)])
	copy(s.order[1:], s.order[:c.place])
	s.order[0], c.count = i, 0
	for p := range int(c.place) + 1 {
		s.counters[s.order[p]].place = uint8(p)
	}
}
