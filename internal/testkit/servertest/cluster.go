package servertest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

const masters = 3

// ClusterSetup is a Redis Cluster of three masters with a replica each.
type ClusterSetup struct {
	Addrs []string // of all nodes, masters and replicas

	t     testing.TB
	nodes []*Server
}

// Cluster starts a Redis Cluster for the test, and returns after about two seconds,
// when all nodes say that the cluster is complete.
func Cluster(t testing.TB) *ClusterSetup {
	t.Helper()
	c := &ClusterSetup{t: t}
	for range 2 * masters {
		node := StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			// A replica takes over however old its copy is, and stays with its master.
			"--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0")
		c.nodes = append(c.nodes, node)
		c.Addrs = append(c.Addrs, node.Addr)
	}
	create := append([]string{"--cluster", "create"}, c.Addrs...)
	create = append(create, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.Command("redis-cli", create...).CombinedOutput(); err != nil {
		t.Fatalf("servertest: redis-cli %s: %v\n%s", strings.Join(create, " "), err, out)
	}
	if err := await(c.joined); err != nil {
		t.Fatalf("servertest: the cluster is not complete: %v", err)
	}
	return c
}

// Master is the host:port of the master that holds the key.
func (c *ClusterSetup) Master(key string) string {
	c.t.Helper()
	var master string
	if err := await(func() (err error) {
		master, err = c.master(key)
		return err
	}); err != nil {
		c.t.Fatalf("servertest: no master for %q: %v", key, err)
	}
	return master
}

// Nodes are all nodes, masters and replicas.
func (c *ClusterSetup) Nodes() []*Server { return c.nodes }

// Server is the node at addr.
func (c *ClusterSetup) Server(addr string) *Server {
	c.t.Helper()
	return byAddr(c.t, c.nodes, addr)
}

// FailOver kills the master that holds the key, waits until the replica holds the
// key and all live nodes say that the cluster is complete, and returns the
// replica's host:port. Nothing written before the call is lost. FailOver takes
// about two seconds. The old master is a replica after a Restart; without a
// Restart, this part of the cluster has no other failover.
func (c *ClusterSetup) FailOver(key string) string {
	c.t.Helper()
	old := c.Master(key)
	if err := await(func() error { return inStep(old, 1) }); err != nil {
		c.t.Fatalf("servertest: %s cannot fail over: %v", old, err)
	}
	c.Server(old).Kill()
	var master string
	if err := await(func() (err error) {
		switch master, err = c.master(key); {
		case err != nil:
			return err
		case master == old:
			return fmt.Errorf("%s still holds %q", old, key)
		}
		return c.settled()
	}); err != nil {
		c.t.Fatalf("servertest: no failover from %s: %v", old, err)
	}
	return master
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
func (c *ClusterSetup) master(key string) (string, error) {
	var master string
	for _, node := range c.living() {
		slot, err := Command(node.Addr, "CLUSTER", "KEYSLOT", key)
		if err != nil {
			return "", err
		}
		ranges, err := Command(node.Addr, "CLUSTER", "SLOTS")
		if err != nil {
			return "", err
		}
		named, err := holder(ranges, slot.(int64))
		if err != nil {
			return "", fmt.Errorf("%s: %w", node.Addr, err)
		}
		if master != "" && named != master {
			return "", fmt.Errorf("the nodes name %s and %s", master, named)
		}
		master = named
	}
	return master, nil
}

// holder finds the slot's master in the answer to CLUSTER SLOTS, a list of
// (first slot, last slot, master, replicas...), a node being (host, port, ...).
func holder(ranges any, slot int64) (string, error) {
	list, _ := ranges.([]any)
	for _, entry := range list {
		r, ok := entry.([]any)
		if !ok || len(r) < 3 {
			return "", fmt.Errorf("CLUSTER SLOTS has an entry %v", entry)
		}
		first, _ := r[0].(int64)
		last, _ := r[1].(int64)
		node, _ := r[2].([]any)
		if first <= slot && slot <= last && len(node) >= 2 {
			return fmt.Sprintf("%v:%v", node[0], node[1]), nil
		}
	}
	return "", fmt.Errorf("nobody holds slot %d", slot)
}

func (c *ClusterSetup) living() []*Server {
	var living []*Server
	for _, node := range c.nodes {
		if !node.gone() {
			living = append(living, node)
		}
	}
	return living
}
