package memcache_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// tell sends a line to a memcached and returns the answer, up to a line in
// ends.
func tell(t testing.TB, addr, line string, ends ...string) []string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(conn, "%s\r\n", line)
	require.NoError(t, err)
	var lines []string
	for in := bufio.NewScanner(conn); in.Scan(); {
		lines = append(lines, in.Text())
		for _, end := range ends {
			if strings.HasPrefix(in.Text(), end) {
				return lines
			}
		}
	}
	require.Fail(t, "no answer", "%s to %s: %q", line, addr, lines)
	return nil
}

// stat returns a statistic of memcached.
func stat(t testing.TB, addr, name string) string {
	t.Helper()
	for _, line := range tell(t, addr, "stats", "END") {
		if value, ok := strings.CutPrefix(line, "STAT "+name+" "); ok {
			return value
		}
	}
	require.Fail(t, "no such stat", name)
	return ""
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return n
}

// left returns the seconds that an item has left to live.
func left(t testing.TB, addr, item string) float64 {
	t.Helper()
	answer := tell(t, addr, "mg "+item+" t", "HD", "EN")[0]
	seconds, ok := strings.CutPrefix(answer, "HD t")
	require.True(t, ok, answer)
	return float64(number(t, seconds))
}

// silence pauses a memcached, and returns when the process has stopped, a
// moment after the signal.
func silence(t testing.TB, server *servertest.Server) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	require.NoError(t, err)
	defer conn.Close()
	server.Pause()
	answer := make([]byte, 1000)
	for !errors.Is(err, os.ErrDeadlineExceeded) {
		require.NoError(t, err)
		_, err = fmt.Fprint(conn, "version\r\n")
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = conn.Read(answer)
	}
}

// unixMemcached starts a memcached on a Unix socket.
func unixMemcached(t *testing.T, path string) {
	t.Helper()
	args := []string{"-s", path, "-U", "0"}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	cmd := exec.Command("memcached", args...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, patience, time.Millisecond)
}

// fake is a server that answers each line by a script, one line at a time over
// all connections.
type fake struct {
	addr  string
	lines chan string // the lines received
}

// newFake starts a server for the test. Many goroutines call reply, once for
// each line, and send the result; "" closes the connection.
func newFake(t testing.TB, reply func(line string) string) *fake {
	t.Helper()
	f := &fake{lines: make(chan string, 1000)}
	f.addr = servertest.Serve(t, func(conn net.Conn) {
		in := bufio.NewScanner(conn)
		for in.Scan() {
			line := in.Text()
			if (strings.HasPrefix(line, "add ") || strings.HasPrefix(line, "cas ")) && in.Scan() {
				line += " " + in.Text()
			}
			f.lines <- line
			answer := reply(line)
			if answer == "" {
				return
			}
			if _, err := conn.Write([]byte(answer)); err != nil {
				return
			}
		}
	})
	return f
}

// asked returns the lines received so far.
func (f *fake) asked() (lines []string) {
	for {
		select {
		case line := <-f.lines:
			lines = append(lines, line)
		default:
			return lines
		}
	}
}

// next returns the next line received.
func (f *fake) next(t testing.TB) string {
	t.Helper()
	select {
	case line := <-f.lines:
		return line
	case <-time.After(patience):
		require.Fail(t, "nothing was asked")
		return ""
	}
}

// trickle starts a server that answers any request with empty items, a moment
// apart, until stop is closed.
func trickle(t testing.TB, stop <-chan struct{}) string {
	t.Helper()
	return servertest.Serve(t, func(conn net.Conn) {
		for {
			if _, err := fmt.Fprint(conn, "VALUE k 0 0 1\r\n\r\n"); err != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}
