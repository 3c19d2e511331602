package tally

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
	redact func(counter.Key) counter.Key
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

func (s *sketch) init(redact func(counter.Key) counter.Key) {
	s.redact, s.seed = redact, maphash.MakeSeed()
	for i := range s.shards {
		s.shards[i].hour = -2 * time.Hour // the first call resets both hours
		s.shards[i].now, s.shards[i].last = &spaceSaving{}, &spaceSaving{}
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
func (s *sketch) note(event, kind string, key counter.Key, instant time.Duration) {
	hash := maphash.Comparable(s.seed, key)
	redacted := len(key.Feature) > maxFeature
	if redacted {
		key = s.redact(key)
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
func (s *sketch) most(n int, instant time.Duration) (keys []DeniedKey, since time.Duration) {
	for i := range s.shards {
		sh := s.at(uint64(i), instant)
		keys = sh.appendKeys(keys, s.redact)
		since = max(0, sh.hour-time.Hour)
		sh.mu.Unlock()
	}
	slices.SortFunc(keys, func(a, b DeniedKey) int {
		return cmp.Or(cmp.Compare(b.AtLeast, a.AtLeast), cmp.Compare(b.AtMost, a.AtMost),
			strings.Compare(a.Event, b.Event), strings.Compare(a.Feature, b.Feature))
	})
	return slices.Clip(keys[:min(len(keys), max(0, n))]), since
}

// appendKeys appends the keys of both hours.
func (sh *sketchShard) appendKeys(keys []DeniedKey, redact func(counter.Key) counter.Key) []DeniedKey {
	for i, this := range [...]*spaceSaving{sh.now, sh.last} {
		other := [...]*spaceSaving{sh.last, sh.now}[i]
		for i := range this.counters[1:] {
			d := &this.counters[i+1]
			if d.count == 0 {
				continue
			}
			count, over := other.floor, other.floor
			if j := *other.link(d.hash); j != 0 {
				if this == sh.last {
					continue // was appended
				}
				count, over = other.counters[j].count, other.counters[j].over
			}
			count, over = count+d.count, over+d.over
			key := counter.Key{Event: d.event, Feature: string(d.feature)}
			if !d.redacted {
				key = redact(key)
			}
			keys = append(keys, DeniedKey{key.Event, d.kind, key.Feature, count - over, count})
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
	counters [1 + shardCounters]spaceCounter // 0 is none
	order    [shardCounters]uint8            // numbers of the counters, lowest count first; those without a key have count 0
	heads    [2 * shardCounters]uint8        // by hash, the number of the first counter of a chain
	floor    int64                           // a key without a counter was counted as often at most
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

// reset forgets all keys.
func (s *spaceSaving) reset() {
	s.heads, s.floor = [2 * shardCounters]uint8{}, 0
	for p := range s.order {
		c := &s.counters[p+1]
		c.count, c.place, s.order[p] = 0, uint8(p), uint8(p+1)
	}
}

func (s *spaceSaving) add(hash uint64, event, kind, feature string, redacted bool) {
	i := *s.link(hash)
	if i == 0 {
		i = s.order[0]
		c := &s.counters[i]
		if c.count > 0 {
			*s.link(c.hash) = c.next
			s.floor = c.count
		}
		s.last(i)
		c.hash, c.count, c.over = hash, s.floor, s.floor
		c.event, c.kind, c.redacted = event, kind, redacted
		c.feature = append(c.feature[:0], feature...)
		c.next, *s.link(hash) = 0, i
	}
	s.last(i)
	s.counters[i].count++
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

// link returns the link to the counter of a key, or else the end of the chain in which
// it would be, which is 0.
func (s *spaceSaving) link(hash uint64) *uint8 {
	link := &s.heads[hash/sketchShards%uint64(len(s.heads))]
	for *link != 0 && s.counters[*link].hash != hash {
		link = &s.counters[*link].next
	}
	return link
}

// remove forgets a key.
func (s *spaceSaving) remove(hash uint64) {
	link := s.link(hash)
	i := *link
	if i == 0 {
		return
	}
	c := &s.counters[i]
	*link = c.next
	clear(c.feature[:cap(c.feature)])
	copy(s.order[1:], s.order[:c.place])
	s.order[0], c.count = i, 0
	for p := range int(c.place) + 1 {
		s.counters[s.order[p]].place = uint8(p)
	}
}
