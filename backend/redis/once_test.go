package redis_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// The client of a Cluster repeats failed commands in a loop of its own, beside the
// loop of the client of each node.
func TestNoHitIsSentTwiceInACluster(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t, "--cluster-enabled", "yes")
	node := raw(t, addr)
	require.NoError(t, node.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_state:ok")
	}, patience, time.Millisecond)
	proxy := servertest.NewProxy(t, addr, 0)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: []string{addr}, ContextTimeoutEnabled: true,
		MaxRedirects: 8, MaxRetries: 8, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
		ReadTimeout: 100 * time.Millisecond,
		// A node names its own address, not the proxy's.
		Dialer: func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", proxy.Addr) },
	})
	defer client.Close()
	s, err := redis.New(client, redis.Config{IOTimeout: patience})
	require.NoError(t, err)
	c := newCounter(t, s, counter.Config{Patience: patience})
	near := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	calls := []func() error{
		func() error { _, err := c.Take(ctx, signup, 1, counter.MustLimits("1000/d")); return err },
		func() error { return c.Add(ctx, signup, 1) },
	}
	lost := 0
	for i := range 6 {
		call := calls[i%2]
		// The server knows the script, the client the slots and the way.
		require.Eventually(t, func() bool { return call() == nil }, patience, time.Millisecond)
		before := count(t, near, signup)
		proxy.DropReplies(true)
		done := make(chan error)
		go func() { done <- call() }()
		require.Eventually(t, func() bool { return count(t, near, signup) > before }, patience, time.Millisecond)
		proxy.DropReplies(false) // a second try would be answered
		if <-done != nil {
			lost++
		}
		require.EqualValues(t, 1, count(t, near, signup)-before)
	}
	require.Positive(t, lost)
}
