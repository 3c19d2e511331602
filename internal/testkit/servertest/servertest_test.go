package servertest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestServersTakeArguments(t *testing.T) {
	t.Parallel()
	limit := try.To(Command(Redis(t, "--maxmemory", "3mb"), "CONFIG", "GET", "maxmemory"))(t)
	require.Equal(t, []any{"maxmemory", "3145728"}, limit)
	require.Contains(t, ask(t, Memcached(t, "-m", "7"), "stats settings\r\n", "END\r\n"), "STAT maxbytes 7340032\r\n")

	locked := StartRedis(t, "--requirepass", "secret")
	require.ErrorContains(t, try.Err(Command(locked.Addr, "PING")), "NOAUTH")
	require.NoError(t, redisAnswers(locked.Addr, "secret", locked.Pid()))
}

func TestRedisKeepsNothing(t *testing.T) {
	t.Parallel()
	addr := Redis(t)
	for setting, want := range map[string]string{"save": "", "appendonly": "no", "bind": "127.0.0.1"} {
		got := try.To(Command(addr, "CONFIG", "GET", setting))(t)
		require.Equal(t, []any{setting, want}, got)
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	for name, start := range starters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			addr, pid := s.Addr, s.Pid()
			ask(t, addr, "set key 0 0 5\r\nvalue\r\n", "STORED") // a Redis reads it as an error, which is an answer too
			s.Kill()
			s.Kill()
			require.Error(t, try.Err(net.Dial("tcp", addr)), "nobody is there")

			s.Restart()
			require.Equal(t, addr, s.Addr)
			require.NotEqual(t, pid, s.Pid())
			require.NoError(t, s.program.answers(addr, s.Pid()))

			pid = s.Pid()
			s.Restart()
			require.NotEqual(t, pid, s.Pid(), "one that runs is replaced")
			require.NoError(t, s.program.answers(addr, s.Pid()))
		})
	}
}

func TestRestartedServersAreEmpty(t *testing.T) {
	t.Parallel()
	m := StartMemcached(t)
	ask(t, m.Addr, "set key 0 0 5\r\nvalue\r\n", "STORED")
	require.Contains(t, ask(t, m.Addr, "get key\r\n", "END\r\n"), "value")
	m.Restart()
	require.NotContains(t, ask(t, m.Addr, "get key\r\n", "END\r\n"), "value")
	keeping := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for _, row := range []struct {
		args []string
		lost bool // the files, while the server is down
		want any
	}{{nil, false, nil}, {keeping, false, "value"}, {keeping, true, nil}} {
		r := StartRedis(t, row.args...)
		try.To(Command(r.Addr, "SET", "key", "value"))(t)
		if row.lost {
			r.Kill()
			require.NoError(t, os.RemoveAll(filepath.Join(r.Dir(), "appendonlydir")))
		}
		r.Restart()
		value := try.To(Command(r.Addr, "GET", "key"))(t)
		require.Equal(t, row.want, value, "%+v", row)
	}
}

func TestPausedServerIsHalfOpen(t *testing.T) {
	t.Parallel()
	for name, start := range starters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Pause()
			conn, err := net.Dial("tcp", s.Addr)
			require.NoError(t, err, "it accepts")
			defer conn.Close()
			_, err = fmt.Fprint(conn, "PING\r\n")
			require.NoError(t, err)
			requireSilence(t, conn)
			s.Resume()
			require.NotEmpty(t, receive(t, conn, "\r\n"))
		})
	}
}

func TestServersEndWithTheTest(t *testing.T) {
	t.Parallel()
	var servers []*Server
	t.Run("a test", func(t *testing.T) {
		servers = append(servers, StartMemcached(t), StartRedis(t), StartRedis(t))
		servers[1].Pause()
		servers[2].Kill()
		servers[2].Restart()
	})
	require.Len(t, servers, 3)
	for _, s := range servers {
		require.Error(t, s.cmd.Process.Signal(nil), "process %d is left", s.Pid())
		require.Error(t, try.Err(net.Dial("tcp", s.Addr)))
	}
}

// Of a paused server no thread runs: what is asked from then on is not answered.
func TestPause(t *testing.T) {
	t.Parallel()
	server := StartMemcached(t)
	for range 50 {
		conn := try.To(dial(server.Addr, 4*time.Second))(t)
		server.Pause()
		_, err := fmt.Fprint(conn, "version\r\n")
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err = conn.Read(make([]byte, 100))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		server.Resume()
		require.NoError(t, conn.Close())
	}
}

func TestTakenPort(t *testing.T) {
	t.Parallel()
	for name, start := range starters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder := start(t)
			late := start(t)
			late.Kill()
			late.port, late.Addr = holder.port, holder.Addr
			require.ErrorIs(t, late.run(), errExited, "the answers of the other one are not taken for its own")
		})
	}
}

func starters() map[string]func(t testing.TB) *Server {
	return map[string]func(t testing.TB) *Server{
		"memcached": func(t testing.TB) *Server { return StartMemcached(t) },
		"redis":     func(t testing.TB) *Server { return StartRedis(t) },
	}
}

// ask sends a request on a connection of its own and returns the answer up to
// end, or to a Redis error.
func ask(t testing.TB, addr, request, end string) string {
	t.Helper()
	conn := try.To(dial(addr, 4*time.Second))(t)
	defer conn.Close()
	require.NoError(t, try.Err(fmt.Fprint(conn, request)))
	answer := try.To(readUntil(conn, end, "-ERR"))(t)
	return answer
}

// receive reads until the end has come.
func receive(t testing.TB, conn net.Conn, end string) string {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	answer := try.To(readUntil(conn, end))(t)
	return strings.TrimSuffix(answer, end)
}

// requireSilence fails if anything arrives soon. On a slow machine it may miss
// what should not have come; it never fails for slowness.
func requireSilence(t testing.TB, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout, "%d bytes came", n)
	require.True(t, timeout.Timeout(), "%v", err)
}
