package redis

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"slices"
	"sync/atomic"
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
// unwritten, since the reader of a subscription runs next to its writer.
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
		if sent := c.unanswered(); slices.ContainsFunc(sent, exchange.counts) && c.dialer.drain(c, sent) {
			return nil
		}
	} else if c.state.Swap(closed) == closed {
		return nil
	}
	return c.end()
}

// end closes the connection under c.
func (c *conn) end() error {
	c.dialer.gone(weak.Make(c))
	return c.Conn.Close()
}

// unanswered returns the exchanges whose answers the client has not read to their end, and
// leaves in c.answers the beginning of the first such answer.
func (c *conn) unanswered() []exchange {
	if c.partial {
		return nil
	}
	sent := exchangesOf(c.commands)
	under := bytes.NewReader(c.answers)
	read, from := bufio.NewReader(under), 0
	for len(sent) > 0 {
		if _, err := sent[0].readOutcome(read); err != nil {
			break
		}
		sent, from = sent[1:], len(c.answers)-under.Len()-read.Buffered()
	}
	c.answers = c.answers[from:]
	return sent
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
	net.Conn // the end of a pipe
	err      error
}

func (c failedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c failedConn) Write([]byte) (int, error) { return 0, c.err }
