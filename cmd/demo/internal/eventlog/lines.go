package eventlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLine is the longest line in bytes, including the line's end. Web servers cut
// lines at about ten thousand bytes.
const maxLine = 1 << 20

var errTooLong = errors.New("the line is longer than 1 MiB, want less")

// lines reads line by line, in the memory of the longest line allowed.
type lines struct {
	buf    *bufio.Reader
	zipped bool
	number int64 // of the line last returned, from 1
	last   []byte
	again  bool // return the last line once more
}

func newLines(source io.Reader, name string) (*lines, error) {
	raw := bufio.NewReaderSize(source, 1<<16)
	magic, err := raw.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case string(magic) == "\x1f\x8b":
		zip, err := gzip.NewReader(raw)
		if err != nil {
			return nil, fmt.Errorf("decompressing: %w", err)
		}
		return &lines{buf: bufio.NewReaderSize(zip, maxLine), zipped: true}, nil
	case strings.HasSuffix(name, ".gz"):
		return nil, errors.New("the name ends in .gz, but the content is not compressed by gzip")
	}
	return &lines{buf: bufio.NewReaderSize(raw, maxLine)}, nil
}

// next returns a line without the line's end, valid until the following call, or
// errTooLong; after errTooLong reading goes on with the following line.
func (l *lines) next() ([]byte, error) {
	if l.again {
		l.again = false
		return l.last, nil
	}
	line, err := l.buf.ReadSlice('\n')
	if err == io.EOF && len(line) == 0 || err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, err
	}
	l.number++
	if err == bufio.ErrBufferFull {
		for err == bufio.ErrBufferFull {
			_, err = l.buf.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		return nil, errTooLong
	}
	if l.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	l.last = bytes.TrimSuffix(line, []byte("\r"))
	return l.last, nil
}

// waits reports whether no whole line is at hand.
func (l *lines) waits() bool {
	held, _ := l.buf.Peek(l.buf.Buffered())
	return !l.again && bytes.IndexByte(held, '\n') < 0
}
