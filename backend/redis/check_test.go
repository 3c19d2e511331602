package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// requireFindings wants each of the texts in a line of its own, and no other lines.
func requireFindings(t *testing.T, err error, texts ...string) {
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, len(texts), "%v", err)
	for i := range texts {
		require.Regexp(t, texts[i], lines[i])
	}
}

// A healthy server has no findings, and a check leaves nothing behind.
func TestCheck(t *testing.T) {
	addr := servertest.Redis(t)
	s := open(t, "redis://"+addr)
	require.NoError(t, s.Check(ctx))
	c := newCounter(t, s, counter.Config{})
	require.Zero(t, c.Stats().Checked)
	require.NoError(t, c.Check(ctx))
	st := c.Stats()
	require.WithinDuration(t, time.Now(), st.Checked, patience)
	require.Positive(t, st.ClockWithin)
	require.Less(t, st.ClockAhead.Abs(), st.ClockWithin+counter.DefaultSkew)
	require.Zero(t, raw(t, addr).DBSize(ctx).Val())
}

// A server whose clock is not the caller's: the finding names both, and Stats tells how
// far they are apart.
func TestCheckOfAClock(t *testing.T) {
	addr := servertest.Redis(t)
	for shift, text := range map[time.Duration]string{
		2300 * time.Millisecond:  `^redis: server 127\.0\.0\.1:\d+: clock is [1-3]\.\d+s behind this process's, give or take \S+s; Config\.Skew is 100ms$`,
		-2300 * time.Millisecond: `^redis: server 127\.0\.0\.1:\d+: clock is [1-3]\.\d+s ahead of this process's, give or take \S+s; Config\.Skew is 100ms$`,
	} {
		c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return time.Now().Add(shift) }})
		err := c.Check(ctx)
		requireFindings(t, err, text)
		require.ErrorIs(t, err, counter.ErrCondition)
		require.NotErrorIs(t, err, counter.ErrStore)
		st := c.Stats()
		require.InDelta(t, -shift.Seconds(), st.ClockAhead.Seconds(), st.ClockWithin.Seconds()+0.001)
	}
	// Within Skew, there is no finding; half of Skew shows in Stats.
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Skew: 10 * time.Second, Now: func() time.Time { return time.Now().Add(6 * time.Second) }})
	require.NoError(t, c.Check(ctx))
	require.Greater(t, c.Stats().ClockAhead.Abs()-c.Stats().ClockWithin, 5*time.Second)
}

// A server that evicts counts, and hits are counted all the same.
func TestCheckOfAServerThatEvicts(t *testing.T) {
	server := servertest.StartRedis(t, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
	c := newCounter(t, open(t, "redis://"+server.Addr), counter.Config{})
	text := `: maxmemory-policy is allkeys-lru with a maxmemory of 4194304 bytes, want noeviction: evicted hits are forgiven; `
	err := c.Check(ctx)
	requireFindings(t, err, text+`0 keys were evicted`)
	require.ErrorIs(t, err, counter.ErrCondition)
	require.NotErrorIs(t, err, counter.ErrStore)
	require.Zero(t, c.Stats().Evictions)

	client := raw(t, server.Addr)
	for range 40 {
		require.NoError(t, client.Do(ctx, "EVAL", "for i = 1, 100 do redis.call('set', ARGV[1] .. i, string.rep('x', 1000)) end return 1", 0, time.Now().String()).Err())
	}
	require.Zero(t, c.Stats().Evictions, "Stats asks no server")
	requireFindings(t, c.Check(ctx), text+`[1-9]\d* keys were evicted`)
	evicted := c.Stats().Evictions
	require.Positive(t, evicted)
	require.Zero(t, c.Stats().Restarts)

	// With a restart the server begins anew, and the numbers of the Counter go on.
	server.Restart()
	require.Eventually(t, func() bool { return !errors.Is(c.Check(ctx), counter.ErrStore) }, patience, time.Millisecond)
	require.EqualValues(t, 1, c.Stats().Restarts)
	require.Equal(t, evicted, c.Stats().Evictions)

	// No maxmemory, no eviction.
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NoError(t, c.Check(ctx))
}

// A frozen server does not hold a Check beyond the deadline of its context, beyond
// Patience, or beyond IOTimeout.
func TestCheckKeepsItsDeadline(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	s := open(t, "redis://"+server.Addr)
	require.NoError(t, s.Check(ctx))
	server.Pause()
	const short = 200 * time.Millisecond
	for name, check := range map[string]func() error{
		"context": func() error {
			soon, cancel := context.WithTimeout(ctx, short)
			defer cancel()
			return newCounter(t, s, counter.Config{}).Check(soon)
		},
		"patience": func() error { return newCounter(t, s, counter.Config{Patience: short}).Check(ctx) },
	} {
		began := time.Now()
		err := check()
		long.Less(t, time.Since(began), short+2*time.Second, name)
		requireFindings(t, err, `^redis: server `+server.Addr+`: no answer in time: `)
		require.ErrorIs(t, err, counter.ErrStore, name)
	}
	gone, leave := context.WithCancel(ctx)
	time.AfterFunc(short, leave)
	err := newCounter(t, s, counter.Config{}).Check(gone)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, counter.ErrStore)
	server.Resume()
	require.NoError(t, s.Check(ctx))
}

// The guesses of a Store are of keys that were denied.
func TestGuesses(t *testing.T) {
	now := time.Unix(1_772_494_233, 0)
	c := newCounter(t, open(t, "redis://"+servertest.Redis(t)), counter.Config{Now: func() time.Time { return now }})
	require.True(t, take(t, c, signup, 1, "1/m").Allowed)
	require.False(t, take(t, c, signup, 1, "1/m").Allowed)
	require.Zero(t, c.Stats().Guesses)
	now = now.Add(2 * time.Second)
	require.False(t, take(t, c, signup, 1, "1/m").Allowed)
	require.EqualValues(t, 1, c.Stats().Guesses)
	now = now.Add(2 * time.Minute)
	require.True(t, take(t, c, signup, 1, "1/m").Allowed)
	require.EqualValues(t, 2, c.Stats().Guesses)
	require.EqualValues(t, 1, c.Stats().WrongGuesses)
}

// A caller whose clock is ahead by more than Skew is seen by the others.
func TestBucketsAhead(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	c := newCounter(t, s, counter.Config{})
	ahead := newCounter(t, s, counter.Config{Now: func() time.Time { return time.Now().Add(5 * time.Second) }})
	take(t, c, signup, 1, "9/h")
	take(t, c, signup, 1, "9/h")
	require.Zero(t, c.Stats().BucketsAhead)
	take(t, ahead, signup, 1, "9/h")
	require.Zero(t, ahead.Stats().BucketsAhead)
	take(t, c, signup, 1, "9/h")
	require.EqualValues(t, 1, c.Stats().BucketsAhead)
}
