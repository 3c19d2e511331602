package main

import (
	"bufio"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// reset is the role of a fake that resets its connections.
const reset = "reset"

// fake is a server that tells a role, whatever is asked.
type fake struct {
	*servertest.Server
	listener net.Listener
	role     atomic.Value
}

func startFake(t *testing.T, role string) *fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	f := &fake{Server: &servertest.Server{Addr: listener.Addr().String()}, listener: listener}
	f.role.Store(role)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			bufio.NewReader(conn).ReadString('\n')
			if role := f.role.Load().(string); role == reset {
				conn.(*net.TCPConn).SetLinger(0)
			} else {
				conn.Write([]byte(role + "\r\n"))
			}
			conn.Close()
		}
	}()
	return f
}

// A sentinel that promotes a replica resets connections of the replica, among them
// the connection of a look. A failover soon after another may lose more than the last.
func TestFailoversAreNoted(t *testing.T) {
	old, next, last := startFake(t, isMaster), startFake(t, isReplica), startFake(t, isReplica)
	w := &world{campaign: &campaign{}, setting: setting{name: "redis sentinel", setUp: func(w *world) {
		w.serve(old.Server, next.Server, last.Server)
		w.withMasters(1)
	}}}
	require.NoError(t, w.open())
	m := w.masters
	lookUntil := func(f *fake, role string) {
		for began := time.Now(); m.role[f.Server] != role; m.look() {
			require.Less(t, time.Since(began), 20*time.Second)
		}
	}
	lookUntil(old, isMaster)
	lookUntil(next, isReplica)
	lookUntil(last, isReplica)
	require.Zero(t, w.faults[failedOver])

	old.role.Store(reset)
	next.role.Store(reset)
	known := m.look()
	next.role.Store(isMaster)
	lookUntil(next, isMaster)
	require.Equal(t, 1, w.faults[failedOver])
	require.NotNil(t, m.turn, "the old master may still answer callers")
	require.LessOrEqual(t, known, m.turn.From)
	since := m.turn.Since

	old.listener.Close()
	lookUntil(old, "")
	require.Nil(t, m.turn)
	require.Equal(t, 1, w.faults[failedOver])

	// The third server may not have followed the second.
	next.role.Store(reset)
	last.role.Store(isMaster)
	lookUntil(last, isMaster)
	require.Equal(t, 2, w.faults[failedOver])
	require.Equal(t, since, m.turn.Since)
}
