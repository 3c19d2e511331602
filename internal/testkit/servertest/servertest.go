// Package servertest starts the real servers that the tests of the stores talk to:
// memcached, Redis, Redis behind Sentinel, and Redis Cluster, each on free ports of
// the loopback interface, with nothing kept on disk. And nginx, Caddy and HAProxy, which
// stand in front of HTTP servers.
//
// A server belongs to a test, and ends with the test and with the test binary,
// however the binary ends (on Linux, even by a kill). A server whose program is
// missing fails the test: nothing is skipped, because an untested store looks the
// same as a store that passed. The server's output is part of the log of a failed
// test.
//
// [NewProxy] stands between a client and a server and makes the network between
// them slow, silent or broken, and counts the round trips.
//
// The functions and methods take the test's time and end the test on a failure of
// their own, so only the test's own goroutine may call them, unless the doc says
// otherwise. Programs and examples use a [Stage] in place of a test.
package servertest

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Memcached starts a memcached for the test and returns its host:port. args
// are added to the command line: "-m", "1".
func Memcached(t testing.TB, args ...string) string {
	return StartMemcached(t, args...).Addr
}

// Redis starts a Redis for the test and returns its host:port. args are added to
// the command line, and win over the settings made here: "--maxmemory", "3mb".
func Redis(t testing.TB, args ...string) string {
	return StartRedis(t, args...).Addr
}

// StartMemcached is [Memcached] for a test that disturbs the server.
func StartMemcached(t testing.TB, args ...string) *Server {
	return start(t, program{
		name: "memcached", debian: "memcached", other: "memcached",
		args: func(port int, dir string) []string {
			all := []string{"-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0"}
			if os.Geteuid() == 0 {
				// For another user than root memcached would change its user, and a
				// process after such a change no longer dies with the test.
				all = append(all, "-u", "root")
			}
			return append(all, args...)
		},
		answers: memcachedAnswers,
	})
}

// StartRedis is [Redis] for a test that disturbs the server.
func StartRedis(t testing.TB, args ...string) *Server {
	return start(t, redisProgram(args...))
}

func redisProgram(args ...string) program {
	password := ""
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		password = args[i+1]
	}
	return program{
		name: "redis-server", debian: "redis-server", other: "redis",
		args: func(port int, dir string) []string {
			all := []string{
				"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
				"--save", "", "--appendonly", "no", "--daemonize", "no",
			}
			return append(all, args...)
		},
		answers: func(addr string, pid int) error { return redisAnswers(addr, password, pid) },
	}
}

// memcachedAnswers reports whether the process pid serves addr. A memcached that
// wants a password first is taken for ours.
func memcachedAnswers(addr string, pid int) error {
	answer, err := Exchange(addr, 4*time.Second, "stats", "END\r\n", "ERROR")
	if err != nil {
		return err
	}
	if strings.Contains(answer, "unauthenticated") || strings.Contains(answer, fmt.Sprintf("STAT pid %d\r\n", pid)) {
		return nil
	}
	return fmt.Errorf("%s is not the memcached with pid %d: %.80q", addr, pid, answer)
}

// redisAnswers reports whether the process pid serves addr and has loaded all.
func redisAnswers(addr, password string, pid int) error {
	ask := "PING\r\nINFO server"
	if password != "" {
		ask = "AUTH " + password + "\r\n" + ask
	}
	answer, err := Exchange(addr, 4*time.Second, ask, "\nrun_id:", "\n-")
	if err == nil && !(strings.Contains(answer, "+PONG") && strings.Contains(answer, fmt.Sprintf("process_id:%d\r\n", pid))) {
		err = fmt.Errorf("%s is not the Redis with pid %d: %.80q", addr, pid, answer)
	}
	return err
}

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
