package stores

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// wire is a connection for lines of text. Both kinds of servers understand enough
// lines to be told apart, and memcached's stats need nothing else.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	stop func() bool
}

// dial connects to host:port, or to the path of a socket. The connection ends
// with ctx.
func dial(ctx context.Context, addr string) (*wire, error) {
	network := "tcp"
	if strings.Contains(addr, "/") {
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, reason(err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return &wire{conn, bufio.NewReaderSize(conn, 1<<16), stop}, nil
}

func (w *wire) close() {
	w.stop()
	w.conn.Close()
}

// ask sends a line and returns the first line of the answer.
func (w *wire) ask(line string) (string, error) {
	if _, err := w.conn.Write([]byte(line + "\r\n")); err != nil {
		return "", reason(err)
	}
	return w.line()
}

func (w *wire) line() (string, error) {
	line, err := w.in.ReadString('\n')
	if err != nil {
		return "", reason(err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// stats sends a stats command of memcached.
func (w *wire) stats(command string) (map[string]string, error) {
	line, err := w.ask(command)
	all := map[string]string{}
	for ; err == nil && line != "END"; line, err = w.line() {
		stat, is := strings.CutPrefix(line, "STAT ")
		if !is {
			return nil, fmt.Errorf("%s: answer %.80q, want STAT lines and END", command, line)
		}
		name, value, _ := strings.Cut(stat, " ")
		all[name] = value
	}
	return all, err
}

// errUnknown is the error for an answer of neither kind of server.
var errUnknown = errors.New("what answers is neither Redis nor memcached")

// kind asks a server for the version in memcached's words: a memcached tells the
// version, and a Redis is known by the form of the refusal.
func (w *wire) kind() (Kind, error) {
	answer, err := w.ask("version")
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(answer, "VERSION ") {
		return OnMemcached, nil
	}
	for _, refusal := range []string{"-ERR", "-NOAUTH", "-NOPERM", "-DENIED", "-LOADING", "-MASTERDOWN"} {
		if strings.HasPrefix(answer, refusal) {
			return OnRedis, nil
		}
	}
	if strings.HasPrefix(answer, "CLIENT_ERROR unauthenticated") {
		return OnMemcached, errors.New("the memcached wants a password, which this program cannot give")
	}
	return 0, errUnknown
}

// kindOf is the kind of the server at addr, as far as its answers tell.
func kindOf(ctx context.Context, addr string) (Kind, error) {
	w, err := dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer w.close()
	return w.kind()
}
