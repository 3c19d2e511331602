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

// conn is a connection that remembers the last command that counts, and the bytes
// read since, so that the Dialer can read the rest of the answer when the client has
// given up. A client uses a conn from a single goroutine at a time, but for Close. A
// subscription never sends a command that counts, and is read by a goroutine while
// another writes: of a subscription nothing is remembered, and no field but state
// changes.
type conn struct {
	net.Conn
	dialer *Dialer
	state  atomic.Int32

	command []byte // the last command that counts; empty after any other
	partial bool   // more of the command is to come
	answer  []byte // read since the command
}

// States of a conn.
const (
	inUse    int32 = iota
	timedOut       // the last read timed out: Close may leave the conn to the Dialer
	closed
)

const (
	// partSize is less than the size of a client's buffer, and so than any part of a
	// command that is written in parts.
	partSize = 4096

	maxRemembered = 1 << 20 // bytes of a command, and of an answer
)

func (c *conn) Write(b []byte) (int, error) {
	c.state.CompareAndSwap(timedOut, inUse)
	n, err := c.Conn.Write(b)
	switch {
	case err != nil:
		c.forget() // the server has no whole command
		return n, err
	case c.partial:
		c.command = append(c.command, b...)
	case counts(b):
		c.command = append(c.command[:0], b...)
		c.answer = c.answer[:0]
	default:
		c.forget()
		return n, nil
	}
	c.partial = len(b) >= partSize && !whole(c.command)
	if len(c.command) > maxRemembered {
		c.command, c.partial = nil, false
	}
	return n, nil
}

// forget forgets the command. The fields of a connection without a command stay
// unwritten, since the reader of a subscription runs beside its writer.
func (c *conn) forget() {
	if len(c.command) > 0 {
		c.command = c.command[:0]
	}
	if c.partial {
		c.partial = false
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && len(c.command) > 0 {
		if c.answer = append(c.answer, b[:n]...); len(c.answer) > maxRemembered {
			c.command, c.answer = nil, nil
		}
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		c.state.CompareAndSwap(inUse, timedOut)
	}
	return n, err
}

// Close closes the connection. While the answer to a command that counts is still to
// come, Close leaves the connection to the Dialer instead.
func (c *conn) Close() error {
	if c.state.CompareAndSwap(timedOut, closed) {
		if len(c.command) > 0 && !c.partial && !c.answered() && c.dialer.drain(c) {
			return nil
		}
		return c.end()
	}
	if c.state.Swap(closed) == closed {
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

// answers reads the answer from the beginning: the bytes read by the client, and the
// bytes still to come.
func (c *conn) answers() *bufio.Reader {
	return bufio.NewReader(io.MultiReader(bytes.NewReader(c.answer), c.Conn))
}

// dialError is the error of a dial, and matches the same errors, but has another type:
// after a dial's own error the client would try four times to greet the absent server,
// with pauses. The client asks for the text several times.
type dialError struct {
	err  error
	text string
}

func (e dialError) Error() string        { return e.text }
func (e dialError) Is(target error) bool { return errors.Is(e.err, target) }

// failedConn stands for a connection after a failed dial.
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
