package redis

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
	"weak"
)

// conn is a connection that remembers the last request that counts, and what was
// read since, so that the answer can be heard when its client has given up. Its
// client uses it from one goroutine at a time, but for Close. A subscription, which
// never sends a request that counts, is read by one goroutine while another writes:
// nothing is remembered of it, and no field changes but state.
type conn struct {
	net.Conn
	dialer *Dialer
	state  atomic.Int32

	request []byte // the last one, if it counts; empty otherwise
	partial bool   // more of it is to come
	answer  []byte // read since
}

// States of a conn: only one whose last read timed out is read on.
const (
	inUse int32 = iota
	timedOut
	left
)

const (
	// A client writes a request at once, or in parts of its buffer's size, which
	// is larger than this.
	partSize = 4096

	maxRemembered = 1 << 20 // bytes of a request, and of an answer
)

func (c *conn) Write(b []byte) (int, error) {
	c.state.CompareAndSwap(timedOut, inUse)
	n, err := c.Conn.Write(b)
	switch {
	case err != nil:
		c.forget() // it will never be executed
		return n, err
	case c.partial:
		c.request = append(c.request, b...)
	case counts(b):
		c.request = append(c.request[:0], b...)
		c.answer = c.answer[:0]
	default:
		c.forget()
		return n, nil
	}
	c.partial = len(b) >= partSize && !whole(c.request)
	if len(c.request) > maxRemembered {
		c.request, c.partial = nil, false
	}
	return n, nil
}

// forget writes only where there is something to forget.
func (c *conn) forget() {
	if len(c.request) > 0 {
		c.request = c.request[:0]
	}
	if c.partial {
		c.partial = false
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && len(c.request) > 0 {
		if c.answer = append(c.answer, b[:n]...); len(c.answer) > maxRemembered {
			c.request, c.answer = nil, nil
		}
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		c.state.CompareAndSwap(inUse, timedOut)
	}
	return n, err
}

// Close closes the connection, or leaves it to its Dialer if an answer is due
// that may say that something was counted.
func (c *conn) Close() error {
	if c.state.CompareAndSwap(timedOut, left) {
		if len(c.request) > 0 && !c.partial && !c.answered() && c.dialer.drain(c) {
			return nil
		}
		return c.end()
	}
	if c.state.Swap(left) == left {
		return nil
	}
	return c.end()
}

// end closes the connection under c.
func (c *conn) end() error {
	c.dialer.gone(weak.Make(c))
	return c.Conn.Close()
}

// answered tells whether the client has read the whole answer.
func (c *conn) answered() bool {
	_, err := readReply(bufio.NewReader(bytes.NewReader(c.answer)))
	return err == nil
}

// answers is what has been read of the answer, and what is still to come.
func (c *conn) answers() *bufio.Reader {
	return bufio.NewReader(io.MultiReader(bytes.NewReader(c.answer), c.Conn))
}

// dialError is the error of a dial, and matches what that matches. It hides that it
// is one: the client would greet a server that is not there four times, with
// pauses. The client asks for the text several times.
type dialError struct {
	err  error
	text string
}

func (e dialError) Error() string        { return e.text }
func (e dialError) Is(target error) bool { return errors.Is(e.err, target) }

// failedConn is a connection that could not be made.
type failedConn struct {
	err              error
	network, address string
}

func (c failedConn) Read([]byte) (int, error)         { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)        { return 0, c.err }
func (c failedConn) Close() error                     { return nil }
func (c failedConn) LocalAddr() net.Addr              { return c }
func (c failedConn) RemoteAddr() net.Addr             { return c }
func (c failedConn) SetDeadline(time.Time) error      { return nil }
func (c failedConn) SetReadDeadline(time.Time) error  { return nil }
func (c failedConn) SetWriteDeadline(time.Time) error { return nil }
func (c failedConn) Network() string                  { return c.network }
func (c failedConn) String() string                   { return c.address }
