package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

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
	dec := decoder{in: r, store: loaded, share: s.layouts.share}
	err := dec.header()
	for err == nil && !dec.ended {
		err = dec.block()
	}
	if err != nil {
		return err
	}
	if n, err := io.CopyN(io.Discard, r, 1); n > 0 {
		return damaged("bytes follow after its end")
	} else if err != io.EOF {
		return err
	}
	return s.adopt(loaded, dec.dropped)
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

// damaged makes an ErrDamaged that says what is wrong.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// decoder puts the keys of a snapshot into a store. Anyone may have made the checksums:
// a decoder checks all on which a store relies.
type decoder struct {
	in      io.Reader
	sum     checksum
	piece   bytes.Buffer
	rest    []byte // of the block
	store   *Store
	share   func(layout) *layout
	layout  *layout // of the key before
	keys    int
	ended   bool
	dropped int64 // once ended: the latest expiry of the buckets of entries that are gone
}

// header reads what comes before the blocks.
func (dec *decoder) header() error {
	var header [len(snapshotMagic) + 1]byte
	if _, err := io.ReadFull(dec.in, header[:]); err != nil {
		return cut(err)
	}
	if magic := string(header[:len(snapshotMagic)]); magic != snapshotMagic {
		return damaged("it begins with %q, want %q", magic, snapshotMagic)
	}
	if v := header[len(snapshotMagic)]; v != snapshotVersion {
		return fmt.Errorf("the snapshot is of version %d, want %d: another release has written it; "+
			"move it away to count from zero, or go on with that release until its longest window has passed", v, snapshotVersion)
	}
	return nil
}

// cut makes the end of a reader an ErrDamaged.
func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged("the end is missing")
	}
	return err
}

// next returns the n bytes of the next piece, until the next call. The memory is in
// proportion to what there is to read.
func (dec *decoder) next(n int64) ([]byte, error) {
	dec.piece.Reset()
	if _, err := io.CopyN(&dec.piece, dec.in, n+sumBytes); err != nil {
		return nil, cut(err)
	}
	p := dec.piece.Next(int(n))
	if dec.sum.add(p); uint32(dec.sum) != binary.BigEndian.Uint32(dec.piece.Bytes()) {
		return nil, damaged("the checksum is wrong")
	}
	return p, nil
}

var errContradiction = damaged("its content contradicts itself")

// must panics with errContradiction unless ok. The panic ends in block.
func (dec *decoder) must(ok bool) {
	if !ok {
		panic(errContradiction)
	}
}

// block puts the keys of the next block into the store. After an error the store is of
// no use.
func (dec *decoder) block() (err error) {
	defer func() {
		if p := recover(); p == errContradiction {
			err = errContradiction
		} else if p != nil {
			panic(p)
		}
	}()
	length, err := dec.next(lengthBytes)
	if err != nil {
		return err
	}
	// A bucket takes less than 20 bytes, and a batch ends soon.
	n := binary.BigEndian.Uint64(length)
	if n > uint64(2*batchBytes+20*min(dec.store.max, 1<<50)) {
		return dec.full()
	}
	if dec.rest, err = dec.next(int64(n)); err != nil {
		return err
	}
	for dec.layout = nil; len(dec.rest) > 0; {
		dec.must(!dec.ended)
		n := int(dec.number(0, tiers.MaxTiers))
		if n == 0 && dec.layout == nil {
			dec.ended, dec.dropped = true, dec.instant()
			continue
		}
		if n > 0 {
			dec.newLayout(n)
		}
		if !dec.insert(dec.entry()) {
			return dec.full()
		}
		dec.keys++
	}
	return nil
}

func (dec *decoder) full() error {
	return fmt.Errorf("%d keys and no more fit into Config.MaxBuckets of %d: %w", dec.keys, dec.store.max, ErrFull)
}

func (dec *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(dec.rest)
	dec.must(n > 0)
	dec.rest = dec.rest[n:]
	return v
}

// number returns a number from least to most.
func (dec *decoder) number(least, most int64) int64 {
	v := dec.uvarint()
	dec.must(v >= uint64(least) && v <= uint64(most))
	return int64(v)
}

// length returns a number of things to come, each of a byte at least.
func (dec *decoder) length() int {
	n := dec.uvarint()
	dec.must(n <= uint64(len(dec.rest)))
	return int(n)
}

func (dec *decoder) instant() int64 { return never + int64(dec.uvarint()) }

func (dec *decoder) newLayout(n int) {
	l, least := layout{n: n}, int64(1)
	for k := range n {
		l.all[k] = tier{dec.number(least, math.MaxInt64), dec.number(0, math.MaxInt64)}
		least = l.all[k].width + 1 // of the widest of all: no number
	}
	dec.layout = dec.share(l)
}

// entry returns the next key, which has a bucket at least.
func (dec *decoder) entry() *entry {
	e, n := new(entry), dec.length()
	e.reset(dec.rest[:n], dec.layout)
	dec.rest = dec.rest[n:]
	e.mixed, e.dropped = dec.number(0, 1) == 1, dec.instant()
	for k, t := range dec.layout.tiers() {
		r, index, last := e.ring(k), never/t.width, forever/t.width-1
		for range dec.length() {
			step := dec.uvarint()
			dec.must(step > 0 && step <= uint64(last-index))
			index += int64(step)
			r.put(index*t.width, dec.number(1, backend.MaxCount-r.last.sum))
		}
	}
	dec.must(e.rank(byHit) != never)
	dec.must(!e.isMarker() || e.layout.n == 1 && e.finest.size() == 1) // as Forget makes it
	return e
}

// insert puts e into the store, and reports whether it fits.
func (dec *decoder) insert(e *entry) bool {
	s, hash := dec.store, dec.store.hash(e)
	sh := s.shard(hash)
	dec.must(sh.table.find(hash, e.key()) == nil)
	if e.cost() > s.max {
		return false
	}
	s.spent.Add(e.cost())
	sh.table.insert(hash, e)
	s.settle(sh, e)
	for s.spent.Load() > s.max {
		if s.policy != EvictOldest || !s.removeFirst(byHit, forever-1, nil) {
			return false
		}
	}
	return true
}
