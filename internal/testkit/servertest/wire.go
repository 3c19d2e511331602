package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// The few commands of this package are sent by hand: a test of a store must not
// depend on the client under test.

// Exchange sends a line to a server at addr, on a connection of its own, and returns
// the answer up to one of the ends, within a time.
func Exchange(addr string, within time.Duration, request string, ends ...string) (string, error) {
	conn, err := dial(addr, within)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return "", err
	}
	answer, err := readUntil(conn, ends...)
	if err != nil {
		return "", fmt.Errorf("%s: %w after %.80q", request, err, answer)
	}
	return answer, nil
}

// dial connects to a server whose answers come within a time.
func dial(addr string, within time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, max(within, 10*time.Second))
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(within))
}

// readUntil reads until the answer contains one of the ends, and returns what was read.
func readUntil(r io.Reader, ends ...string) (string, error) {
	var answer strings.Builder
	chunk := make([]byte, 4096)
	for {
		n, err := r.Read(chunk)
		answer.Write(chunk[:n])
		for _, end := range ends {
			if strings.Contains(answer.String(), end) {
				return answer.String(), nil
			}
		}
		if err != nil {
			return answer.String(), err
		}
	}
}

// Command sends a command to a Redis at addr, on a connection of its own, and
// returns the answer within four seconds: a string, an int64, nil or a []any of these.
func Command(addr string, args ...string) (any, error) {
	conn, err := dial(addr, 4*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return nil, err
	}
	answer, err := readReply(bufio.NewReader(conn))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	return answer, nil
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line for a reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reply %q: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return string(text[:n]), err
	case kind == '*':
		all := make([]any, n)
		for i := range all {
			if all[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("reply %q is of no known type", line)
}
