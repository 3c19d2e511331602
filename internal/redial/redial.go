// Package redial keeps callers from dialling an address again and again after a
// failure.
//
// A server that refuses connections answers each dial at once, so a busy process
// would dial for each of its calls: 0.2 ms of a processor each time, and 200
// callers saturate two cores. A [Dialer] answers the dials that follow a failed
// dial from memory, for a moment too short to be noticed when the server is back.
package redial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	// MinPause and MaxPause bound the time for which a failure is remembered. The
	// pause is drawn again for each failure, so that the processes of a fleet do not
	// dial in step.
	MinPause = 50 * time.Millisecond
	MaxPause = 100 * time.Millisecond

	// maxAddresses bounds the memory. Beyond the bound a failed address takes the
	// place of another address, which costs the other address a dial.
	maxAddresses = 1024
)

// Dialer dials, and remembers for each address the last dial if the dial failed.
// New makes a Dialer; most callers want DialContext alone. A Dialer is safe for use
// by many goroutines at once.
type Dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	failed map[target]*failure // addresses whose last dial failed
}

type target struct{ network, address string }

type failure struct {
	err          error
	since, until time.Time // of the first failure in a row; before it nobody dials
	trying       bool      // one caller dials, until is over
}

// New makes a Dialer that dials by dial, which may be called by many goroutines
// at once and must return when its context is done.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Dialer {
	return &Dialer{dial: dial, failed: map[target]*failure{}}
}

// Error is a remembered failure: no one dialled. It unwraps to the error of the
// last dial.
type Error struct {
	Err   error     // of the last dial of the address
	Since time.Time // when the first of the dials ended that have failed in a row
	Until time.Time // time of the next dial; zero while another caller dials
}

func (e *Error) Error() string {
	const clock = "15:04:05.000"
	if e.Until.IsZero() {
		return fmt.Sprintf("%v (since %s, and being dialled again)", e.Err, e.Since.Format(clock))
	}
	return fmt.Sprintf("%v (since %s, not dialled again before %s)", e.Err, e.Since.Format(clock), e.Until.Format(clock))
}

func (e *Error) Unwrap() error { return e.Err }

// DialContext dials address, or returns an [Error] if the last dial of the address
// failed 50 to 100 ms ago or less. After the pause one caller dials, and all other
// callers get the Error until the dial has ended. A dial whose context is done when
// the dial ends says nothing about the address, and is not remembered: for a slow
// dial to be remembered, dial needs a timeout of its own, shorter than the callers'
// contexts.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at := target{network, address}
	mine, err := d.begin(at)
	if err != nil {
		return nil, err
	}
	returned := false
	defer func() { d.end(at, mine, err, returned && !done(ctx)) }()
	conn, err = d.dial(ctx, network, address)
	returned = true
	return conn, err
}

// done reports whether ctx is done, or is so in a moment: a dial may notice the
// deadline before the context does.
func done(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// begin returns the failure after which this caller is the one to try again, nil
// without a failure.
func (d *Dialer) begin(at target) (*failure, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.failed[at]
	if f == nil {
		return nil, nil
	}
	if f.trying {
		return nil, &Error{Err: f.err, Since: f.since}
	}
	if time.Now().Before(f.until) {
		return nil, &Error{Err: f.err, Since: f.since, Until: f.until}
	}
	f.trying = true
	return f, nil
}

// end takes note of a dial's result. If telling is false, the result says nothing
// about the address.
func (d *Dialer) end(at target, mine *failure, err error, telling bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if mine != nil {
		mine.trying = false
	}
	switch {
	case err == nil && telling:
		delete(d.failed, at)
	case err != nil && telling:
		now := time.Now()
		f := d.failed[at]
		if f == nil {
			d.makeRoom()
			f = &failure{since: now}
			d.failed[at] = f
		}
		f.err, f.until = err, now.Add(MinPause+rand.N(MaxPause-MinPause))
	}
}

func (d *Dialer) makeRoom() {
	for at := range d.failed {
		if len(d.failed) < maxAddresses {
			return
		}
		delete(d.failed, at)
	}
}
