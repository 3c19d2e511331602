package eventlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxLine is the longest line in bytes, including the line's end. Web servers cut
// lines at about ten thousand bytes.
const maxLine = 1 << 20

var errTooLong = errors.New("the line is longer than 1 MiB, want less")

// reader reads the events of a Log, in the memory of the longest line allowed.
type reader struct {
	*Log
	buf    *bufio.Reader
	zipped bool
	number int64 // of the line last read, from 1
	first  []byte
	parse  func(line []byte) (Event, error) // the line is only valid during the call; nil before the log is open
}

// next returns the next event, and [io.EOF] after the last. Any other error is an
// [Error]; after one of a line, reading can go on.
func (r *reader) next() (Event, error) {
	if r.parse == nil {
		if err := r.open(); err != nil {
			return Event{}, err
		}
	}
	for {
		line, err := r.first, error(nil)
		if r.first = nil; line == nil {
			line, err = r.line()
		}
		if err != nil && err != errTooLong {
			return Event{}, r.failed(err)
		}
		if err == nil && len(line) == 0 {
			continue
		}
		var e Event
		if err == nil {
			e, err = r.parse(line)
		}
		if err != nil {
			err = &Error{r.Name, r.number, err}
		}
		return e, err
	}
}

// waits reports whether the next call of next may have to wait for the source.
func (r *reader) waits() bool {
	if r.buf == nil {
		return true
	}
	held, _ := r.buf.Peek(r.buf.Buffered())
	return r.first == nil && bytes.IndexByte(held, '\n') < 0
}

// line returns a line without the line's end, valid until the following call, or
// errTooLong; after errTooLong reading goes on with the following line.
func (r *reader) line() ([]byte, error) {
	line, err := r.buf.ReadSlice('\n')
	long := err == bufio.ErrBufferFull
	for err == bufio.ErrBufferFull {
		_, err = r.buf.ReadSlice('\n')
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, err
	}
	if r.number++; long {
		return nil, errTooLong
	}
	if r.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

// open finds the compression and the format of the log, and reads the header of a
// CSV.
func (r *reader) open() error {
	raw := bufio.NewReaderSize(r.Source, 1<<16)
	magic, err := raw.Peek(2)
	source := io.Reader(raw)
	switch {
	case err != nil && err != io.EOF:
		return r.failed(err)
	case string(magic) == "\x1f\x8b":
		r.zipped = true
		if source, err = gzip.NewReader(raw); err != nil {
			return r.failed(err)
		}
	case strings.HasSuffix(r.Name, ".gz"):
		return r.failed(errors.New("the name ends in .gz, but the content is not compressed by gzip"))
	}
	r.buf = bufio.NewReaderSize(source, maxLine)
	web := newCLF(r.Requests)
	if r.Format == CLF {
		r.parse = web
		return nil
	}
	var first []byte
	for err = nil; len(first) == 0 && err == nil; {
		first, err = r.line()
	}
	if err == io.EOF {
		return &Error{File: r.Name, Err: errors.New("the log is empty, want at least a header with the columns time_us, event and feature")}
	}
	if err != nil {
		return r.failed(err)
	}
	// A header with any of the wanted columns is CSV, so that the error can name a
	// missing column.
	fields, _ := newSplit()(first)
	_, other := newCLF(nil)(first)
	switch isCSV := slices.ContainsFunc(fields, func(f string) bool { return slices.Contains(columns[:], strings.TrimSpace(f)) }); {
	case r.Format == CSV || isCSV:
		r.Format = CSV
		if r.parse, err = newCSV(first); r.Requests != nil {
			err = errors.New("the log is a csv, whose events are in a column: want no --event")
		}
	case other == nil:
		r.Format, r.parse, r.first = CLF, web, first
	default:
		err = errors.New("the line is neither a CSV header with the columns time_us, event and feature, nor the Common Log Format; --format names the format")
	}
	if err != nil {
		r.parse = nil
		return &Error{r.Name, r.number, err}
	}
	return nil
}

// failed makes an error about the file as a whole.
func (r *reader) failed(err error) error {
	if err == io.EOF {
		return err
	}
	if r.zipped {
		err = fmt.Errorf("decompressing: %w", err)
	}
	if r.number > 0 {
		err = fmt.Errorf("after line %d: %w", r.number, err)
	}
	return &Error{File: r.Name, Err: err}
}
