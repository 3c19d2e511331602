package memory

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"math"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
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
	loaded := New(Config{MaxBuckets: int(s.max), Full: s.policy})
	loaded.seed = s.seed
	from, sum := &source{r: r}, crc32.New(castagnoli)
	dec := decoder{in: bufio.NewReaderSize(io.TeeReader(from, sum), 64<<10), store: loaded, share: s.layouts.share}
	dropped, err := dec.all()
	full := errors.Is(err, ErrFull)
	if full {
		_, _ = io.Copy(io.Discard, dec.in) // a damaged length is no full store
	}
	switch {
	case from.err != nil:
		return from.err // what is wrong with the data follows from it
	case (err == nil || full) && sum.Sum32() != residue:
		return damaged("the checksum is wrong")
	case err != nil:
		return err
	}
	return s.adopt(loaded, dropped)
}

// residue is the CRC-32C of any bytes with their own CRC-32C at the end.
var residue = crc32.Checksum(make([]byte, 4), castagnoli)

// source is a reader that keeps its error, unless that is io.EOF.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	if n, err = s.r.Read(p); err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

var errUsed = errors.New("the store has been used, want a new one")

// adopt moves all keys of loaded to s, which must not be used.
func (s *Store) adopt(loaded *Store, dropped int64) error {
	const all = ^shardSet(0)
	s.lock(all)
	defer s.unlock(all)
	for i := range s.shards {
		if sh := &s.shards[i]; sh.table.keys > 0 || sh.dropped != never {
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

// decoder reads the records of a snapshot into a store. The checksum comes last, and
// anyone may have made it: the decoder checks all on which a store relies. A finding
// is a panic with a failure, which ends in decoder.all.
type decoder struct {
	in     *bufio.Reader
	store  *Store
	share  func(layout) *layout
	layout *layout // of the record before
	key    []byte
}

type failure struct{ error }

// damaged makes an ErrDamaged that says what is wrong.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

func fail(format string, args ...any) { panic(failure{damaged(format, args...)}) }

// read fails if a part of a snapshot cannot be read.
func read(err error) {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		fail("the end is missing")
	} else if err != nil {
		fail("a number cannot be read: %v", err)
	}
}

func (dec *decoder) signed() int64 {
	v, err := binary.ReadVarint(dec.in)
	read(err)
	return v
}

// number returns a number from least to most.
func (dec *decoder) number(what string, least, most int64) int64 {
	v, err := binary.ReadUvarint(dec.in)
	if read(err); v > math.MaxInt64 || int64(v) < least || int64(v) > most {
		fail("%s of %d, want %d to %d", what, v, least, most)
	}
	return int64(v)
}

// all reads a snapshot, and returns the latest expiry of the buckets of entries that
// are gone.
func (dec *decoder) all() (dropped int64, err error) {
	keys := int64(0)
	defer func() {
		if p := recover(); p != nil {
			f, is := p.(failure)
			if !is {
				panic(p)
			}
			if err = f.error; err == ErrFull {
				err = fmt.Errorf("%d keys and no more fit into Config.MaxBuckets of %d: %w", keys, dec.store.max, ErrFull)
			}
		}
	}()
	dec.header()
	flags := dec.number("flags", 0, 2*keptMixed-1)
	for ; flags&isKey != 0; keys++ {
		dec.entry(flags)
		flags = dec.number("flags", 0, 2*keptMixed-1)
	}
	dec.number("the number of keys", keys, keys)
	if dropped = never; flags&keptDropped != 0 {
		dropped = dec.signed()
	}
	_, err = io.ReadFull(dec.in, make([]byte, crc32.Size))
	read(err)
	if _, err := dec.in.ReadByte(); err == nil {
		fail("bytes follow after its end")
	}
	return dropped, nil
}

func (dec *decoder) header() {
	header := make([]byte, len(snapshotMagic)+1)
	if n, err := io.ReadFull(dec.in, header); err != nil {
		fail("it has %d bytes, want %d and more", n, len(header))
	}
	if magic := header[:len(snapshotMagic)]; string(magic) != snapshotMagic {
		fail("it begins with %q, want %q", magic, snapshotMagic)
	}
	if v := header[len(snapshotMagic)]; v != snapshotVersion {
		panic(failure{fmt.Errorf("the snapshot is of version %d, want %d: another release has written it; "+
			"move it away to count from zero, or go on with that release until its longest window has passed", v, snapshotVersion)})
	}
}

// entry reads the record of a key, after the flags, and puts the key into the store.
func (dec *decoder) entry(flags int64) {
	if flags&newLayout != 0 {
		dec.newLayout()
	} else if dec.layout == nil {
		fail("a key without a layout")
	}
	dec.key = dec.key[:0]
	for n := dec.number("the length of a key", 0, math.MaxInt32); n > 0; {
		part := min(n, 4096)
		dec.key = append(dec.key, make([]byte, part)...)
		_, err := io.ReadFull(dec.in, dec.key[int64(len(dec.key))-part:])
		read(err)
		n -= part
	}
	s, hash := dec.store, maphash.Bytes(dec.store.seed, dec.key)
	sh := s.shard(hash)
	if sh.table.find(hash, dec.key) != nil {
		fail("a key is there twice")
	}
	e := new(entry)
	e.reset(dec.key, dec.layout)
	if e.mixed = flags&keptMixed != 0; flags&keptDropped != 0 {
		e.dropped = dec.signed()
	}
	for k, t := range dec.layout.tiers() {
		dec.tier(e.ring(k), t.width)
	}
	if e.rank(byHit) == never { // which settle would remove
		fail("a key without buckets")
	}
	if e.isMarker() && (e.layout.n != 1 || e.finest.size() != 1) {
		fail("a memory of a Forget with more than a label")
	}
	if e.cost() > s.max {
		panic(failure{ErrFull})
	}
	s.spent.Add(e.cost())
	sh.table.insert(hash, e)
	s.settle(sh, e)
	for s.spent.Load() > s.max {
		if s.policy != EvictOldest || !s.removeFirst(byHit, forever-1, nil) {
			panic(failure{ErrFull})
		}
	}
}

func (dec *decoder) newLayout() {
	l := layout{n: int(dec.number("tiers", 1, tiers.MaxTiers))}
	for k := range l.n {
		l.all[k] = tier{dec.number("a width", 1, math.MaxInt64), dec.number("a TTL", 0, math.MaxInt64)}
		if k > 0 && l.all[k].width <= l.all[k-1].width {
			fail("a tier of %s after one of %s", time.Duration(l.all[k].width), time.Duration(l.all[k-1].width))
		}
	}
	dec.layout = dec.share(l)
}

// tier reads the buckets of a tier.
func (dec *decoder) tier(r *ring, width int64) {
	index, last := int64(0), math.MaxInt64/width-1
	for j := range dec.number("buckets", 0, math.MaxInt64) {
		if j == 0 {
			if index = dec.signed(); index <= -last || index > last {
				fail("bucket %d of %s", index, time.Duration(width))
			}
		} else {
			step := dec.number("a step", 1, math.MaxInt64)
			if uint64(step) > uint64(last)-uint64(index) {
				fail("bucket %d of %s, and one %d later", index, time.Duration(width), step)
			}
			index += step
		}
		r.put(index*width, dec.number("a count", 1, backend.MaxCount-r.last.sum))
		if r.cost() > dec.store.max {
			panic(failure{ErrFull})
		}
	}
}
