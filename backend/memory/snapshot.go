package memory

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot is eight bytes that name the format, and then blocks. A block is two
// pieces: the length of its content in 8 bytes, and the content. After each piece comes
// the CRC-32C of all pieces so far, in 4 bytes, high byte first as the length: so a
// reader uses no byte that is not checked, and misses no block. The content is a batch
// of keys, or the end. Numbers are varints of encoding/binary; an instant is counted
// from the first instant of all.
//
//	key    number of tiers, then of each: width, TTL; or 0: those of the key before
//	       length of the key, the key
//	       entry.mixed, 1 or 0; entry.dropped, an instant
//	       of each tier: number of buckets, then of each, oldest first:
//	           index less that of the bucket before, or less the least index; hits
//	end    0, for no tiers and no key before
//	       the latest shard.dropped, an instant
//
// The layout says which buckets are sums of others: a change of how a ladder is
// stored needs another version, like a change of the content.
const (
	snapshotMagic   = "abacusm"
	snapshotVersion = 3
)

const lengthBytes, sumBytes = 8, crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C of pieces.
type checksum uint32

func (c *checksum) add(piece []byte) { *c = checksum(crc32.Update(uint32(*c), castagnoli, piece)) }

// seal appends to a piece the checksum of all pieces, this one too.
func (c *checksum) seal(piece []byte) []byte {
	c.add(piece)
	return binary.BigEndian.AppendUint32(piece, uint32(*c))
}

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
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(append([]byte(snapshotMagic), snapshotVersion)) // its error comes with the next block
	dropped := int64(never)
	var enc encoder
	var list []slot
	for i := range s.shards {
		sh := &s.shards[i]
		list = sh.list(list[:0])
		for rest := list; len(rest) > 0; {
			rest = sh.encode(&enc, rest)
			if err := enc.block(out); err != nil {
				return err
			}
		}
		// Read after the keys, so that no key of the list has gone unnoticed.
		sh.mu.Lock()
		dropped = max(dropped, sh.dropped)
		sh.mu.Unlock()
	}
	enc.uvarint(0)
	enc.instant(dropped)
	if err := enc.block(out); err != nil {
		return err
	}
	return out.Flush()
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
	for i, at := range slots[:min(len(slots), batchKeys)] {
		if sh.table.holds(at) {
			enc.entry(at.e)
		}
		if len(enc.buf) >= batchBytes {
			return slots[i+1:]
		}
	}
	return slots[min(len(slots), batchKeys):]
}

// encoder makes the content of a block.
type encoder struct {
	sum    checksum
	buf    []byte
	layout *layout // of the key before
}

// block writes a block with what has been encoded, and begins the next one.
func (enc *encoder) block(out *bufio.Writer) error {
	_, _ = out.Write(enc.sum.seal(binary.BigEndian.AppendUint64(nil, uint64(len(enc.buf)))))
	_, err := out.Write(enc.sum.seal(enc.buf))
	enc.buf, enc.layout = enc.buf[:0], nil
	return err
}

func (enc *encoder) uvarint(v uint64) { enc.buf = binary.AppendUvarint(enc.buf, v) }

func (enc *encoder) instant(at int64) { enc.uvarint(uint64(at - never)) }

func (enc *encoder) entry(e *entry) {
	if enc.layout == e.layout {
		enc.uvarint(0)
	} else {
		enc.layout = e.layout
		enc.uvarint(uint64(e.layout.n))
		for _, t := range e.layout.tiers() {
			enc.uvarint(uint64(t.width))
			enc.uvarint(uint64(t.ttl))
		}
	}
	key := e.key()
	enc.uvarint(uint64(len(key)))
	enc.buf = append(enc.buf, key...)
	mixed := uint64(0)
	if e.mixed {
		mixed = 1
	}
	enc.uvarint(mixed)
	enc.instant(e.dropped)
	for k, t := range e.layout.tiers() {
		r, before := e.ring(k), never/t.width
		enc.uvarint(uint64(r.size()))
		for i := range r.size() {
			start, upTo := r.at(i)
			index := start / t.width
			enc.uvarint(uint64(index - before))
			enc.uvarint(uint64(upTo - r.upTo(i)))
			before = index
		}
	}
}
