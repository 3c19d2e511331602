package memcache

import (
	"errors"
	"io"
	"strings"

	"github.com/abacus-go/abacus/backend/memcache/internal/item"
)

// failure is an error of a request.
type failure struct {
	where, verb string // "10.0.0.1:11211: ", "incr"
	err         error
}

func (f *failure) Error() string {
	text := strings.TrimPrefix(f.err.Error(), "memcache: "+f.where)
	if f.where != "" { // dial tcp 10.0.0.1:11211: connect
		text = strings.Replace(text, " "+f.where, ": ", 1)
	}
	if errors.Is(f.err, io.EOF) {
		text = "the server closed the connection"
	}
	return "memcache: " + f.where + f.verb + ": " + text
}

func (f *failure) Unwrap() error { return f.err }

// failed returns err as a failure, if it is not one already.
func (t *transport) failed(verb string, err error) error {
	if _, is := err.(*failure); is {
		return err
	}
	return &failure{t.where, verb, err}
}

// failedItem is the error of an item with a wrong value, and names the bucket.
// Errors never name the key, which may hold a personal address.
func (t *transport) failedItem(verb, name string, err error) error {
	return t.failed(verb+" bucket "+item.Bucket(name), err)
}
