package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinel := servertest.Sentinel(t)
	url := "redis://" + sentinel.Addrs[0] + "/0?master_name=" + sentinel.Name
	for _, addr := range sentinel.Addrs[1:] {
		url += "&addr=" + addr
	}
	c := newCounter(t, open(t, url), counter.Config{})
	require.EqualValues(t, 9, take(t, c, signup, 1, "10/d").Remaining)
	sentinel.FailOver()
	var v counter.Verdict
	require.Eventually(t, func() (ok bool) {
		var err error
		v, err = c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
		if err != nil {
			require.ErrorIs(t, err, backend.ErrStore)
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	// A Take whose connection broke may have landed.
	require.Less(t, v.Remaining, int64(9))
	require.EqualValues(t, v.Remaining, 10-count(t, c, signup))
}

// Many keys are on all masters of a Cluster, each of which has a library and is checked,
// and several keys at once are taken in turn. After a failover the keys count on; a master
// whose replica took its place counts as a restart.
func TestCluster(t *testing.T) {
	t.Parallel()
	url, cluster := clusterURL(t)
	s := open(t, url)
	c := newCounter(t, s, counter.Config{})
	r := backend.CheckRequest{Key: "ab:?check", Skew: time.Second}
	require.NoError(t, s.CheckServers(ctx, &r))
	require.Len(t, r.Servers, 3)
	eachMaster := func(setting string) {
		for _, server := range r.Servers {
			require.Contains(t, cluster.Addrs, server.Name)
			require.Equal(t, "yes", server.Facts["config.cluster-require-full-coverage"])
			require.NoError(t, raw(t, server.Name).ConfigSet(ctx, "maxmemory", setting).Err())
		}
	}
	eachMaster("1")
	// Each master refuses, so each was written to.
	requireFindings(t, s.Check(ctx), `cannot be written to: OOM`, `cannot be written to: OOM`, `cannot be written to: OOM`)
	eachMaster("0")
	require.NoError(t, c.Check(ctx))
	scripts := s.Stats().ByScripts // of servers that refused

	for round := range 2 {
		for i := range 50 {
			key, other := name(100*round+i), name(100*round+50+i)
			take(t, c, key, 1, "1/d")
			v := try.To(c.TakeAll(ctx, counter.Ask{Key: other, N: 1, Limits: counter.MustLimits("1/d")}, counter.Ask{Key: key, N: 1, Limits: counter.MustLimits("1/d")}))(t)
			require.False(t, v.Allowed)
			require.Zero(t, count(t, c, other))
			require.EqualValues(t, 1, count(t, c, key))
		}
		for _, server := range r.Servers {
			require.Len(t, librariesOf(t, raw(t, server.Name)), 1)
			require.NoError(t, raw(t, server.Name).FunctionFlush(ctx).Err())
		}
	}
	require.Equal(t, scripts, s.Stats().ByScripts)
	require.NoError(t, c.Forget(ctx, name(100)))
	require.Zero(t, count(t, c, name(100)))
	servers := map[string]bool{}
	for i := range 50 {
		servers[s.(backend.Placer).ServerOf(fmt.Sprint(i))] = true
	}
	require.Len(t, servers, 3)
	require.NotContains(t, servers, "")
	together := func(keys ...string) bool {
		var all []backend.TakeKey
		for _, key := range keys {
			all = append(all, backend.TakeKey{Key: []byte(key)})
		}
		return s.Together(all)
	}
	require.True(t, together("foo", "foo"))
	require.False(t, together("foo", "bar"))

	cluster.FailOver("some key") // a master of three
	require.Eventually(t, func() bool {
		for i := range 50 {
			if n, err := c.Count(ctx, name(i), day); err != nil || n.High != 1 {
				return false
			}
		}
		v, err := c.Take(ctx, name(7), 1, counter.MustLimits("1/d"))
		return err == nil && !v.Allowed
	}, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return c.Check(ctx) == nil && c.Stats().Restarts == 1 }, patience, 10*time.Millisecond)
}
