package redis

import (
	"bufio"
	"bytes"
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
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
// most and on 512 connections at a time, and the hits of a late answer are undone on
// the same connection. After any call but a script or transaction of this package that
// counts, the connection is closed at once.
//
// A failed dial is answered from memory for the next 50 to 100 ms: not each call dials
// a server that is down. The caller gets the error with the first command. A Dialer is
// used by many goroutines at once.
type Dialer struct {
	dial *redial.Dialer
	only string // the address that errors of dials leave out, since the Store names it

	mu       sync.Mutex
	draining list.List // of *conn, the longest wait first

	// open are all connections. A client can lose a connection if the call that dials
	// gives up meanwhile; the collector closes the connection some day, Close at once.
	open    map[weak.Pointer[conn]]struct{}
	closed  bool
	running sync.WaitGroup

	lateHits
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
		pipe, _ := net.Pipe()
		return failedConn{pipe, dialError{err, strings.Replace(err.Error(), " "+d.only+": ", ": ", 1)}}, nil
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

// drain starts to wait for the answers to what c has sent, and returns false if the
// Dialer is closed.
func (d *Dialer) drain(c *conn, sent []exchange) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if d.draining.Len() >= maxDraining {
		d.draining.Remove(d.draining.Front()).(*conn).Conn.Close()
	}
	e := d.draining.PushBack(c)
	d.running.Go(func() {
		d.await(c, sent)
		c.end()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.draining.Remove(e) // does nothing for an element that was removed
	})
	return true
}

// await waits for the answers to what c has sent, and takes back the hits.
func (d *Dialer) await(c *conn, sent []exchange) {
	c.Conn.SetDeadline(time.Now().Add(drainTime))
	answers := bufio.NewReader(io.MultiReader(bytes.NewReader(c.answers), c.Conn))
	var undone []exchange
	for i, x := range sent {
		of, err := x.readOutcome(answers)
		switch {
		case err != nil:
			for _, x := range sent[i:] {
				if x.counts() {
					d.abandoned.Add(1)
				}
			}
			d.notTaken.Add(int64(len(undone)))
			return
		case of == tooLate:
			d.tooLate.Add(1)
		case of == counted, of == countedPart, of > countedTimes:
			back := x.undo(of)
			if back == nil {
				continue
			}
			d.answered.Add(1)
			if back.send(c.Conn) != nil {
				d.notTaken.Add(1)
			} else {
				undone = append(undone, back)
			}
		}
	}
	for i := 0; i < len(undone); i++ {
		of, err := undone[i].readOutcome(answers)
		if again := undone[i].byText(of); err == nil && again != nil && again.send(c.Conn) == nil {
			// The programs were flushed meanwhile, or the server is full. Nothing was done.
			undone = append(undone, again)
		} else if err == nil && of == counted {
			d.takenBack.Add(1)
		} else {
			d.notTaken.Add(1)
		}
	}
}

// sysConn is a conn whose socket the client can look at.
type sysConn struct {
	*conn
	syscall.Conn
}
