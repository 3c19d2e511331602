package memory

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot is eight bytes that name the format, a sequence of records, one for each
// key, a last record, and the CRC-32C of all that, 4 bytes, low byte first. Numbers
// are varints of encoding/binary, zigzag where "signed".
//
//	key    flags: isKey, newLayout, keptDropped, keptMixed
//	       with newLayout: number of tiers, then of each: width, TTL; otherwise the
//	           layout is that of the record before
//	       length of the key, the key
//	       with keptDropped: entry.dropped, signed
//	       of each tier: number of buckets, then of each, oldest first:
//	           index less that of the bucket before (the first: index, signed), hits
//	last   flags: keptDropped
//	       number of keys
//	       with keptDropped: the latest shard.dropped, signed
//
// The layout says which buckets are sums of others: a change of how a ladder is
// stored needs another version, like a change of the records.
const (
	snapshotMagic   = "abacusm"
	snapshotVersion = 2
)

const (
	isKey = 1 << iota
	newLayout
	keptDropped // the expiry is not never
	keptMixed   // entry.mixed
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchBytes and batchKeys bound the work for which a shard is locked at a time;
// only a key that alone takes more goes beyond.
const (
	batchBytes = 16 << 10
	batchKeys  = 128
)

// Snapshot writes all keys with their buckets to w, for [Store.Restore] in this
// or another process. Keys are written as stored: their features may be personal
// data, unless the Counter has a Secret.
//
// Calls may go on during a Snapshot. A Snapshot locks a shard for a list of the
// keys, and then for at most 128 keys at a time. Each key is written in its state
// at an instant between the call of Snapshot and the return: with all hits
// counted before the call, and with any part of the hits counted meanwhile. A
// call for several keys, or a Forget, in the meantime may be in the snapshot for
// a part of the keys only, or not at all. So for a restart stop the calls first.
// If keys were replaced during a Snapshot, the snapshot may hold a few keys more
// than the store.
//
// Snapshot needs 16 bytes of memory for each key of a shard, and the bytes of the
// largest key in the snapshot. There are 64 shards. An error is an error of w.
func (s *Store) Snapshot(w io.Writer) error {
	if err := s.snapshot(w); err != nil {
		return fmt.Errorf("memory: Snapshot: %w", err)
	}
	return nil
}

func (s *Store) snapshot(w io.Writer) error {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	enc := encoder{buf: append([]byte(snapshotMagic), snapshotVersion)}
	dropped := int64(never)
	var list []slot
	for i := range s.shards {
		sh := &s.shards[i]
		list = sh.list(list[:0])
		for rest := list; len(rest) > 0; enc.buf = enc.buf[:0] {
			rest = sh.encode(&enc, rest)
			if _, err := out.Write(enc.buf); err != nil {
				return err
			}
		}
		// Read after the keys, so that no key of the list has gone unnoticed.
		sh.mu.Lock()
		dropped = max(dropped, sh.dropped)
		sh.mu.Unlock()
	}
	enc.last(dropped)
	if _, err := out.Write(enc.buf); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// list appends the slots that are taken.
func (sh *shard) list(slots []slot) []slot {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slots = slices.Grow(slots, sh.table.keys)
	for _, at := range sh.table.slots {
		if at.e != nil {
			slots = append(slots, at)
		}
	}
	return slots
}

// encode encodes a batch of the keys in slots, under the lock, and returns the
// rest. The memory of a key that is gone is not looked at: another shard may have
// it.
func (sh *shard) encode(enc *encoder, slots []slot) (rest []slot) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	end := len(enc.buf) + batchBytes
	for i, at := range slots[:min(len(slots), batchKeys)] {
		if sh.table.holds(at) {
			enc.entry(at.e)
		}
		if len(enc.buf) >= end {
			return slots[i+1:]
		}
	}
	return slots[min(len(slots), batchKeys):]
}

// encoder makes the records of a snapshot.
type encoder struct {
	buf    []byte
	layout layout // of the record before
	keys   uint64
}

func (enc *encoder) uvarint(v uint64) { enc.buf = binary.AppendUvarint(enc.buf, v) }

func (enc *encoder) entry(e *entry) {
	enc.keys++
	flags := uint64(isKey)
	if enc.layout != *e.layout {
		flags |= newLayout
	}
	if e.dropped != never {
		flags |= keptDropped
	}
	if e.mixed {
		flags |= keptMixed
	}
	enc.uvarint(flags)
	if flags&newLayout != 0 {
		enc.layout = *e.layout
		enc.uvarint(uint64(e.layout.n))
		for _, t := range e.layout.tiers() {
			enc.uvarint(uint64(t.width))
			enc.uvarint(uint64(t.ttl))
		}
	}
	key := e.key()
	enc.uvarint(uint64(len(key)))
	enc.buf = append(enc.buf, key...)
	if e.dropped != never {
		enc.buf = binary.AppendVarint(enc.buf, e.dropped)
	}
	for k, t := range e.layout.tiers() {
		r, before := e.ring(k), int64(0)
		enc.uvarint(uint64(r.size()))
		for i := range r.size() {
			start, upTo := r.at(i)
			if i == 0 {
				enc.buf = binary.AppendVarint(enc.buf, start/t.width)
			} else {
				enc.uvarint(uint64(start/t.width - before))
			}
			enc.uvarint(uint64(upTo - r.upTo(i)))
			before = start / t.width
		}
	}
}

func (enc *encoder) last(dropped int64) {
	if dropped == never {
		enc.uvarint(0)
		enc.uvarint(enc.keys)
		return
	}
	enc.uvarint(keptDropped)
	enc.uvarint(enc.keys)
	enc.buf = binary.AppendVarint(enc.buf, dropped)
}
