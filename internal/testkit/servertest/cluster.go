package servertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const masters = 3

// ClusterSetup is a Redis Cluster of three masters with a replica each.
type ClusterSetup struct {
	Addrs []string // of all nodes, masters and replicas
	setup
}

// Cluster starts a Redis Cluster for the test, and returns after about two seconds,
// when all nodes say that the cluster is complete.
func Cluster(t testing.TB) *ClusterSetup {
	c := &ClusterSetup{setup: setup{t: t}}
	for range 2 * masters {
		node := StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			// A replica takes over however old its copy is, and stays with its master.
			"--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0")
		c.nodes = append(c.nodes, node)
		c.Addrs = append(c.Addrs, node.Addr)
	}
	// redis-cli --cluster create waits without an end where a handshake was lost.
	for i, node := range c.nodes[:masters] {
		slots := []string{"CLUSTER", "ADDSLOTS"}
		for slot := range 1 << 14 {
			if slot*masters>>14 == i {
				slots = append(slots, fmt.Sprint(slot))
			}
		}
		c.command(node, slots...)
		c.command(node, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
	}
	c.await("the nodes have not met", c.joined)
	for i, node := range c.nodes[masters:] {
		c.command(node, "CLUSTER", "REPLICATE", fmt.Sprint(c.command(c.nodes[i], "CLUSTER", "MYID")))
	}
	c.await("the cluster is not complete", c.joined)
	return c
}

// Master is the host:port of the master that holds the key.
func (c *ClusterSetup) Master(key string) string {
	return c.named("no master for "+key, func() (string, error) { return c.master(key) })
}

// FailOver kills the master that holds the key, waits until the replica holds the
// key and all live nodes say that the cluster is complete, and returns the
// replica's host:port. Nothing written before the call is lost. FailOver takes
// about two seconds. The old master is a replica after a Restart; without a
// Restart, this part of the cluster has no other failover.
func (c *ClusterSetup) FailOver(key string) string {
	old := c.Master(key)
	c.await(old+" cannot fail over", func() error { return inStep(old, 1) })
	return c.failOver(old, func() (string, error) {
		master, err := c.master(key)
		return master, errors.Join(err, c.settled())
	})
}

func (c *ClusterSetup) command(node *Server, args ...string) any {
	answer, err := Command(node.Addr, args...)
	require.NoError(c.t, err, "servertest: the node at %s", node.Addr)
	return answer
}

// joined is settled, and has nodes meet the nodes that they do not know: a node forgets a
// handshake that takes longer than the timeout of a node, and never begins another.
func (c *ClusterSetup) joined() error {
	unsettled := c.settled()
	if unsettled == nil {
		return nil
	}
	for _, node := range c.nodes {
		known, err := Command(node.Addr, "CLUSTER", "NODES")
		if err != nil {
			return err
		}
		for _, addr := range c.Addrs {
			if strings.Contains(fmt.Sprint(known), addr+"@") {
				continue
			}
			host, port, _ := strings.Cut(addr, ":")
			if _, err := Command(node.Addr, "CLUSTER", "MEET", host, port); err != nil {
				return err
			}
		}
	}
	return unsettled
}

// settled is nil if all nodes that live are online and agree on the masters.
func (c *ClusterSetup) settled() error {
	for _, node := range c.living() {
		info, err := Command(node.Addr, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if text := fmt.Sprint(info); !strings.Contains(text, "cluster_state:ok") ||
			!strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d\r\n", 2*masters)) {
			return fmt.Errorf("%s says: %s", node.Addr, text)
		}
		part, err := replication(node.Addr)
		if err != nil {
			return err
		}
		if part.Role == "slave" && !strings.Contains(part.info, "master_link_status:up") {
			return fmt.Errorf("%s is not in step with its master: %s", node.Addr, part.info)
		}
	}
	return nil
}

// master is the master of the key in the eyes of all nodes that live.
func (c *ClusterSetup) master(key string) (master string, err error) {
	for _, node := range c.living() {
		named := node.Addr
		if _, err := Command(node.Addr, "TYPE", key); err != nil {
			_, rest, _ := strings.Cut(err.Error(), "MOVED ")
			if _, named, _ = strings.Cut(rest, " "); named == "" {
				return "", fmt.Errorf("%s: %w", node.Addr, err)
			}
		}
		if master != "" && named != master {
			return "", fmt.Errorf("the nodes name %s and %s", master, named)
		}
		master = named
	}
	return master, nil
}

func (c *ClusterSetup) living() []*Server {
	return slices.DeleteFunc(slices.Clone(c.nodes), (*Server).gone)
}
