package memcache

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// failure is an error of a request.
type failure struct {
	where, verb string // "10.0.0.1:11211: ", "incr"
	err         error
}

func (f *failure) Error() string {
	text := f.err.Error()
	var number *strconv.NumError
	switch {
	case errors.As(f.err, &number):
		text = fmt.Sprintf("answered %.80q, want a number", strings.TrimSpace(number.Num))
	case errors.Is(f.err, io.EOF):
		text = "the server closed the connection"
	}
	return "memcache: " + f.where + f.verb + ": " + strings.TrimPrefix(text, "memcache: ")
}

func (f *failure) Unwrap() error { return f.err }

func (p *peer) failed(verb string, err error) error { return &failure{p.where, verb, err} }

func (c *call) failed(verb string, err error) error { return c.peer.failed(verb, err) }

// failedCounting is failed for an incr or decr. If memcached says that the
// value is no number, the error names the bucket: somebody must look at the
// item.
func (c *call) failedCounting(verb, item string, err error) error {
	if strings.HasPrefix(err.Error(), "memcache: client error: ") {
		return c.failedItem(verb, item, err)
	}
	return c.failed(verb, err)
}

// failedItem is the error of an item with a wrong value, and names the bucket.
// Errors never name the key, which may hold a personal address.
func (p *peer) failedItem(verb, item string, err error) error {
	return p.failed(verb+" bucket "+item[strings.LastIndexByte(item, separator)+1:], err)
}

func (c *call) failedItem(verb, item string, err error) error {
	return c.peer.failedItem(verb, item, err)
}
