package memory

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot is eight bytes that name the format, and blocks. A block is the
// length of its data (4 bytes, low byte first), the data, and the CRC-32C of all
// former bytes of the snapshot but the checksums: so the reader sees checked data
// only, a block at a time, and no block can be missing, twice or elsewhere. The
// last block has no data.
//
// The data of the blocks are a sequence of records, one for each key, and a last
// record. Numbers are varints of encoding/binary, zigzag where "signed".
//
//	key    2 + number of the layout; or 1 for a new layout, which has the next number:
//	           number of tiers, then of each: width, TTL
//	       length of the key, the key
//	       flags: keptDropped, keptMixed
//	       with keptDropped: entry.dropped, signed
//	       of each tier: number of buckets, then of each, oldest first:
//	           index less that of the bucket before (the first: index, signed), count
//	last   0, number of keys, flags, with keptDropped: the latest shard.dropped, signed
//
// A layout tells which buckets are sums of others, as in base: a change there
// needs another version, like a change of the records.
const (
	snapshotMagic   = "abacusm"
	snapshotVersion = 1
	snapshotHeader  = len(snapshotMagic) + 1
)

const (
	keptDropped = 1 << iota // entry.dropped is not never
	keptMixed               // mixedTTL
)

// maxKnown bounds the layouts that have numbers: a further layout is number 0, and
// the layouts before are forgotten.
const maxKnown = 256

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
// largest key in the snapshot. There are at least sixteen shards. An error is an
// error of w.
func (s *Store) Snapshot(w io.Writer) error {
	if err := s.snapshot(w); err != nil {
		return fmt.Errorf("memory: Snapshot: %w", err)
	}
	return nil
}

func (s *Store) snapshot(w io.Writer) error {
	blocks := blockWriter{w: w}
	header := append([]byte(snapshotMagic), snapshotVersion)
	blocks.sum = crc32.Update(0, castagnoli, header)
	if _, err := w.Write(header); err != nil {
		return err
	}
	enc := encoder{known: map[*layout]uint64{}}
	dropped := int64(never)
	var list []slot
	for i := range s.shards {
		sh := &s.shards[i]
		list = sh.list(list[:0])
		for rest := list; len(rest) > 0; {
			rest = sh.encode(&enc, rest)
			if len(enc.buf) >= blockBytes {
				if err := blocks.write(enc.buf); err != nil {
					return err
				}
				enc.buf = enc.buf[:0]
			}
		}
		// Read after the keys, so that no key of the list has gone unnoticed.
		sh.mu.Lock()
		dropped = max(dropped, sh.dropped)
		sh.mu.Unlock()
	}
	enc.last(dropped)
	if err := blocks.write(enc.buf); err != nil {
		return err
	}
	return blocks.put(nil)
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
	buf   []byte
	known map[*layout]uint64 // numbers of layouts
	keys  uint64
}

func (enc *encoder) uvarint(v uint64) { enc.buf = binary.AppendUvarint(enc.buf, v) }

func (enc *encoder) varint(v int64) { enc.buf = binary.AppendVarint(enc.buf, v) }

func (enc *encoder) entry(e *entry) {
	enc.keys++
	enc.layout(e.layout)
	var room [256]byte
	key := e.key(room[:0])
	enc.uvarint(uint64(len(key)))
	enc.buf = append(enc.buf, key...)
	flags := uint64(0)
	if e.flags&mixedTTL != 0 {
		flags = keptMixed
	}
	enc.dropped(e.dropped, flags)
	for i, t := range e.layout.tiers {
		g, k := e.tier(i)
		size := g.size(k)
		enc.uvarint(uint64(size))
		before := int64(0)
		for j := range size {
			b := g.bucket(k, j)
			if j == 0 {
				enc.varint(b.start / t.width)
			} else {
				enc.uvarint(uint64(b.start/t.width - before))
			}
			enc.uvarint(uint64(b.n))
			before = b.start / t.width
		}
	}
}

func (enc *encoder) layout(p *layout) {
	if number, known := enc.known[p]; known {
		enc.uvarint(2 + number)
		return
	}
	if len(enc.known) == maxKnown {
		clear(enc.known)
	}
	enc.known[p] = uint64(len(enc.known))
	enc.uvarint(1)
	enc.uvarint(uint64(len(p.tiers)))
	for _, t := range p.tiers {
		enc.uvarint(uint64(t.width))
		enc.uvarint(uint64(t.ttl))
	}
}

// dropped encodes the expiry of a dropped bucket, after flags.
func (enc *encoder) dropped(expiry int64, flags uint64) {
	if expiry == never {
		enc.uvarint(flags)
		return
	}
	enc.uvarint(flags | keptDropped)
	enc.varint(expiry)
}

func (enc *encoder) last(dropped int64) {
	enc.uvarint(0)
	enc.uvarint(enc.keys)
	enc.dropped(dropped, 0)
}
