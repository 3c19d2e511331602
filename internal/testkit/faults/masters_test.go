package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// reset is the role of a fake that resets its connections.
const reset = "reset"

// fake is a server that tells a role and an offset, whatever is asked.
type fake struct {
	*servertest.Server
	listener net.Listener
	tells    atomic.Pointer[servertest.Replication]
}

func startFake(t *testing.T, role string) *fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	f := &fake{Server: &servertest.Server{Addr: listener.Addr().String()}, listener: listener}
	f.tell(role, "s1", 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			bufio.NewReader(conn).ReadString('\n')
			if r := f.tells.Load(); r.Role == reset {
				conn.(*net.TCPConn).SetLinger(0)
			} else {
				fmt.Fprintf(conn, "$9\r\n# Replication\r\nrole:%s\r\n", r.Role)
				if r.Role == isReplica {
					fmt.Fprintf(conn, "slave_repl_offset:%d\r\n", r.Offset)
				}
				fmt.Fprintf(conn, "master_replid:%s\r\nmaster_repl_offset:%d\r\n\r\n", r.Stream, r.Offset)
			}
			conn.Close()
		}
	}()
	return f
}

func (f *fake) tell(role, stream string, offset int64) {
	f.tells.Store(&servertest.Replication{Role: role, Stream: stream, Offset: offset})
}

// A sentinel that promotes a replica resets connections of the replica, among them
// the connection of a look. A new master lacks all hits since it was last as far as
// the master of the time.
func TestFailoversAreNoted(t *testing.T) {
	old, next, last := startFake(t, isMaster), startFake(t, isReplica), startFake(t, isReplica)
	w := &world{campaign: &campaign{}, setting: setting{name: "redis sentinel", setUp: func(w *world) {
		w.serve(old.Server, next.Server, last.Server)
		w.withMasters(1)
	}}}
	w.open()
	m := w.masters
	lookUntil := func(what func() bool) {
		for began := time.Now(); !what(); m.look() {
			require.Less(t, time.Since(began), 20*time.Second)
		}
	}
	becomes := func(f *fake, role string) func() bool {
		return func() bool { return m.role[f.Server] == role }
	}
	lookUntil(func() bool { return m.held[next.Server] > 0 && m.held[last.Server] > 0 })
	require.Zero(t, w.faults[failedOver])

	// One replica falls behind, and the other keeps up.
	old.tell(isMaster, "s1", 20)
	next.tell(isReplica, "s1", 20)
	lookUntil(func() bool { return m.marks["s1"].offset == 20 })
	before := m.held[last.Server]
	instant := time.Now().UnixNano()
	lookUntil(func() bool { return m.held[next.Server] > instant })
	require.Equal(t, before, m.held[last.Server])

	old.tell(reset, "", 0)
	next.tell(reset, "", 0)
	known := m.look()
	held := m.held[next.Server]
	next.tell(isMaster, "s2", 20)
	lookUntil(becomes(next, isMaster))
	require.Equal(t, 1, w.faults[failedOver])
	require.NotNil(t, m.turn, "the old master may still answer callers")
	require.LessOrEqual(t, known, m.turn.From)
	require.Equal(t, held, m.turn.Since)

	// A master that is none any more proves nothing about its replica.
	old.tell(isMaster, "s1", 30)
	last.tell(isReplica, "s1", 30)
	for range 3 {
		m.look()
	}
	require.Equal(t, before, m.held[last.Server])

	old.listener.Close()
	lookUntil(becomes(old, ""))
	require.Nil(t, m.turn)
	require.Equal(t, 1, w.faults[failedOver])

	// The third server has not followed the second.
	for range 3 {
		m.look()
	}
	next.tell(reset, "", 0)
	last.tell(isMaster, "s3", 30)
	lookUntil(becomes(last, isMaster))
	require.Equal(t, 2, w.faults[failedOver])
	require.Equal(t, before, m.turn.Since)
}

// watched opens a world without callers, whose servers are watched until the test ends.
func watched(t *testing.T, name string, setUp func(*world)) *strike {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := &campaign{stage: &servertest.Stage{OnFailure: func(err error) { t.Error(err) }}, ctx: ctx}
	t.Cleanup(c.stage.End)
	w := &world{campaign: c, setting: setting{name: name, setUp: setUp}}
	w.open()
	var looks sync.WaitGroup
	looked := make(chan struct{})
	t.Cleanup(func() {
		close(looked)
		looks.Wait()
	})
	looks.Go(func() { every(20*time.Millisecond, looked, w.look) })
	w.masters.inStep()
	return &strike{world: w, rng: rand.New(rand.NewPCG(1, 1))}
}

// A dead master whose sentinels, or fellow masters, elect nobody is replaced by hand.
func TestReplicaIsPromotedWithoutElection(t *testing.T) {
	for name, setUp := range map[string]func(*world){"redis sentinel": sentinel, "redis cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			s := watched(t, name, setUp)
			m := s.masters
			if m.sentinel != nil {
				for _, addr := range m.sentinel.Addrs {
					_, err := servertest.Command(addr, "SENTINEL", "SET", m.sentinel.Name, "quorum", "9")
					require.NoError(t, err)
				}
			} else {
				for _, node := range m.servers {
					s.command(node, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
				}
			}
			old := m.having(isMaster, nil)[0]
			old.Kill()
			m.promote(s, old)
			require.Len(t, m.having(isMaster, old), m.number)
		})
	}
}

// A slot is on its way, and a replica takes the place of the master that gets it: all
// keys end at one master, none is lost, and the slot can be moved again.
func TestMoveOfASlotSurvivesAFailover(t *testing.T) {
	s := watched(t, "redis cluster", cluster)
	m := s.masters
	const keys = 8
	key := func(i int) string { return fmt.Sprintf("{slot}-hot-%d", i) }
	from := byAddr(m.servers, m.cluster.Master(key(0)))
	for i := range keys {
		s.command(from, "SET", key(i), fmt.Sprint(i))
	}
	to := m.having(isMaster, from)[0]
	m.move(s, from, to, key(0), func(moved int) {
		if moved != keys/2 {
			return
		}
		m.inStep()
		to.Kill()
		require.True(t, m.replaced(to))
		to.Restart()
		m.inStep()
	})
	owner := byAddr(m.servers, m.cluster.Master(key(0)))
	for i := range keys {
		require.Equal(t, fmt.Sprint(i), fmt.Sprint(s.command(owner, "GET", key(i))), i)
	}
	m.move(s, owner, m.having(isMaster, owner)[0], key(0), func(int) {})
	require.NotEqual(t, owner.Addr, m.cluster.Master(key(0)))
}

func byAddr(servers []*servertest.Server, addr string) *servertest.Server {
	return servers[slices.IndexFunc(servers, func(s *servertest.Server) bool { return s.Addr == addr })]
}
