// Package eventlog reads logs of events: who did what, and when.
//
// Two formats are read, plain or compressed by gzip:
//
//   - CSV with a header that names the columns time_us (microseconds since the
//     Unix epoch), event and feature, in any order; further columns are
//     ignored. One event a line: a quoted field must end on its line.
//   - The Common and the Combined Log Format of web servers. The event is the
//     request's method, or named by [Requests]; the feature is the client's
//     address. A request that is not HTTP has the method "-".
//
// A byte order mark, line ends of either kind, and empty lines are accepted.
package eventlog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/internal/cover"
)

// Event is a line of a log.
type Event struct {
	At      time.Time
	Event   string // what was done; empty for a request of no pattern
	Feature string // who did it; not empty
}

// Error tells the position and the fault of a log.
type Error struct {
	File string
	Line int64 // counted from 1; 0 for an error of the whole log
	Bad  bool  // only this line is bad: reading can go on
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Format is the form of a log.
type Format int

// The formats of logs. Auto looks at the first line.
const (
	Auto Format = iota
	CSV
	CLF
)

var formats = []string{Auto: "auto", CSV: "csv", CLF: "clf"}

// String is the name that [Format.UnmarshalText] reads.
func (f Format) String() string { return formats[f] }

// MarshalText is the name in JSON.
func (f Format) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the name of a format: auto, csv or clf.
func (f *Format) UnmarshalText(text []byte) error {
	i := slices.Index(formats, string(text))
	if i < 0 {
		return fmt.Errorf("format %q: want auto, csv or clf", text)
	}
	*f = Format(i)
	return nil
}

// parser turns a line into an event. The line is only valid during the call.
type parser interface {
	parse(line []byte) (Event, error)
}

// Reader reads the events of one log. It is not safe for concurrent use.
type Reader struct {
	name   string
	format Format
	source io.Reader
	lines  *lines
	parser parser
	named  *Requests
	err    error // reading is over
}

// Name names the events of a web server's log by its requests, before the first Next.
func (r *Reader) Name(by *Requests) { r.named = by }

// NewReader reads a log from source, decompressing source if the first bytes are
// gzip's. Errors begin with name; if name ends in .gz the log must be compressed.
// Nothing is read before the first [Reader.Next].
func NewReader(source io.Reader, name string, format Format) *Reader {
	return &Reader{name: name, format: format, source: source}
}

// Next returns the next event, and [io.EOF] after the last. Any other error is an
// [Error]; an error that is not Bad is returned by all later calls.
func (r *Reader) Next() (Event, error) {
	if r.err != nil {
		return Event{}, r.err
	}
	if r.lines == nil {
		if r.err = r.open(); r.err != nil {
			return Event{}, r.err
		}
	}
	for {
		line, err := r.lines.next()
		switch {
		case errors.Is(err, errTooLong):
			return Event{}, r.bad(err)
		case err != nil:
			r.err = r.failed(err)
			return Event{}, r.err
		case len(line) > 0:
			e, err := r.parser.parse(line)
			if err != nil {
				err = r.bad(err)
			}
			return e, err
		}
	}
}

// Waits reports whether the next call of Next may have to wait for the source.
func (r *Reader) Waits() bool { return r.lines == nil || r.lines.waits() }

// checkYear wants a time within the numbering of buckets.
func checkYear(at time.Time) error {
	if cover.CheckTime(at) != nil {
		return fmt.Errorf("year %d is out of range, want %d to %d", at.UTC().Year(), cover.MinTime.Year(), cover.MaxTime.Year()-1)
	}
	return nil
}

// open finds the compression and the format of the log, and reads the header of a
// CSV.
func (r *Reader) open() error {
	var err error
	if r.lines, err = newLines(r.source, r.name); err != nil {
		return r.failed(err)
	}
	if r.format == CLF {
		r.parser = &clf{names: names{}, named: r.named}
		return nil
	}
	var first []byte
	for len(first) == 0 && err == nil {
		first, err = r.lines.next()
	}
	switch {
	case err == io.EOF:
		return &Error{File: r.name, Err: errors.New("the log is empty, want at least a header with the columns time_us, event and feature")}
	case err != nil:
		return r.failed(err)
	}
	if r.format == Auto {
		r.format = sniff(first)
	}
	switch r.format {
	case CLF:
		r.lines.again = true
		r.parser = &clf{names: names{}, named: r.named}
	case CSV:
		if r.named != nil {
			err = errors.New("the log is a csv, whose events are in a column: want no --event")
			break
		}
		r.parser, err = newCSV(first)
	default:
		err = errors.New("the line is neither a CSV header with the columns time_us, event and feature, nor the Common Log Format; --format names the format")
	}
	if err != nil {
		return &Error{File: r.name, Line: r.lines.number, Err: err}
	}
	return nil
}

// sniff tells the format by the first line: a header with any of the wanted
// columns is CSV, so that the error can name a missing column.
func sniff(first []byte) Format {
	fields, _ := new(records).split(first)
	for _, field := range fields {
		if slices.Contains(columns[:], strings.TrimSpace(field)) {
			return CSV
		}
	}
	if _, err := (&clf{names: names{}}).parse(first); err == nil {
		return CLF
	}
	return Auto
}

func (r *Reader) bad(err error) error {
	return &Error{File: r.name, Line: r.lines.number, Bad: true, Err: err}
}

// failed makes an error about the file as a whole.
func (r *Reader) failed(err error) error {
	if err == io.EOF {
		return err
	}
	if r.lines != nil && r.lines.zipped {
		err = fmt.Errorf("decompressing: %w", err)
	}
	if r.lines != nil && r.lines.number > 0 {
		err = fmt.Errorf("after line %d: %w", r.lines.number, err)
	}
	return &Error{File: r.name, Err: err}
}

// names holds one string for equal texts: a log says the same few things over and
// over.
type names map[string]string

// intern returns the one string in n for s.
func intern[T string | []byte](n names, s T) string {
	if known, ok := n[string(s)]; ok {
		return known
	}
	name := strings.Clone(string(s)) // a field is a part of a whole record
	n[name] = name
	return name
}
