package servertest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

const (
	replicas  = 2
	sentinels = 3
	quorum    = 2

	// A sentinel that has lost a connection opens the next connection a second
	// later, also to a new master. A shorter limit for "down" would hit the new
	// master as well, and the sentinels would chase the master from node to node.
	downAfter = 1500 * time.Millisecond

	// failoverTimeout bounds each step of a failover. After twice the time the same
	// sentinel starts another failover.
	failoverTimeout = 3 * time.Second
)

// SentinelSetup is a Redis master with two replicas, watched by three
// sentinels.
type SentinelSetup struct {
	Name  string   // of the master, by which clients ask the sentinels
	Addrs []string // of the sentinels
	setup          // of the master and the replicas
}

// Sentinel starts a master, its replicas and its sentinels for the test, and
// returns after about two seconds, when a failover would succeed.
func Sentinel(t testing.TB) *SentinelSetup {
	s := &SentinelSetup{Name: "main", setup: setup{t: t}}
	// A master waits five seconds for more replicas, unless it is told not to.
	master := StartRedis(t, "--repl-diskless-sync-delay", "0")
	s.nodes = append(s.nodes, master)
	for range replicas {
		s.nodes = append(s.nodes, StartRedis(t, "--repl-diskless-sync-delay", "0",
			"--replicaof", "127.0.0.1 "+strconv.Itoa(master.port)))
	}
	// A sentinel looks for others at its start, and again ten seconds later.
	s.await("the replicas have not joined", func() error { return inStep(master.Addr, replicas) })
	for range sentinels {
		s.Addrs = append(s.Addrs, startSentinel(t, s.Name, master.port).Addr)
	}
	s.await("the sentinels have not met", s.Ready)
	return s
}

func startSentinel(t testing.TB, name string, master int) *Server {
	config := filepath.Join(t.TempDir(), "sentinel.conf") // which the sentinel rewrites
	require.NoError(t, os.WriteFile(config, nil, 0o600))
	program := redisProgram()
	program.args = func(port int, dir string) []string {
		return []string{config, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir}
	}
	s := start(t, program)
	monitor(t, s.Addr, name, master)
	return s
}

// monitor makes a sentinel watch the master at a port.
func monitor(t testing.TB, sentinel, name string, master int) {
	for _, args := range [][]string{
		{"MONITOR", name, "127.0.0.1", strconv.Itoa(master), strconv.Itoa(quorum)},
		{"SET", name, "down-after-milliseconds", fmt.Sprint(downAfter.Milliseconds())},
		{"SET", name, "failover-timeout", fmt.Sprint(failoverTimeout.Milliseconds())},
	} {
		require.NoError(t, try.Err(Command(sentinel, append([]string{"SENTINEL"}, args...)...)), "servertest: configure the sentinel at %s", sentinel)
	}
}

// view returns the fields of the master as a sentinel sees it, by their names.
func (s *SentinelSetup) view(sentinel string) (map[string]string, error) {
	answer, err := Command(sentinel, "SENTINEL", "MASTER", s.Name)
	pairs, _ := answer.([]any)
	fields := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[len(pair)-1])
	}
	return fields, err
}

// Names reports whether a sentinel names the master at addr, and has no failover under
// way.
func (s *SentinelSetup) Names(sentinel, addr string) bool {
	fields, err := s.view(sentinel)
	return err == nil && net.JoinHostPort(fields["ip"], fields["port"]) == addr && fields["flags"] == "master"
}

// Teach makes a sentinel forget all, and watch the master at addr: the remedy for a
// sentinel in a failover whose new master has died.
func (s *SentinelSetup) Teach(sentinel, addr string) {
	require.NoError(s.t, try.Err(Command(sentinel, "SENTINEL", "REMOVE", s.Name)), "servertest: the sentinel at %s", sentinel)
	monitor(s.t, sentinel, s.Name, s.Server(addr).port)
}

// Master is the host:port of the master that all sentinels name.
func (s *SentinelSetup) Master() string { return s.named("the sentinels do not agree", s.settled) }

// FailOver kills the master, waits until the sentinels have promoted a replica and
// are done, and returns the replica's host:port. Nothing written before the call is
// lost. FailOver takes about four seconds, and a few more soon after another
// failover. The old master becomes a replica some ten seconds after a Restart.
func (s *SentinelSetup) FailOver() string {
	s.await("not ready for a failover", s.Ready)
	old := s.Master()
	return s.failOver(old, func() (string, error) {
		master, err := s.settled()
		if err == nil {
			err = hasRole(master, "master")
		}
		return master, err
	})
}

// Ready is nil if all sentinels see a replica that can take the master's place.
func (s *SentinelSetup) Ready() error {
	master, err := s.settled()
	if err != nil {
		return err
	}
	for _, addr := range s.Addrs {
		known, err := Command(addr, "SENTINEL", "REPLICAS", s.Name)
		if err != nil {
			return err
		}
		if !strings.Contains(fmt.Sprint(known), "flags slave ") {
			return fmt.Errorf("the sentinel at %s sees no replica that is up: %v", addr, known)
		}
	}
	return inStep(master, 1)
}

// settled returns the master that all sentinels name, if all sentinels know each
// other and see the master up, with no failover under way.
func (s *SentinelSetup) settled() (master string, err error) {
	for _, addr := range s.Addrs {
		fields, err := s.view(addr)
		if err != nil {
			return "", err
		}
		named := net.JoinHostPort(fields["ip"], fields["port"])
		if fields["flags"] != "master" || fields["num-other-sentinels"] != strconv.Itoa(sentinels-1) || master != "" && named != master {
			return "", fmt.Errorf("the sentinel at %s sees %v, and the sentinel before it %q", addr, fields, master)
		}
		master = named
	}
	return master, nil
}
