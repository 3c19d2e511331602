package redis

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"weak"
)

// conn is a connection that remembers the last command, or the last commands that were
// written at once, if any of them counts, and the bytes read since, so that the Dialer
// can read the rest of the answers when the client has given up. A client uses a conn from a single goroutine at a time, but for Close. A
// subscription never sends a command that counts, and is read by a goroutine while
// another writes: of a subscription nothing is remembered, and no field but state
// changes.
type conn struct {
	net.Conn
	dialer *Dialer
	state  atomic.Int32

	commands []byte // the last command or pipeline, if it has commands that count
	partial  bool   // more of the last command is to come
	answers  []byte // read since the commands
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

	maxRemembered = 1 << 20 // bytes of commands, and of answers
)

func (c *conn) Write(b []byte) (int, error) {
	c.state.CompareAndSwap(timedOut, inUse)
	n, err := c.Conn.Write(b)
	switch {
	case err != nil:
		// The server may have commands of a pipeline, but no way to take them back: what
		// follows on this connection would be read as the rest of a command.
		c.forget()
		return n, err
	case c.partial:
		c.commands = append(c.commands, b...)
	case counts(b):
		c.commands = append(c.commands[:0], b...)
		c.answers = c.answers[:0]
	default:
		c.forget()
		return n, nil
	}
	c.partial = len(b) >= partSize && !whole(c.commands)
	if len(c.commands) > maxRemembered {
		c.commands, c.partial = nil, false
	}
	return n, nil
}

// forget forgets the commands. The fields of a connection without commands stay
// unwritten, since the reader of a subscription runs beside its writer.
func (c *conn) forget() {
	if len(c.commands) > 0 {
		c.commands = c.commands[:0]
	}
	if c.partial {
		c.partial = false
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && len(c.commands) > 0 {
		if c.answers = append(c.answers, b[:n]...); len(c.answers) > maxRemembered {
			c.commands, c.answers = nil, nil
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
		if !c.partial && c.awaits() && c.dialer.drain(c) {
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

// awaits tells whether the client has not read the whole answer to a command that
// counts.
func (c *conn) awaits() bool {
	sent, _ := exchangesOf(c.commands)
	return slices.ContainsFunc(sent[c.answered(sent):], func(x exchange) bool { return runsCounting(x.bytes) })
}

// answered returns the number of exchanges whose whole answers the client has read.
func (c *conn) answered(sent []exchange) int {
	read := bufio.NewReader(bytes.NewReader(c.answers))
	for i := range sent {
		if _, err := sent[i].readOutcome(read); err != nil {
			return i
		}
	}
	return len(sent)
}

// allAnswers reads the answers from the beginning: the bytes read by the client, and the
// bytes still to come.
func (c *conn) allAnswers() *bufio.Reader {
	return bufio.NewReader(io.MultiReader(bytes.NewReader(c.answers), c.Conn))
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
