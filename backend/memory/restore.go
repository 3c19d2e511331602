package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// ErrDamaged is the error of a [Store.Restore] from a stream that is no whole
// snapshot: the end is missing, bytes were changed, or the stream is of another
// kind. Errors of the reader, and of a snapshot of another version, are not
// ErrDamaged.
var ErrDamaged = errors.New("the snapshot is damaged")

// Restore fills an empty store, to which no call has added yet, with the keys of
// a snapshot. r must hold the snapshot and nothing more. After an error the store
// is as before: all is checked first. Calls for the store may go on during a
// Restore; if a call adds to a key first, the Restore is an error.
//
// All of a snapshot is loaded, however old. Buckets expire by the labels of later
// calls: the store has no clock, and a clock ahead at the start of a machine
// would forgive every limit. Keys whose buckets have all expired are the first to
// be replaced. If the clock was set back since, hits count longer, by as much.
//
// Keys go by their stored names. Another Prefix, Secret or ladder of the Counter
// makes other names: the keys of the snapshot then count nothing, and take room
// until other keys replace them.
//
// A smaller [Config.MaxBuckets] than in the snapshot's store may be too small.
// [Config.Full] decides, as for calls: Refuse returns [ErrFull], and EvictOldest
// removes the keys with the oldest last hits ([Stats.Evicted]). A snapshot made
// without calls under way always fits into a store with the same MaxBuckets.
//
// The error of a damaged snapshot is [ErrDamaged]. Restore believes no length in
// the snapshot: the memory of Restore is in proportion to the bytes read, and
// bounded as the store's.
func (s *Store) Restore(r io.Reader) error {
	if err := s.restore(r); err != nil {
		return fmt.Errorf("memory: Restore: %w", err)
	}
	return nil
}

func (s *Store) restore(r io.Reader) error {
	if err := s.unused(); err != nil {
		return err
	}
	blocks := blockReader{r: r}
	if err := blocks.open(); err != nil {
		return err
	}
	loaded := newStore(s.max, s.policy, s.seed, len(s.shards))
	dec := decoder{blocks: &blocks, layouts: &s.layouts, limit: s.max}
	dropped, err := dec.all(loaded)
	if blocks.err != nil {
		return blocks.err // what is amiss with the data follows from it
	}
	if err != nil {
		return err
	}
	return s.adopt(loaded, dropped)
}

// unused tells that a call has added to s.
func (s *Store) unused() error {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		used := sh.used()
		sh.mu.Unlock()
		if used {
			return errUsed
		}
	}
	return nil
}

var errUsed = errors.New("the store has been used, want a new one")

func (sh *shard) used() bool { return sh.table.keys > 0 || sh.dropped != never }

// adopt moves all keys of loaded to s, which is not used.
func (s *Store) adopt(loaded *Store, dropped int64) error {
	var all shardSet
	for i := range s.shards {
		all.add(&s.shards[i])
	}
	s.lock(&all)
	defer s.unlock(&all)
	for i := range s.shards {
		if s.shards[i].used() {
			return errUsed
		}
	}
	if !s.reserve(loaded.spent.Load(), s.max) {
		return fmt.Errorf("calls have begun: %w", ErrFull)
	}
	for i := range s.shards {
		sh, from := &s.shards[i], &loaded.shards[i]
		sh.table, sh.heaps, sh.evicted = from.table, from.heaps, from.evicted
		sh.dropped = max(from.dropped, dropped)
		for order := range sh.heaps {
			s.publish(sh, order)
		}
	}
	return nil
}

// decoder reads the records of a snapshot. The checksums are right, but anyone may
// have made them: the decoder checks all on which the store relies.
type decoder struct {
	blocks  *blockReader
	err     error // sticky
	layouts *layouts
	limit   int64 // of the store, in buckets

	known   []*layout
	tiers   []tier
	key     []byte
	buckets []bucket
}

// fail makes an error, unless there is an error already.
func (dec *decoder) fail(format string, args ...any) {
	if dec.err == nil {
		dec.err = damaged(format, args...)
	}
}

func (dec *decoder) uvarint() uint64 {
	if dec.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(dec.blocks)
	if err != nil {
		dec.fail("a number cannot be read: %v", err)
	}
	return v
}

func (dec *decoder) varint() int64 {
	if dec.err != nil {
		return 0
	}
	v, err := binary.ReadVarint(dec.blocks)
	if err != nil {
		dec.fail("a number cannot be read: %v", err)
	}
	return v
}

// number is a uvarint from least to most, which is least or more.
func (dec *decoder) number(what string, least, most int64) int64 {
	v := dec.uvarint()
	if v > math.MaxInt64 || int64(v) < least || int64(v) > most {
		dec.fail("%s of %d, want %d to %d", what, v, least, most)
		return least
	}
	return int64(v)
}

// all reads the records into an empty store, and returns the latest expiry of the
// buckets of entries that are gone.
func (dec *decoder) all(s *Store) (dropped int64, err error) {
	keys := int64(0)
	for dec.err == nil {
		head := dec.number("the head of a record", 0, 1+int64(len(dec.known)))
		if head == 0 {
			break
		}
		if dec.entry(s, head); errors.Is(dec.err, ErrFull) {
			return 0, fmt.Errorf("%d keys and no more fit into Config.MaxBuckets of %d: %w", keys, dec.limit, ErrFull)
		}
		keys++
	}
	dec.number("the number of keys", keys, keys)
	dropped = dec.dropped(dec.number("flags", 0, keptDropped))
	if dec.err == nil {
		if _, err := dec.blocks.ReadByte(); err != io.EOF {
			dec.fail("records follow after the last")
		}
	}
	return dropped, dec.err
}

func (dec *decoder) dropped(flags int64) int64 {
	if flags&keptDropped == 0 {
		return never
	}
	return dec.varint()
}

// entry reads the record of a key, after the head.
func (dec *decoder) entry(s *Store, head int64) {
	p := dec.layout(head)
	key := dec.name()
	flags := dec.number("flags", 0, keptDropped|keptMixed)
	dropped := dec.dropped(flags)
	if dec.err != nil {
		return
	}
	hash := maphash.Bytes(s.seed, key)
	sh := s.shard(hash)
	if sh.table.find(hash, key) != nil {
		dec.fail("a key is there twice")
		return
	}
	e := new(entry)
	e.reset(key, p)
	e.dropped = dropped
	if flags&keptMixed != 0 {
		e.flags |= mixedTTL
	}
	room := dec.limit
	for i := range p.tiers {
		g, k := e.tier(i)
		for _, b := range dec.tier(p.tiers[i].width, room) {
			g.put(k, b.start, b.n)
			room--
		}
	}
	if dec.err == nil && e.lastHit() == never {
		dec.fail("a key without buckets")
	}
	if dec.err != nil {
		return
	}
	e.look()
	if e.cost() > dec.limit {
		dec.err = ErrFull
		return
	}
	s.spent.Add(e.cost())
	sh.table.insert(hash, e)
	s.enter(sh, e)
	for s.spent.Load() > s.max && dec.err == nil {
		var b budget
		if s.policy != EvictOldest || !s.evict(&b, nil) {
			dec.err = ErrFull
		}
		s.release(&b)
	}
}

// layout is the layout of a head, read if it is new.
func (dec *decoder) layout(head int64) *layout {
	if head != 1 {
		return dec.known[head-2]
	}
	n := dec.number("tiers", 1, math.MaxInt64)
	dec.tiers = dec.tiers[:0]
	for ; n > 0 && dec.err == nil; n-- {
		width := dec.number("a width", 1, math.MaxInt64)
		ttl := dec.number("a TTL", 0, math.MaxInt64)
		dec.tiers = append(dec.tiers, tier{width, ttl})
	}
	widths := make(map[int64]bool, len(dec.tiers))
	for _, t := range dec.tiers {
		widths[t.width] = true
	}
	if dec.err == nil && len(widths) != len(dec.tiers) {
		dec.fail("a layout with two tiers of one width")
	}
	if dec.err != nil {
		return nil
	}
	p := dec.layouts.get(dec.tiers)
	if p.chainCost() > dec.limit {
		dec.err = ErrFull
	}
	if len(dec.known) == maxKnown {
		dec.known = dec.known[:0]
	}
	dec.known = append(dec.known, p)
	return p
}

// name reads a key, which is good until the next.
func (dec *decoder) name() []byte {
	dec.key = dec.key[:0]
	for n := dec.number("the length of a key", 0, math.MaxInt32); n > 0 && dec.err == nil; {
		if len(dec.blocks.rest) == 0 {
			if err := dec.blocks.next(); err != nil {
				dec.fail("a key cannot be read: %v", err)
			}
		}
		part := dec.blocks.rest[:min(n, int64(len(dec.blocks.rest)))]
		dec.key = append(dec.key, part...)
		dec.blocks.rest = dec.blocks.rest[len(part):]
		n -= int64(len(part))
	}
	return dec.key
}

// tier reads the buckets of a tier, which are good until the next. More than room
// and one are more than the store may hold.
func (dec *decoder) tier(width, room int64) []bucket {
	n := dec.number("buckets", 0, math.MaxInt64)
	dec.buckets = dec.buckets[:0]
	index, last, left := int64(0), math.MaxInt64/width, int64(backend.MaxCount)
	for j := int64(0); j < n && dec.err == nil; j++ {
		if j == 0 {
			if index = dec.varint(); index < math.MinInt64/width || index > last {
				dec.fail("bucket %d of %s", index, time.Duration(width))
			}
		} else {
			step := dec.uvarint()
			if step == 0 || step > uint64(last)-uint64(index) {
				dec.fail("bucket %d of %s, and one %d later", index, time.Duration(width), step)
			}
			index += int64(step)
		}
		count := dec.number("a count", 1, left)
		left -= count
		if j > room && dec.err == nil {
			dec.err = ErrFull
		}
		dec.buckets = append(dec.buckets, bucket{index * width, count})
	}
	if dec.err != nil {
		return nil
	}
	return dec.buckets
}
