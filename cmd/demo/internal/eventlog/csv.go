package eventlog

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// columns must stand in a header, in any order.
var columns = [...]string{"time_us", "event", "feature"}

// records splits lines into fields. Each line is a record of its own: package
// encoding/csv alone lets a record go on over any number of lines, so that a stray
// quote would swallow the rest of a log.
type records struct {
	line bytes.Reader
	csv  *csv.Reader // of line
}

// split returns the fields of a line, valid until the following call.
func (r *records) split(line []byte) ([]string, error) {
	if r.csv == nil {
		r.csv = csv.NewReader(&r.line)
		r.csv.ReuseRecord, r.csv.FieldsPerRecord = true, -1
	}
	r.line.Reset(line)
	fields, err := r.csv.Read()
	if err == nil {
		return fields, nil
	}
	var wrong *csv.ParseError
	if errors.As(err, &wrong) { // the line is told by the Reader
		err = fmt.Errorf("byte %d: %w", wrong.Column, wrong.Err)
	}
	return fields, err
}

// csvParser reads a record from each line.
type csvParser struct {
	records
	at    [len(columns)]int // where each of columns stands
	width int               // fields in the header
	names names
}

func newCSV(header []byte) (*csvParser, error) {
	c := &csvParser{names: names{}}
	fields, err := c.split(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	c.width = len(fields)
	for i, name := range columns {
		is := func(field string) bool { return strings.TrimSpace(field) == name }
		at := slices.IndexFunc(fields, is)
		if at < 0 {
			return nil, fmt.Errorf("header: column %s is missing, want %s", name, strings.Join(columns[:], ", "))
		}
		if again := slices.IndexFunc(fields[at+1:], is); again >= 0 {
			return nil, fmt.Errorf("header: column %s in fields %d and %d, want it once", name, at+1, at+1+again+1)
		}
		c.at[i] = at
	}
	return c, nil
}

func (c *csvParser) parse(line []byte) (Event, error) {
	fields, err := c.split(line)
	if err != nil {
		return Event{}, err
	}
	if len(fields) != c.width {
		return Event{}, fmt.Errorf("%d fields, want %d as in the header", len(fields), c.width)
	}
	for i, at := range c.at {
		if fields[at] == "" {
			return Event{}, fmt.Errorf("column %s is empty, want a value", columns[i])
		}
	}
	stamp := strings.TrimSpace(fields[c.at[0]])
	us, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		if errors.Is(err, strconv.ErrRange) {
			return Event{}, fmt.Errorf("time_us %s is out of range, want microseconds since 1970", clip(stamp))
		}
		return Event{}, fmt.Errorf("time_us %s is not a whole number, want microseconds since 1970", clip(stamp))
	}
	at := time.UnixMicro(us)
	if err := checkYear(at); err != nil {
		return Event{}, fmt.Errorf("time_us %s, in microseconds since 1970: %w", clip(stamp), err)
	}
	return Event{At: at, Event: intern(c.names, fields[c.at[1]]), Feature: intern(c.names, fields[c.at[2]])}, nil
}

// clip quotes s for an error message, cut to a length that can be read.
func clip[T string | []byte](s T) string {
	const most = 40
	if len(s) > most {
		return strconv.Quote(string(s[:most])) + "..."
	}
	return strconv.Quote(string(s))
}
