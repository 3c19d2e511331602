package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/ticket"
)

// failedOver is the loss of hits by a replica in the place of its master. The roles of
// the servers show a failover, after another fault or on a busy machine.
const failedOver = "failover"

// masters watches the roles of the servers of a world: masters and replicas.
type masters struct {
	*world
	number   int                       // of masters
	sentinel *servertest.SentinelSetup // nil in a Cluster

	mu        sync.Mutex
	role      map[*servertest.Server]string // the last that each told
	asReplica map[*servertest.Server]int64  // when a server was last asked of those that told it was a replica
	held      map[*servertest.Server]int64  // the last instant of which a replica was seen to hold all hits before
	marks     map[string]mark               // of the masters at the last look, by the name of the stream
	turn      *disturbance                  // the failover under way
}

// mark is a position in the stream of writes from a master to its replicas: a replica
// which is as far holds all hits before the instant.
type mark struct{ offset, instant int64 }

// The roles of a server.
const (
	isMaster  = "master"
	isReplica = "slave"
)

// withMasters makes the world watch its servers.
func (w *world) withMasters(number int) {
	w.masters = &masters{world: w, number: number, role: map[*servertest.Server]string{},
		asReplica: map[*servertest.Server]int64{}, held: map[*servertest.Server]int64{}}
	w.watch = w.masters.look
}

// sentinel sets up a master with replicas, watched by sentinels.
func sentinel(w *world) {
	s := servertest.Sentinel(w.campaign.stage)
	w.serve(s.Nodes()...)
	w.addrs, w.members, w.master = slices.Concat(w.addrs, s.Addrs), s.Addrs, s.Name
	w.withMasters(1)
	w.masters.sentinel = s
}

// cluster sets up a Redis Cluster.
func cluster(w *world) {
	w.cluster = servertest.Cluster(w.campaign.stage)
	w.serve(w.cluster.Nodes()...)
	w.withMasters(len(w.servers) / 2)
}

// look asks each server for its role, and notes failovers. No failover before known
// is missing.
func (m *masters) look() (known int64) {
	answers, asked := make([]servertest.Replication, len(m.servers)), make([]int64, len(m.servers))
	ticket.SideBySide(len(m.servers), func(i int) {
		asked[i] = time.Now().UnixNano()
		answers[i] = replicationOf(m.servers[i].Addr)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	known = time.Now().UnixNano()
	marks, first := map[string]mark{}, slices.Min(asked)
	leading, unsure, promoted, since := 0, false, int64(0), int64(0)
	for i, node := range m.servers {
		was, now := m.role[node], answers[i]
		switch now.Role {
		case isMaster:
			leading++
			marks[now.Stream] = mark{now.Offset, first}
			if was != isReplica {
				break
			}
			if promoted == 0 {
				promoted, since = m.asReplica[node], m.held[node]
			}
			promoted, since = min(promoted, m.asReplica[node]), min(since, m.held[node])
		case isReplica:
			m.asReplica[node] = asked[i]
			if passed, ok := m.marks[now.Stream]; ok && now.Offset >= passed.offset {
				m.held[node] = passed.instant
			}
		case silent:
			unsure = unsure || was == isMaster
			now.Role = was
		}
		m.role[node] = now.Role
		if now.Role == isReplica {
			known = min(known, m.asReplica[node])
		} else {
			delete(m.held, node) // as a replica again, the server may be empty
		}
	}
	if promoted > 0 && m.turn == nil {
		m.turn = m.begin(history.Fault{Name: failedOver, Since: since, From: promoted, Severs: true, Loses: history.Latest}, nil)
	} else if promoted > 0 {
		m.turn.Since = min(m.turn.Since, since)
	}
	if m.turn != nil && leading == m.number && !unsure {
		m.end(m.turn)
		m.turn = nil
	}
	if m.turn != nil {
		marks = nil // the stream of a master that is none any more lacks hits
	}
	m.marks = marks
	return known
}

// silent is the role of a server without an answer.
const silent = "silent"

// replicationOf asks a Redis for its role. A dead server has none. A connection that
// is reset is no sign of death: a sentinel ends the connections of a server whose role
// the sentinel changes.
func replicationOf(addr string) servertest.Replication {
	r, err := servertest.ReplicationOf(addr, 250*time.Millisecond)
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		r.Role = silent
	}
	return r
}

// having returns the servers with a role, but for one.
func (m *masters) having(role string, but *servertest.Server) []*servertest.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.servers), func(node *servertest.Server) bool { return node == but || m.role[node] != role })
}

// any is a master by chance. All sentinels, if there are any, know the master and a
// replica for its place: a sentinel that was taught a moment ago knows no replica, and
// a dead master names none.
func (m *masters) any(s *strike) *servertest.Server {
	var all []*servertest.Server
	m.await("master", func() bool {
		all = m.having(isMaster, nil)
		return len(all) == m.number && m.known(all[0]) && (m.sentinel == nil || m.sentinel.Ready() == nil)
	})
	return all[s.rng.IntN(len(all))]
}

// turnTime bounds each step of a failover: a sentinel without a processor for two
// seconds does nothing for half a minute.
const turnTime = 2 * time.Minute

// await waits until something is true, whether or not the campaign goes on.
func (m *masters) await(what string, true func() bool) {
	require.True(m.campaign.stage, within(turnTime, true), "%s: no %s within %v", m.name, what, turnTime)
}

// replaced waits until another server has taken the place of a master, and tells
// whether one has. Sentinels that are starved, or know no replica, elect none.
func (m *masters) replaced(old *servertest.Server) bool {
	return within(turnTime/2, func() bool { return len(m.having(isMaster, old)) == m.number })
}

// promote gives the place of a dead master to a replica, as an operator does.
func (m *masters) promote(s *strike, old *servertest.Server) {
	_, port, _ := net.SplitHostPort(old.Addr)
	for _, node := range m.having(isReplica, old) {
		switch {
		case !strings.Contains(fmt.Sprint(s.command(node, "INFO", "replication")), "\nmaster_port:"+port+"\r\n"):
			continue
		case m.sentinel == nil:
			s.command(node, "CLUSTER", "FAILOVER", "TAKEOVER")
		default:
			s.command(node, "REPLICAOF", "NO", "ONE")
		}
		break
	}
	m.await("new master", func() bool { return len(m.having(isMaster, old)) == m.number })
}

// known reports whether all sentinels, if there are any, name a master and are done
// with its promotion.
func (m *masters) known(leader *servertest.Server) bool {
	return m.sentinel == nil || !slices.ContainsFunc(m.sentinel.Addrs, func(addr string) bool { return !m.sentinel.Names(addr, leader.Addr) })
}

// inStep waits until all servers but the masters are replicas, and hold all hits of
// before the call. A line that is up is no proof: a master can keep back the writes
// since the copy that it sent.
func (m *masters) inStep() {
	began := time.Now().UnixNano()
	m.await("replica in step", func() bool {
		replicas := m.having(isReplica, nil)
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(replicas) == len(m.servers)-m.number &&
			!slices.ContainsFunc(replicas, func(node *servertest.Server) bool { return m.held[node] < began })
	})
}

// cutLines cuts the lines between masters and replicas. A replica with a password for
// a master without is refused by the master.
func (m *masters) cutLines(s *strike) {
	for _, node := range m.having(isReplica, nil) {
		s.command(node, "CONFIG", "SET", "masterauth", "wrong")
	}
	for _, node := range m.having(isMaster, nil) {
		s.command(node, "CLIENT", "KILL", "TYPE", "replica")
	}
}

// mendLines ends cutLines.
func (m *masters) mendLines(s *strike, but *servertest.Server) {
	for _, node := range m.servers {
		if node != but {
			s.command(node, "CONFIG", "SET", "masterauth", "")
		}
	}
}

// kill kills a master, and lets it come back as a replica when another server has
// its place. With cut the replicas did not receive the last hits.
func (m *masters) kill(s *strike, cut bool) {
	old := m.any(s)
	if cut {
		m.cutLines(s)
		s.sleep(s.short())
	}
	old.Kill()
	if !m.replaced(old) {
		m.promote(s, old)
	}
	m.mendLines(s, old)
	if m.sentinel == nil {
		old.Restart() // a node of a Cluster knows its place
		m.inStep()
		return
	}
	// A sentinel without the news would send callers to the old master, now empty. The
	// new master may lose the place to a third server meanwhile.
	var leader *servertest.Server
	waiting := time.Now()
	m.await("sentinel with the news", func() bool {
		leaders := m.having(isMaster, old)
		if len(leaders) != m.number {
			return false
		}
		leader = leaders[0]
		if time.Since(waiting) > newsTime {
			waiting = time.Now()
			m.teach(leader)
		}
		return m.known(leader)
	})
	old.Restart()
	host, port, _ := net.SplitHostPort(leader.Addr)
	s.command(old, "REPLICAOF", host, port)
	m.inStep()
}

// teach tells sentinels the master that they do not name.
func (m *masters) teach(leader *servertest.Server) {
	for _, addr := range m.sentinel.Addrs {
		if !m.sentinel.Names(addr, leader.Addr) {
			m.sentinel.Teach(addr, leader.Addr)
		}
	}
}

// newsTime bounds the wait for sentinels. A sentinel whose own failover ended in the
// death of the new master waits for the dead.
const newsTime = 20 * time.Second

// freeze makes a master stand still until another server has its place, if one gets
// it.
func (m *masters) freeze(s *strike) {
	old := m.any(s)
	old.Pause()
	m.replaced(old)
	s.sleep(s.short())
	old.Resume()
	m.inStep()
}

// moveSlot moves the slot of a busy key of a Cluster to another master.
func (m *masters) moveSlot(s *strike) {
	from := m.any(s)
	found, _ := s.command(from, "KEYS", "*-hot-*").([]any)
	if len(found) == 0 {
		return
	}
	busy := fmt.Sprint(found[s.rng.IntN(len(found))])
	others := m.having(isMaster, from)
	m.move(s, from, others[s.rng.IntN(len(others))], busy, func(int) { s.sleep(s.short() / 8) })
	// A replica without the news would claim the slot together with its master's place.
	m.cluster.Master(busy)
}

// move moves the slot of a key from one master to another, key by key, as redis-cli
// does, and calls between after each, with the number of keys moved.
func (m *masters) move(s *strike, from, to *servertest.Server, key string, between func(moved int)) {
	slot := fmt.Sprint(s.command(from, "CLUSTER", "KEYSLOT", key))
	ids := map[*servertest.Server]string{}
	for _, node := range []*servertest.Server{from, to} {
		ids[node] = fmt.Sprint(s.command(node, "CLUSTER", "MYID"))
	}
	s.command(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
	s.command(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
	host, port, _ := net.SplitHostPort(to.Addr)
	for moved := 0; ; {
		s.sleep(s.short() / 4)
		keys, _ := s.command(from, "CLUSTER", "GETKEYSINSLOT", slot, "10").([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			_, err := s.try(from, "MIGRATE", host, port, fmt.Sprint(key), "0", "1500", "REPLACE")
			if err != nil && (strings.Contains(err.Error(), "MOVED") || strings.Contains(err.Error(), "READONLY")) {
				m.finishMove() // one of the two is a replica by now
				return
			}
			s.report(err)
			moved++
			between(moved)
		}
	}
	for _, node := range slices.Concat([]*servertest.Server{to, from}, m.having(isMaster, from)) {
		s.command(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	}
}

// finishMove gives the keys of a slot on its way to one master, after a failover of one
// of the two: on a busy machine a replica may take the place of a live master.
func (m *masters) finishMove() {
	m.inStep()
	out, err := exec.Command("redis-cli", "--cluster", "fix", m.having(isMaster, nil)[0].Addr, "--cluster-yes").CombinedOutput()
	require.NoError(m.campaign.stage, err, "%s: redis-cli --cluster fix: %s", m.name, out)
}
