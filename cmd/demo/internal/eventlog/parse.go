package eventlog

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// columns must stand in a header, in any order.
var columns = [...]string{"time_us", "event", "feature"}

// newSplit returns a function that splits a line into fields, valid until the following
// call. Each line is a record of its own: package encoding/csv alone lets a record go on
// over any number of lines, so that a stray quote would swallow the rest of a log.
func newSplit() func(line []byte) ([]string, error) {
	var line bytes.Reader
	in := csv.NewReader(&line)
	in.ReuseRecord, in.FieldsPerRecord = true, -1
	return func(text []byte) ([]string, error) {
		line.Reset(text)
		fields, err := in.Read()
		var wrong *csv.ParseError
		if errors.As(err, &wrong) { // the line is told by the reader
			err = fmt.Errorf("byte %d: %w", wrong.Column, wrong.Err)
		}
		return fields, err
	}
}

// newCSV returns a parser of the records below a header.
func newCSV(header []byte) (func(line []byte) (Event, error), error) {
	split, names, at := newSplit(), names{}, [len(columns)]int{}
	head, err := split(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	for i, name := range columns {
		is := func(field string) bool { return strings.TrimSpace(field) == name }
		if at[i] = slices.IndexFunc(head, is); at[i] < 0 {
			return nil, fmt.Errorf("header: column %s is missing, want %s", name, strings.Join(columns[:], ", "))
		}
		if again := slices.IndexFunc(head[at[i]+1:], is); again >= 0 {
			return nil, fmt.Errorf("header: column %s in fields %d and %d, want it once", name, at[i]+1, at[i]+1+again+1)
		}
	}
	width := len(head)
	return func(line []byte) (e Event, err error) {
		fields, err := split(line)
		if err != nil {
			return e, err
		}
		if len(fields) != width {
			return e, fmt.Errorf("%d fields, want %d as in the header", len(fields), width)
		}
		for i, at := range at {
			if fields[at] == "" {
				return e, fmt.Errorf("column %s is empty, want a value", columns[i])
			}
		}
		stamp := strings.TrimSpace(fields[at[0]])
		us, err := strconv.ParseInt(stamp, 10, 64)
		e.At = time.UnixMicro(us)
		switch outside := checkYear(e.At); {
		case errors.Is(err, strconv.ErrRange):
			return e, fmt.Errorf("time_us %s is out of range, want microseconds since 1970", clip(stamp))
		case err != nil:
			return e, fmt.Errorf("time_us %s is not a whole number, want microseconds since 1970", clip(stamp))
		case outside != nil:
			return e, fmt.Errorf("time_us %s, in microseconds since 1970: %w", clip(stamp), outside)
		}
		e.Event, e.Feature = intern(names, fields[at[1]]), intern(names, fields[at[2]])
		return e, nil
	}, nil
}

const (
	clfTime = "02/Jan/2006:15:04:05 -0700"
	digits  = "0123456789"
	token   = digits + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&'*+-.^_`|~" // of HTTP
)

// newCLF returns a parser of the Common Log Format, and of the common part of the
// Combined Log Format:
//
//	host ident user [02/Jan/2006:15:04:05 -0700] "GET /path HTTP/1.1" 200 2326 ...
func newCLF(requests *Requests) func(line []byte) (Event, error) {
	names := names{}
	var stamp []byte // the time last read: busy servers log many lines a second
	var at time.Time
	return func(line []byte) (e Event, err error) {
		head, rest, found := bytes.Cut(line, []byte(" ["))
		if !found {
			return e, errors.New("no time in brackets, want host ident user [time] \"request\" status bytes")
		}
		// Exactly three: a virtual host before the client would be taken for the client.
		who := bytes.Split(head, []byte(" "))
		if len(who) != 3 || len(who[0]) == 0 {
			return e, fmt.Errorf("%s before the time, want host ident user", clip(head))
		}
		clock, rest, found := bytes.Cut(rest, []byte("] \""))
		if !found {
			return e, errors.New("no request in quotes after the time, want [time] \"request\" status bytes")
		}
		if !bytes.Equal(clock, stamp) {
			now, err := time.Parse(clfTime, string(clock))
			if err != nil {
				return e, fmt.Errorf("time %s, want it like %s", clip(clock), clfTime)
			}
			if err := checkYear(now); err != nil {
				return e, fmt.Errorf("time %s: %w", clip(clock), err)
			}
			stamp, at = append(stamp[:0], clock...), now.UTC()
		}
		end := 0 // of the request: servers write a quote within as \"
		for ; end < len(rest) && rest[end] != '"'; end++ {
			if rest[end] == '\\' {
				end++
			}
		}
		if end >= len(rest) {
			return e, errors.New("the request's quotes do not end, want \"request\" status bytes")
		}
		request := rest[:end]
		outcome := bytes.SplitN(rest[end+1:], []byte(" "), 4)
		for i, name := range []string{"status", "size"} {
			if len(outcome[0]) > 0 || len(outcome) < i+2 || len(outcome[i+1]) == 0 {
				return e, fmt.Errorf("the %s is missing, want \"request\" status bytes", name)
			}
			if word := outcome[i+1]; !consistsOf(word, digits) && string(word) != "-" {
				return e, fmt.Errorf("%s %s, want a number or -", name, clip(word))
			}
		}
		e.At, e.Feature = at, intern(names, who[0])
		if requests != nil {
			e.Event = requests.event(request)
		} else if method, _, found := bytes.Cut(request, []byte(" ")); found && len(method) > 0 && consistsOf(method, token) {
			e.Event = intern(names, method)
		} else {
			e.Event = "-" // a scanner's request in another protocol
		}
		return e, nil
	}
}

// consistsOf reports whether all bytes of b are in set.
func consistsOf(b []byte, set string) bool { return len(bytes.Trim(b, set)) == 0 }

// clip quotes s for an error message, cut to a length that can be read.
func clip[T string | []byte](s T) string {
	const most = 40
	if len(s) > most {
		return strconv.Quote(string(s[:most])) + "..."
	}
	return strconv.Quote(string(s))
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

// Requests name the events of a web server's log by the patterns of [http.ServeMux],
// such as "POST /login" and "/users/{id}".
type Requests struct {
	mux   *http.ServeMux
	names map[string]string // by pattern
}

// ParseRequests reads patterns. The event of a request is the pattern that a ServeMux
// would choose, or name for "name=pattern".
func ParseRequests(patterns []string) (r *Requests, err error) {
	r = &Requests{http.NewServeMux(), map[string]string{}}
	for _, given := range patterns {
		name, pattern, named := strings.Cut(given, "=")
		if !named || name == "" || strings.ContainsAny(name, " /") {
			name, pattern = given, given
		}
		if err := r.add(pattern); err != nil {
			return nil, err
		}
		r.names[pattern] = name
	}
	return r, nil
}

// add adds a pattern, whose mistakes a ServeMux tells in a panic.
func (r *Requests) add(pattern string) (err error) {
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("pattern %q: %v, want one such as \"POST /login\" or login=\"POST /login\"", pattern, wrong)
		}
	}()
	r.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// event is the event of a request line, or nothing for a request of no pattern.
func (r *Requests) event(line []byte) string {
	method, rest, _ := strings.Cut(string(line), " ")
	target, _, _ := strings.Cut(rest, " ")
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return ""
	}
	_, pattern := r.mux.Handler(&http.Request{Method: method, URL: u, Host: u.Host})
	return r.names[pattern]
}
