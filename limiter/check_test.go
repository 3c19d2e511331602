package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/limiter"
)

// A limiter is ready while its store is, and says so within DecideWithin.
func TestCheck(t *testing.T) {
	rules := []limiter.Rule{{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h")}}
	l, err := limiter.New(newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: rules})
	require.NoError(t, err)
	require.NoError(t, l.Check(t.Context()))

	server := servertest.StartRedis(t)
	store, err := redis.Open("redis://"+server.Addr, redis.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	const within = 300 * time.Millisecond
	c, err := counter.New(store, counter.Config{Patience: 30 * time.Second})
	require.NoError(t, err)
	l, err = limiter.New(c, limiter.Config{Rules: rules, DecideWithin: within})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.Check(t.Context()) == nil }, 30*time.Second, time.Millisecond)
	require.NotZero(t, c.Stats().Checked)
	server.Pause()
	began := time.Now()
	err = l.Check(t.Context())
	long.Less(t, time.Since(began), within+5*time.Second)
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "redis: server "+server.Addr+": no answer in time")
}
