package serverclock

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// patience is more than any answer on a busy machine takes.
const patience = 20 * time.Second

var ctx = context.Background()

// client connects to a server until the test ends.
func client(t *testing.T, addr string) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestClock(t *testing.T) {
	server := servertest.StartRedis(t)
	client := client(t, server.Addr)
	clock, err := New(ctx, client)
	require.NoError(t, err)
	for range 20 {
		before := client.Time(ctx).Val()
		now := clock.Now()
		after := client.Time(ctx).Val()
		require.False(t, now.Before(before.Add(-clock.Error()-time.Millisecond)), "%s is before %s", now, before)
		require.False(t, now.After(after.Add(clock.Error()+time.Millisecond)), "%s is after %s", now, after)
	}
	store, err := redis.New(client, redis.Config{IOTimeout: patience})
	require.NoError(t, err)
	c, err := counter.New(store, counter.Config{Now: clock.Now, Skew: 2*clock.Error() + time.Millisecond, Patience: patience})
	require.NoError(t, err)
	for _, allowed := range []bool{true, false} {
		v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("1/d"))
		require.NoError(t, err)
		require.Equal(t, allowed, v.Allowed)
	}

	// A server that has gone leaves the clock running.
	server.Kill()
	first := clock.Now()
	require.Eventually(t, func() bool { return clock.Now().After(first) }, patience, time.Millisecond)
	_, err = New(ctx, client)
	require.ErrorContains(t, err, "serverclock: ")
}

// Two clocks are no further apart than the sum of the errors, and neither goes back.
func TestClocksOfTwoProcesses(t *testing.T) {
	addr := servertest.Redis(t)
	var clocks []*Clock
	for range 4 {
		clock, err := New(ctx, client(t, addr))
		require.NoError(t, err)
		clocks = append(clocks, clock)
	}
	last := make([]time.Time, len(clocks))
	for range 2000 {
		for i, c := range clocks {
			now := c.Now()
			require.False(t, now.Before(last[i]))
			last[i] = now
		}
		before, other := clocks[0].Now(), clocks[1].Now()
		after := clocks[0].Now()
		slack := clocks[0].Error() + clocks[1].Error()
		require.False(t, other.Before(before.Add(-slack)) || other.After(after.Add(slack)), "%s is not from %s to %s, give or take %s", other, before, after, slack)
	}
	t.Logf("error %v", clocks[0].Error())
}

// Through a slow link the clock is wrong by half the trip at most, and says so.
func TestClockFarAway(t *testing.T) {
	addr := servertest.Redis(t)
	clock, err := New(ctx, client(t, servertest.NewProxy(t, addr, 20*time.Millisecond).Addr))
	require.NoError(t, err)
	require.GreaterOrEqual(t, clock.Error(), 20*time.Millisecond)
	near := client(t, addr)
	before := near.Time(ctx).Val()
	now := clock.Now()
	require.InDelta(t, 0, now.Sub(before).Seconds(), (clock.Error() + time.Second).Seconds())
}
