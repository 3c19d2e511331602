package memory

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// blockBytes is the largest length of the data of a block.
const blockBytes = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockWriter writes the blocks of a snapshot.
type blockWriter struct {
	w   io.Writer
	sum uint32
	buf []byte
}

// put writes p, with its checksum.
func (b *blockWriter) put(p []byte) error {
	b.buf = binary.LittleEndian.AppendUint32(b.buf[:0], uint32(len(p)))
	b.buf = append(b.buf, p...)
	b.sum = crc32.Update(b.sum, castagnoli, b.buf)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, b.sum)
	_, err := b.w.Write(b.buf)
	return err
}

// write writes data in as many blocks as it takes.
func (b *blockWriter) write(data []byte) error {
	for len(data) > 0 {
		n := min(len(data), blockBytes)
		if err := b.put(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// blockReader is the data of the blocks of a snapshot, checked.
type blockReader struct {
	r    io.Reader
	sum  uint32
	buf  []byte
	rest []byte // of buf, not yet read
	err  error  // sticky; not io.EOF
	end  bool   // the last block has been read
}

// damaged makes an ErrDamaged that tells what is amiss.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// open reads the header.
func (b *blockReader) open() error {
	header := make([]byte, snapshotHeader)
	if n, err := io.ReadFull(b.r, header); err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged("it has %d bytes, want %d and more", n, snapshotHeader)
	} else if err != nil {
		return err
	}
	if magic := header[:len(snapshotMagic)]; string(magic) != snapshotMagic {
		return damaged("it begins with %q, want %q", magic, snapshotMagic)
	}
	if version := header[len(snapshotMagic)]; version != snapshotVersion {
		return fmt.Errorf("the snapshot is of version %d, want %d", version, snapshotVersion)
	}
	b.sum = crc32.Update(0, castagnoli, header)
	return nil
}

// next reads a block into rest, which is empty.
func (b *blockReader) next() error {
	if b.err != nil {
		return b.err
	}
	if b.end {
		return io.EOF
	}
	if b.buf == nil {
		b.buf = make([]byte, 4+blockBytes+4)
	}
	b.err = b.fill(b.buf[:4])
	if b.err != nil {
		return b.err
	}
	n := binary.LittleEndian.Uint32(b.buf)
	if n > blockBytes {
		b.err = damaged("a block of %d bytes, want %d at most", n, blockBytes)
		return b.err
	}
	if b.err = b.fill(b.buf[4 : 4+n+4]); b.err != nil {
		return b.err
	}
	b.sum = crc32.Update(b.sum, castagnoli, b.buf[:4+n])
	if sum := binary.LittleEndian.Uint32(b.buf[4+n:]); sum != b.sum {
		b.err = damaged("the checksum of a block is %08x, want %08x", b.sum, sum)
		return b.err
	}
	b.rest = b.buf[4 : 4+n]
	if n > 0 {
		return nil
	}
	if b.end = true; b.trailing() {
		return b.err
	}
	return io.EOF
}

// fill reads so many bytes.
func (b *blockReader) fill(p []byte) error {
	_, err := io.ReadFull(b.r, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged("the end is missing")
	}
	return err
}

// trailing sets err unless r is at its end.
func (b *blockReader) trailing() bool {
	var one [1]byte
	switch _, err := io.ReadFull(b.r, one[:]); err {
	case io.EOF:
		return false
	case nil:
		b.err = damaged("bytes follow after its end")
	default:
		b.err = err
	}
	return true
}

func (b *blockReader) ReadByte() (byte, error) {
	for len(b.rest) == 0 {
		if err := b.next(); err != nil {
			return 0, err
		}
	}
	c := b.rest[0]
	b.rest = b.rest[1:]
	return c, nil
}

func (b *blockReader) Read(p []byte) (n int, err error) {
	for len(b.rest) == 0 {
		if err := b.next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
