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
	// Beyond, the connection with the longest wait is closed.
	maxDraining = 512

	// drainTime bounds the wait for a late answer.
	drainTime = time.Minute

	dialTimeout = 5 * time.Second
)

// A Dialer makes the connections of a client, and waits for late answers.
// [Open] uses a Dialer; a client that is given to [New] needs DialContext as the Dialer
// of its options:
//
//	dialer := redis.NewDialer(nil)
//	client := goredis.NewClient(&goredis.Options{Addr: addr, Dialer: dialer.DialContext, ContextTimeoutEnabled: true, DialerRetries: 1})
//	store, err := redis.New(client, redis.Config{Dialer: dialer})
//
// A client closes the connection of a call at its deadline. The
// Dialer's connections then go on reading, without the client, for a minute at
// most and on 512 connections at a time, and the hits of a late answer are taken back on
// the same connection. After any call but a script or transaction of this package that
// counts, the connection is closed at once.
//
// A failed dial is answered from memory for the next 50 to 100 ms: not each call dials
// a server that is down. The caller gets the error with the first command. A Dialer is
// used by many goroutines at once.
type Dialer struct {
	dial *redial.Dialer

	mu       sync.Mutex
	draining list.List // of *conn, the longest wait first

	// open are all connections. A client can lose a connection if the call that dials
	// gives up meanwhile; the collector closes the connection some day, Close at once.
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

// dialWith returns a function that dials as go-redis does, and gives up when the
// context is done, also in the middle of a TLS handshake.
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

// DialContext is for the Dialer in the options of a client of go-redis. The error of
// a dial is returned by the first use of the connection, not by DialContext: after as
// many errors of DialContext as the pool is large, a client does not dial for a second,
// whatever the server does meanwhile.
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
		// By syscall.Conn the client notices dead idle connections.
		return sysConn{c, sys}, nil
	}
	return c, nil
}

// Close closes all open connections, also those in wait for a late answer, and
// returns when all goroutines have ended. Close the client first.
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

// gone removes a connection that is closed, or no longer used.
func (d *Dialer) gone(pointer weak.Pointer[conn]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, pointer)
}

// drain starts to wait for the answers to c's last commands, and returns false if the
// Dialer is closed.
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
		d.await(c)
		c.end()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.draining.Remove(e) // does nothing for an element that was removed
	})
	return true
}

// await waits for the answers to c's last commands that the client has not read, and
// takes back the hits.
func (d *Dialer) await(c *conn) {
	c.Conn.SetDeadline(time.Now().Add(drainTime))
	all, _ := exchangesOf(c.commands)
	read, answers := c.answered(all), c.allAnswers()
	var sent []exchange // to take back
	for i := range all {
		x := all[i]
		outcome, err := x.readOutcome(answers)
		switch {
		case err != nil:
			for _, x := range all[i:] {
				if runsCounting(x.bytes) {
					d.abandoned.Add(1)
				}
			}
			d.failed.Add(int64(len(sent)))
			return
		case i < read || outcome == notCounted || outcome == unknownProgram || outcome == noMemory:
		case outcome == tooLate:
			d.refused.Add(1)
		case x.takeBack(outcome):
			d.late.Add(1)
			if _, err := c.Conn.Write(x.bytes); err != nil {
				d.failed.Add(1)
				continue
			}
			sent = append(sent, x)
		}
	}
	for i := 0; i < len(sent); i++ {
		outcome, err := sent[i].readOutcome(answers)
		if err == nil && sent[i].byText(outcome) {
			// The programs were flushed meanwhile, or the server is full. Nothing was done.
			if _, err = c.Conn.Write(sent[i].bytes); err == nil {
				sent = append(sent, sent[i])
				continue
			}
		}
		if err == nil && outcome == counted {
			d.takenBack.Add(1)
		} else {
			d.failed.Add(1)
		}
	}
}

// sysConn is a conn whose socket the client can look at.
type sysConn struct {
	*conn
	syscall.Conn
}
