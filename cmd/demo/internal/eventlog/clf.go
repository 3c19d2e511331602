package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// clf reads the Common Log Format, and the common part of the Combined Log
// Format:
//
//	host ident user [02/Jan/2006:15:04:05 -0700] "GET /path HTTP/1.1" 200 2326 ...
type clf struct {
	names names
	named *Requests // of events; nil: by the method
	stamp []byte    // the time last read
	at    time.Time // the meaning of stamp: busy servers log many lines a second
}

const (
	clfTime = "02/Jan/2006:15:04:05 -0700"

	// noMethod is the format's sign of a missing value.
	noMethod = "-"

	digits = "0123456789"
)

func (c *clf) parse(line []byte) (Event, error) {
	head, rest, found := bytes.Cut(line, []byte(" ["))
	if !found {
		return Event{}, errors.New("no time in brackets, want host ident user [time] \"request\" status bytes")
	}
	// Exactly three: a virtual host before the client would be taken for the
	// client.
	who := bytes.Split(head, []byte(" "))
	if len(who) != 3 || len(who[0]) == 0 {
		return Event{}, fmt.Errorf("%s before the time, want host ident user", clip(head))
	}
	stamp, rest, found := bytes.Cut(rest, []byte("] \""))
	if !found {
		return Event{}, errors.New("no request in quotes after the time, want [time] \"request\" status bytes")
	}
	if err := c.time(stamp); err != nil {
		return Event{}, err
	}
	request, rest, err := quoted(rest)
	if err != nil {
		return Event{}, err
	}
	if err := checkOutcome(rest); err != nil {
		return Event{}, err
	}
	e := Event{At: c.at, Feature: intern(c.names, who[0])}
	if c.named != nil {
		e.Event = c.named.event(request)
	} else {
		e.Event = intern(c.names, method(request))
	}
	return e, nil
}

func (c *clf) time(stamp []byte) error {
	if bytes.Equal(stamp, c.stamp) {
		return nil
	}
	at, err := time.Parse(clfTime, string(stamp))
	if err != nil {
		return fmt.Errorf("time %s, want it like %s", clip(stamp), clfTime)
	}
	if err := checkYear(at); err != nil {
		return fmt.Errorf("time %s: %w", clip(stamp), err)
	}
	c.stamp, c.at = append(c.stamp[:0], stamp...), at.UTC()
	return nil
}

// quoted cuts b at the closing quote; servers write a quote within as \".
func quoted(b []byte) (text, rest []byte, err error) {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[:i], b[i+1:], nil
		}
	}
	return nil, nil, errors.New("the request's quotes do not end, want \"request\" status bytes")
}

// checkOutcome wants " status bytes" at the start of b, both a number or "-".
func checkOutcome(b []byte) error {
	for _, name := range []string{"status", "size"} {
		rest, found := bytes.CutPrefix(b, []byte(" "))
		word, _, _ := bytes.Cut(rest, []byte(" "))
		if !found || len(word) == 0 {
			return fmt.Errorf("the %s is missing, want \"request\" status bytes", name)
		}
		if !consistsOf(word, digits) && string(word) != "-" {
			return fmt.Errorf("%s %s, want a number or -", name, clip(word))
		}
		b = rest[len(word):]
	}
	return nil
}

// method is the first word of an HTTP request. A scanner's request in another
// protocol is an event as well, without a method.
func method(request []byte) []byte {
	word, _, found := bytes.Cut(request, []byte(" "))
	if !found || len(word) == 0 || !consistsOf(word, digits+"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&'*+-.^_`|~") {
		return []byte(noMethod)
	}
	return word
}

// consistsOf reports whether all bytes of b are in set.
func consistsOf(b []byte, set string) bool { return len(bytes.Trim(b, set)) == 0 }
