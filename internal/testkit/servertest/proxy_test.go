package servertest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestProxyCountsTrips(t *testing.T) {
	t.Parallel()
	const delay = 200 * time.Millisecond // so far may requests side by side be apart, twice
	p := NewProxy(t, echo(t, nil), delay)
	a, b := connect(t, p.Addr), connect(t, p.Addr)
	for _, c := range []struct {
		name  string
		call  func()
		trips int
	}{
		{"nothing", func() {}, 0},
		{"one request", func() { exchange(t, a, "1\n") }, 1},
		{"one after the other", func() {
			for _, conn := range []net.Conn{a, b, a} {
				exchange(t, conn, "2\n")
			}
		}, 3},
		{"side by side, on two connections", func() {
			send(t, a, "3\n")
			send(t, b, "3\n")
			receive(t, a, "3\n")
			receive(t, b, "3\n")
		}, 1},
		{"one after the other, on one connection, without waiting", func() {
			send(t, a, "4\n")
			exchange(t, a, "5\n")
		}, 1},
		{"two, then one that waited for the first", func() {
			send(t, a, "6\n")
			send(t, b, "6\n")
			receive(t, a, "6\n")
			send(t, a, "7\n")
			receive(t, b, "6\n")
			receive(t, a, "7\n")
		}, 2},
	} {
		p.Reset()
		c.call()
		require.Equal(t, c.trips, p.Trips(), c.name)
	}
	exchange(t, connect(t, p.Addr), "8\n")
	exchange(t, connect(t, p.Addr), "8\n")
	require.Equal(t, 2, p.Conns())
	p.Reset()
	require.Zero(t, p.Conns()+p.Trips())
}

func TestProxyDelaysAndKeepsTheThroughput(t *testing.T) {
	t.Parallel()
	const delay = 250 * time.Millisecond
	p := NewProxy(t, echo(t, nil), delay)
	conn := connect(t, p.Addr)
	began := time.Now()
	exchange(t, conn, "1\n")
	require.GreaterOrEqual(t, time.Since(began), 2*delay)

	// The proxy reads 64 KiB at a time at most: 8 MiB are 128 chunks or more.
	// One delay for each would be 32 seconds.
	large := append(bytes.Repeat([]byte("x"), 8<<20), '\n')
	began = time.Now()
	go conn.Write(large)
	got := try.To(bufio.NewReader(conn).ReadBytes('\n'))(t)
	require.True(t, bytes.Equal(large, got))
	long.Less(t, time.Since(began), 32*time.Second)
}

func TestProxyPauses(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 10)
	p := NewProxy(t, echo(t, heard), 0)
	old := connect(t, p.Addr)
	p.Pause()
	p.Pause()
	young := connect(t, p.Addr)
	send(t, old, "old\n")
	send(t, young, "young\n")
	requireSilence(t, old)
	requireSilence(t, young)
	require.Empty(t, heard)
	p.Resume()
	p.Resume()
	receive(t, old, "old\n")
	receive(t, young, "young\n")
}

func TestProxyDropsReplies(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 10)
	p := NewProxy(t, echo(t, heard), 0)
	conn := connect(t, p.Addr)
	p.DropReplies(true)
	send(t, conn, "1\n")
	require.Equal(t, "1\n", <-heard, "the request has arrived")
	requireSilence(t, conn)
	p.DropReplies(false)
	send(t, conn, "2\n")
	require.Equal(t, "", receive(t, conn, "2\n"), "the first answer does not come any more")
}

// Requests arrive as sent; of the answers the first byte is changed.
func TestProxyDamages(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 10)
	p := NewProxy(t, echo(t, heard), 0)
	for range 2 {
		p.Damage(Heads, 1)
		c := connect(t, p.Addr)
		for request, want := range map[string]string{"12345678\n": "\xb12345678\n", "1\n": "\xb1\n"} {
			send(t, c, request)
			require.Equal(t, request, <-heard)
			require.Equal(t, want, read(t, c, len(want)))
		}
		p.Damage(Whole, 0)
		send(t, c, "12345678\n")
		require.Equal(t, "12345678\n", read(t, c, 9), "as it was, on the same connection")
		<-heard
	}
}

func TestProxyDelaysEachDirection(t *testing.T) {
	t.Parallel()
	far := time.Duration(long.Rounds(300, 3000)) * time.Millisecond // the long form judges it, on a busy machine too
	heard := make(chan string, 1)
	p := NewProxy(t, echo(t, heard), 0)
	conn := connect(t, p.Addr)

	p.Delay(0, far)
	began := time.Now()
	send(t, conn, "answers\n")
	require.Equal(t, "answers\n", <-heard)
	long.Less(t, time.Since(began), far, "the request is not late")
	receive(t, conn, "answers\n")
	require.GreaterOrEqual(t, time.Since(began), far)

	p.Delay(far, 0)
	began = time.Now()
	send(t, conn, "requests\n")
	require.Equal(t, "requests\n", <-heard)
	require.GreaterOrEqual(t, time.Since(began), far)
	receive(t, conn, "requests\n")
	long.Less(t, time.Since(began), 2*far, "and the answer is not")

	p.Delay(0, 0)
	began = time.Now()
	send(t, conn, "none\n")
	<-heard
	receive(t, conn, "none\n")
	long.Less(t, time.Since(began), far)
}

func TestProxyCutsAndAborts(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, echo(t, nil), 0)
	for _, end := range []func(){p.Cut, p.Abort} {
		conn := connect(t, p.Addr)
		exchange(t, conn, "1\n")
		p.Pause()
		send(t, conn, "lost\n")
		end()
		p.Resume()
		requireClosed(t, conn)
	}
	conn := connect(t, p.Addr)
	exchange(t, conn, "2\n")
	p.Abort()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	require.ErrorIs(t, try.Err(conn.Read(make([]byte, 1))), syscall.ECONNRESET)
}

func TestProxyToNobody(t *testing.T) {
	t.Parallel()
	s := StartMemcached(t)
	p := NewProxy(t, s.Addr, 0)
	conn := connect(t, p.Addr)
	send(t, conn, "version\r\n")
	receive(t, conn, "\r\n")
	s.Kill()
	requireClosed(t, conn)
	requireClosed(t, connect(t, p.Addr))
}

// A client that has closed its sending side still gets its answers, and a server
// learns that a client has gone.
func TestProxyPassesTheEndOn(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, echo(t, nil), time.Millisecond)
	conn := connect(t, p.Addr)
	send(t, conn, "1\n")
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	all := try.To(io.ReadAll(conn))(t)
	require.Equal(t, "1\n", string(all))
}

// echo is a server that answers each line with itself, and tells heard of it.
func echo(t testing.TB, heard chan<- string) string {
	return Serve(t, func(conn net.Conn) {
		lines := bufio.NewReader(conn)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if heard != nil {
				heard <- line
			}
			if _, err := io.WriteString(conn, line); err != nil {
				return
			}
		}
	})
}

func connect(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn := try.To(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a line and receives the line.
func exchange(t testing.TB, conn net.Conn, line string) {
	t.Helper()
	send(t, conn, line)
	receive(t, conn, line)
}

func send(t testing.TB, conn net.Conn, line string) {
	t.Helper()
	try.To(fmt.Fprint(conn, line))(t)
}

func read(t testing.TB, conn net.Conn, n int) string {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	all := make([]byte, n)
	try.To(io.ReadFull(conn, all))(t)
	return string(all)
}

func requireClosed(t testing.TB, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	var timeout net.Error
	if e, ok := err.(net.Error); ok {
		timeout = e
	}
	require.True(t, timeout == nil || !timeout.Timeout(), "still open")
}
