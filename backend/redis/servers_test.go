package redis_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func TestScriptsThatTheServerForgot(t *testing.T) {
	addr := servertest.Redis(t)
	c := newCounter(t, open(t, "redis://"+scriptsUser(t, addr)+"@"+addr), counter.Config{})
	for i := range int64(3) {
		require.NoError(t, raw(t, addr).ScriptFlush(ctx).Err())
		require.Equal(t, 9-2*i, take(t, c, signup, 1, "10/d").Remaining)
		require.NoError(t, raw(t, addr).ScriptFlush(ctx).Err())
		require.NoError(t, c.Add(ctx, signup, 1))
	}
}

// A restart loses the counts, unnoticed by the store, and nothing else: the
// connections that broke meanwhile fail no call.
func TestRestart(t *testing.T) {
	server := servertest.StartRedis(t)
	c := newCounter(t, open(t, "redis://"+server.Addr), counter.Config{})
	for range 3 {
		// The failed dial is remembered for a moment.
		var v counter.Verdict
		require.Eventually(t, func() (ok bool) {
			var err error
			v, err = c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
			return err == nil
		}, time.Second, time.Millisecond)
		require.EqualValues(t, 9, v.Remaining)
		server.Kill()
		_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
		require.ErrorIs(t, err, backend.ErrStore)
		server.Restart()
	}
}

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

func TestCluster(t *testing.T) {
	t.Parallel()
	url, cluster := clusterURL(t)
	s := open(t, url)
	c := newCounter(t, s, counter.Config{})

	// Many keys are on all masters; several at once are taken in turn.
	for i := range 50 {
		take(t, c, name(i), 1, "1/d")
		v, err := c.TakeAll(ctx,
			counter.Ask{Key: name(100 + i), N: 1, Limits: counter.MustLimits("1/d")},
			counter.Ask{Key: name(i), N: 1, Limits: counter.MustLimits("1/d")})
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Zero(t, count(t, c, name(100+i)))
		require.EqualValues(t, 1, count(t, c, name(i)))
	}
	servers := map[string]bool{}
	for i := range 50 {
		servers[s.(backend.Placer).ServerOf(fmt.Sprint(i))] = true
	}
	require.Len(t, servers, 3)
	require.NotContains(t, servers, "")
	demand := func(key string) backend.TakeKey { return backend.TakeKey{Key: []byte(key)} }
	require.True(t, s.Together([]backend.TakeKey{demand("foo"), demand("foo")}))
	require.False(t, s.Together([]backend.TakeKey{demand("foo"), demand("bar")}))

	key := name(7)
	cluster.FailOver("some key") // a master of three
	require.Eventually(t, func() bool {
		for i := range 50 {
			if n, err := c.Count(ctx, name(i), 24*time.Hour); err != nil || n.High != 1 {
				return false
			}
		}
		v, err := c.Take(ctx, key, 1, counter.MustLimits("1/d"))
		return err == nil && !v.Allowed
	}, patience, 10*time.Millisecond)
}

// slot agrees with the specification's own example, and with a server.
func TestTogetherKnowsTheSlots(t *testing.T) {
	client := raw(t, servertest.Redis(t, "--cluster-enabled", "yes"))
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{client.Options().Addr}, ContextTimeoutEnabled: true})
	defer cluster.Close()
	store, err := redis.New(cluster, redis.Config{})
	require.NoError(t, err)
	s := store.(sums)
	bySlot := map[int64]string{}
	together := 0
	for range 2000 {
		key := fmt.Sprint(rand.Uint64())
		slot, err := client.ClusterKeySlot(ctx, "{"+key+"}A").Result()
		require.NoError(t, err)
		if other, met := bySlot[slot]; met {
			require.True(t, s.Together([]backend.TakeKey{{Key: []byte(key)}, {Key: []byte(other)}}), "%s and %s", key, other)
			together++
		}
		require.Equal(t, slot == 12739, s.Together([]backend.TakeKey{{Key: []byte(key)}, {Key: []byte("123456789")}}))
		bySlot[slot] = key
	}
	require.Positive(t, together)
}
