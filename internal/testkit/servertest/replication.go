package servertest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Replication is the part of a Redis in the replication, as the server tells.
type Replication struct {
	Role   string // master or slave
	Stream string // of writes, from a master to its replicas
	Offset int64  // in the stream
	info   string
}

// ReplicationOf asks a Redis within a time.
func ReplicationOf(addr string, within time.Duration) (r Replication, err error) {
	if r.info, err = Exchange(addr, within, "INFO replication", "\r\n\r\n"); err != nil {
		return r, err
	}
	field := func(name string) string {
		_, rest, _ := strings.Cut(r.info, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r\n")
		return value
	}
	r.Role, r.Stream = field("role"), field("master_replid")
	offset := field("master_repl_offset")
	if r.Role == "slave" {
		offset = field("slave_repl_offset")
	}
	if r.Offset, err = strconv.ParseInt(offset, 10, 64); err != nil {
		r.Stream = "" // of no master
	}
	return r, nil
}

func replication(addr string) (Replication, error) { return ReplicationOf(addr, 4*time.Second) }

var onlineReplica = regexp.MustCompile(`slave\d+:ip=127\.0\.0\.1,port=(\d+),state=online`)

// inStep is nil if the master at addr has at least n replicas and each replica has
// every write from before the call. A replica that is merely connected may lose the
// last writes in a failover.
func inStep(addr string, n int) error {
	master, err := replication(addr)
	if err != nil {
		return err
	}
	replicas := onlineReplica.FindAllStringSubmatch(master.info, -1)
	if len(replicas) < n {
		return fmt.Errorf("%s has fewer than %d replicas: %s", addr, n, master.info)
	}
	for _, match := range replicas {
		replica, err := replication("127.0.0.1:" + match[1])
		if err != nil {
			return err
		}
		if replica.Role != "slave" || replica.Offset < master.Offset {
			return fmt.Errorf("the replica at port %s has not %d bytes: %s", match[1], master.Offset, replica.info)
		}
	}
	return nil
}

// hasRole is nil if the node at addr takes itself for a "master" or a "slave".
func hasRole(addr, role string) error {
	node, err := replication(addr)
	if err == nil && node.Role != role {
		err = fmt.Errorf("%s is not a %s", addr, role)
	}
	return err
}

// setup is the part that a Sentinel and a Cluster have in common.
type setup struct {
	t     testing.TB
	nodes []*Server
}

// Nodes are all masters and replicas, whichever is which.
func (s *setup) Nodes() []*Server { return s.nodes }

// Server is the master or replica at addr.
func (s *setup) Server(addr string) *Server {
	i := slices.IndexFunc(s.nodes, func(node *Server) bool { return node.Addr == addr })
	require.GreaterOrEqual(s.t, i, 0, "servertest: no server of this setup has the address %s", addr)
	return s.nodes[i]
}

func (s *setup) await(failure string, ready func() error) {
	require.NoError(s.t, await(ready), "servertest: %s", failure)
}

// named waits until a master is named, which it returns.
func (s *setup) named(failure string, name func() (string, error)) (master string) {
	s.await(failure, func() (err error) {
		master, err = name()
		return err
	})
	return master
}

// failOver kills the master at old, and waits until another one is named, which it returns.
func (s *setup) failOver(old string, name func() (string, error)) string {
	s.Server(old).Kill()
	return s.named("no failover from "+old, func() (string, error) {
		master, err := name()
		if err == nil && master == old {
			err = fmt.Errorf("%s is still named", old)
		}
		return master, err
	})
}
