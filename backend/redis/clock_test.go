package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func TestClock(t *testing.T) {
	server := servertest.StartRedis(t)
	client := raw(t, server.Addr)
	clock, err := redis.Clock(ctx, client)
	require.NoError(t, err)
	for range 20 {
		before := client.Time(ctx).Val()
		now := clock.Now()
		after := client.Time(ctx).Val()
		require.False(t, now.Before(before.Add(-clock.Error()-time.Millisecond)), "%s is before %s", now, before)
		require.False(t, now.After(after.Add(clock.Error()+time.Millisecond)), "%s is after %s", now, after)
	}
	c := newCounter(t, open(t, "redis://"+server.Addr), counter.Config{Now: clock.Now})
	require.True(t, take(t, c, signup, 1, "1/d").Allowed)
	require.False(t, take(t, c, signup, 1, "1/d").Allowed)

	// A server that has gone leaves the clock running.
	server.Kill()
	first := clock.Now()
	require.Eventually(t, func() bool { return clock.Now().After(first) }, patience, time.Millisecond)
	_, err = redis.Clock(ctx, client)
	require.ErrorContains(t, err, "redis: the server's clock")
}

// Two clocks are no further apart than the sum of the errors, and neither goes back.
func TestClocksOfTwoProcesses(t *testing.T) {
	addr := servertest.Redis(t)
	var clocks []*redis.ServerClock
	for range 4 {
		clock, err := redis.Clock(ctx, raw(t, addr))
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
	clock, err := redis.Clock(ctx, raw(t, servertest.NewProxy(t, addr, 20*time.Millisecond).Addr))
	require.NoError(t, err)
	require.GreaterOrEqual(t, clock.Error(), 20*time.Millisecond)
	near := raw(t, addr)
	before := near.Time(ctx).Val()
	now := clock.Now()
	require.InDelta(t, 0, now.Sub(before).Seconds(), (clock.Error() + time.Second).Seconds())
}
