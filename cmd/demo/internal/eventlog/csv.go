package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// columns must stand in a header, in any order.
var columns = [...]string{"time_us", "event", "feature"}

// csv reads a record from each line. Package encoding/csv would not do: a record
// may go on over any number of lines there, so a stray quote swallows the rest of
// a log, and nothing bounds the memory of a record.
type csv struct {
	at     [len(columns)]int // where each of columns stands
	width  int               // fields in the header
	fields [][]byte
	names  names
}

func newCSV(header []byte) (*csv, error) {
	fields, err := split(nil, header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	c := &csv{width: len(fields), names: names{}}
	for i, name := range columns {
		c.at[i] = -1
		for j, field := range fields {
			if string(bytes.TrimSpace(field)) != name {
				continue
			}
			if c.at[i] >= 0 {
				return nil, fmt.Errorf("header: column %s in fields %d and %d, want it once", name, c.at[i]+1, j+1)
			}
			c.at[i] = j
		}
		if c.at[i] < 0 {
			return nil, fmt.Errorf("header: column %s is missing, want %s", name, strings.Join(columns[:], ", "))
		}
	}
	return c, nil
}

func (c *csv) parse(line []byte) (Event, error) {
	var err error
	if c.fields, err = split(c.fields[:0], line); err != nil {
		return Event{}, err
	}
	if len(c.fields) != c.width {
		for i, at := range c.at {
			if at >= len(c.fields) {
				return Event{}, fmt.Errorf("column %s is missing: %d fields, want %d as in the header", columns[i], len(c.fields), c.width)
			}
		}
		return Event{}, fmt.Errorf("%d fields, want %d as in the header", len(c.fields), c.width)
	}
	for i, at := range c.at {
		if len(c.fields[at]) == 0 {
			return Event{}, fmt.Errorf("column %s is empty, want a value", columns[i])
		}
	}
	stamp := bytes.TrimSpace(c.fields[c.at[0]])
	us, err := strconv.ParseInt(string(stamp), 10, 64)
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
	return Event{At: at, Event: c.names.of(c.fields[c.at[1]]), Feature: c.names.of(c.fields[c.at[2]])}, nil
}

// split appends the fields of a record to dst. Fields in quotes are unquoted
// within line.
func split(dst [][]byte, line []byte) ([][]byte, error) {
	for {
		if len(line) > 0 && line[0] == '"' {
			field, rest, err := unquote(line[1:])
			if err != nil {
				return dst, err
			}
			dst = append(dst, field)
			if len(rest) == 0 {
				return dst, nil
			}
			line = rest[1:]
			continue
		}
		comma := bytes.IndexByte(line, ',')
		field := line
		if comma >= 0 {
			field = line[:comma]
		}
		if bytes.IndexByte(field, '"') >= 0 {
			return dst, fmt.Errorf("a quote within field %s, want one at its beginning too", clip(field))
		}
		dst = append(dst, field)
		if comma < 0 {
			return dst, nil
		}
		line = line[comma+1:]
	}
}

// unquote takes a field off b, from behind its first quote; rest is empty or
// begins with a comma.
func unquote(b []byte) (field, rest []byte, err error) {
	field = b[:0]
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] != '"':
			field = append(field, b[i])
		case i+1 < len(b) && b[i+1] == '"':
			field = append(field, '"')
			i++
		case i+1 < len(b) && b[i+1] != ',':
			return nil, nil, fmt.Errorf("%s after the quote that ends a field, want a comma", clip(b[i+1:i+2]))
		default:
			return field, b[i+1:], nil
		}
	}
	return nil, nil, errors.New("a quoted field does not end on its line, want a second quote")
}

// clip quotes b for an error message, cut to a length that can be read.
func clip(b []byte) string {
	const most = 40
	if len(b) > most {
		return strconv.Quote(string(b[:most])) + "..."
	}
	return strconv.Quote(string(b))
}
