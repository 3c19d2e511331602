package redis

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"weak"

	"github.com/abacus-go/abacus/internal/redial"
)

const (
	// maxDraining bounds the connections on which a Dialer waits for late answers.
	// One more closes the one that has waited longest.
	maxDraining = 512

	// drainTime bounds how long a late answer is waited for.
	drainTime = time.Minute

	dialTimeout = 5 * time.Second
)

// A Dialer is what a client dials with so that late answers are heard. [Open]
// uses one; a client that is handed to [New] needs DialContext as the Dialer of
// its options:
//
//	dialer := redis.NewDialer(nil)
//	client := goredis.NewClient(&goredis.Options{Addr: addr, Dialer: dialer.DialContext, ContextTimeoutEnabled: true, DialerRetries: 1})
//	store, err := redis.New(client, redis.Config{Dialer: dialer})
//
// A client closes the connection of a call that has reached its deadline. The
// Dialer's connections then go on reading, without the client, for a minute at
// most and 512 of them at a time, and what a late answer says was counted is
// taken back on the same connection. A connection whose call was anything but a
// script of this package that counts is closed at once.
//
// A dial that fails is answered from memory for the next 50 to 100 ms, so that a
// server that is down is not dialled for each call; the error reaches the caller
// as that of the first command. A Dialer is used by many goroutines at once.
type Dialer struct {
	dial *redial.Dialer

	mu       sync.Mutex
	draining list.List // of *conn, the longest first

	// All connections that are open. A client can lose one that it dialled for a
	// call which had given up by then; the collector closes it some day, and
	// Close at once.
	open    map[weak.Pointer[conn]]struct{}
	closed  bool
	running sync.WaitGroup

	late, takenBack, failed, refused, abandoned atomic.Int64
}

// NewDialer makes a Dialer that connects by dial. Nil is a dial of at most five
// seconds without TLS.
func NewDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Dialer {
	if dial == nil {
		dial = dialWith(nil)
	}
	return &Dialer{dial: redial.New(dial), open: map[weak.Pointer[conn]]struct{}{}}
}

// dialWith dials as go-redis does, and gives up when its context is done also in
// the middle of a TLS handshake.
func dialWith(config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if config == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
}

// DialContext is for the Dialer in the options of a client of go-redis. A dial
// that fails is no error of DialContext, but of the first use of the connection:
// a client that has seen as many dials fail as its pool is large does not dial
// for a second, whatever the server does meanwhile.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	under, err := d.dial.DialContext(ctx, network, address)
	if err != nil {
		return failedConn{err: dialError{err, err.Error()}, network: network, address: address}, nil
	}
	c := &conn{Conn: under, dialer: d}
	pointer := weak.Make(c)
	d.mu.Lock()
	closed := d.closed
	d.open[pointer] = struct{}{}
	d.mu.Unlock()
	if closed {
		c.end()
		return nil, net.ErrClosed
	}
	runtime.AddCleanup(c, d.gone, pointer)
	if sys, is := under.(syscall.Conn); is {
		// Without it the client does not notice that an idle connection is dead.
		return sysConn{c, sys}, nil
	}
	return c, nil
}

// Close closes all connections that are left, also those that wait for late
// answers, and returns when no goroutine is. Close the client first.
func (d *Dialer) Close() error {
	d.mu.Lock()
	d.closed = true
	for pointer := range d.open {
		if c := pointer.Value(); c != nil {
			c.Conn.Close()
		}
	}
	clear(d.open)
	d.mu.Unlock()
	d.running.Wait()
	return nil
}

// gone drops a connection that is closed, or that nobody holds any more.
func (d *Dialer) gone(pointer weak.Pointer[conn]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, pointer)
}

// drain has the answer to c's last request heard. It tells whether it will.
func (d *Dialer) drain(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if d.draining.Len() >= maxDraining {
		d.draining.Front().Value.(*conn).Conn.Close()
		d.draining.Remove(d.draining.Front())
	}
	e := d.draining.PushBack(c)
	d.running.Go(func() {
		d.hear(c)
		c.end()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.draining.Remove(e) // does nothing if it was removed
	})
	return true
}

// hear waits for the answer to c's last request, and takes back what it counted.
func (d *Dialer) hear(c *conn) {
	c.Conn.SetDeadline(time.Now().Add(drainTime))
	answers := c.answers()
	switch said, err := readReply(answers); {
	case err != nil:
		d.abandoned.Add(1)
		return
	case said == tooLate:
		d.refused.Add(1)
		return
	case said != counted && said != countedPart || !takeItBack(c.request, said):
		return
	}
	d.late.Add(1)
	if _, err := c.Conn.Write(c.request); err == nil {
		if said, err := readReply(answers); err == nil && said == counted {
			d.takenBack.Add(1)
			return
		}
	}
	d.failed.Add(1)
}

// sysConn is a conn whose state the client can look at.
type sysConn struct {
	*conn
	syscall.Conn
}
