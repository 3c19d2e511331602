package servertest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	s := Sentinel(t)
	require.Len(t, s.Addrs, 3)
	old := s.Master()
	master := s.FailOver()
	require.NotEqual(t, old, master)
	require.Equal(t, master, s.Master())
	_, err := Command(master, "SET", "key", "value")
	require.NoError(t, err, "the new master takes writes")

	require.NotEqual(t, master, s.FailOver(), "and another time")
}

// A handshake of two nodes that was lost on a busy machine is made up for.
func TestClusterJoins(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	for _, node := range c.nodes {
		if hasRole(node.Addr, "slave") == nil {
			_, err := Command(node.Addr, "CLUSTER", "RESET")
			require.NoError(t, err)
			break
		}
	}
	require.Error(t, c.settled(), "a node knows itself alone")
	require.NoError(t, await(c.joined))
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	require.Len(t, c.Addrs, 6)
	const key = "key"
	old := c.Master(key)
	_, err := Command(old, "SET", key, "value")
	require.NoError(t, err)
	masters := map[string]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		masters[c.Master(key)] = true
	}
	require.Len(t, masters, 3)

	master := c.FailOver(key)
	require.NotEqual(t, old, master)
	require.Equal(t, master, c.Master(key))
	value, err := Command(master, "GET", key)
	require.NoError(t, err)
	require.Equal(t, "value", value)

	c.Server(old).Restart()
	require.NoError(t, await(func() error { return hasRole(old, "slave") }), "the old one has come back as a replica")
	require.NoError(t, await(c.settled))
	require.Equal(t, old, c.FailOver(key), "and takes over in its turn")
}
