package memcache

import (
	"context"
	"time"
)

// asking sends plain commands to a server, on the shared connections or on one of
// its own.
type asking struct {
	ctx      context.Context
	deadline time.Time // zero: the timeout of the store, for each request
	t        *transport
	key      string    // of buckets
	alone    *pipeline // nil: the shared connections
}

// ask sends some commands in one request. It returns the last line of each answer,
// and the items or statistics of all.
func (a asking) ask(verb string, commands []byte, number int) (lines []string, all []found, err error) {
	deadline, err := a.t.store.begin(a.ctx, a.deadline)
	if err != nil {
		return nil, nil, err
	}
	var x *exchange
	if a.alone != nil {
		x = a.t.store.exchanges.Get().(*exchange)
		x.ask(a.alone.meta, verb, commands, number)
		if err = a.alone.do(a.ctx, x, deadline); err != nil {
			err = a.t.failed(verb, err)
		}
	} else {
		x, err = a.t.exchange(a.ctx, deadline, 0, 1, func(x *exchange, meta bool) error {
			x.ask(meta, verb, commands, number)
			return nil
		})
	}
	if err == nil {
		if err = x.err; err == nil && x.readErr != nil {
			err = a.t.failed(verb, x.readErr)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	defer x.recycle()
	return x.lines, x.found, nil
}

// read sends a command for items or statistics.
func (a asking) read(verb, command string) ([]found, error) {
	lines, all, err := a.ask(verb, []byte(command+"\r\n"), 1)
	if err == nil && lines[0] != "END" {
		err = a.t.failed(verb, unexpected(lines[0]))
	}
	return all, err
}

// ask makes x a request of some commands, each with an answer of its own.
func (x *exchange) ask(meta bool, verb string, commands []byte, number int) {
	x.begin(meta, 0, 0)
	x.verb, x.plain = verb, number
	x.request = append(x.request, commands...)
	x.end()
}
