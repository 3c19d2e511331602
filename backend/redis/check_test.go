package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// requireFindings wants each of the texts in a line of its own, and no other lines.
func requireFindings(t *testing.T, err error, texts ...string) {
	t.Helper()
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
	require.Less(t, st.ClockAhead.Abs(), counter.DefaultSkew)
	require.Zero(t, raw(t, addr).DBSize(ctx).Val())
}

// A server whose clock is not the caller's: the finding names both, and Stats tells how
// far they are apart.
func TestCheckOfAClock(t *testing.T) {
	addr := servertest.Redis(t)
	for shift, text := range map[time.Duration]string{
		2300 * time.Millisecond:  `^redis: server 127\.0\.0\.1:\d+: clock is 2\.\d+s behind this process's, give or take \S+s; Config\.Skew is 100ms$`,
		-2300 * time.Millisecond: `^redis: server 127\.0\.0\.1:\d+: clock is 2\.\d+s ahead of this process's, give or take \S+s; Config\.Skew is 100ms$`,
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

// Servers that cannot be counted on, each with the reason. Several findings come at once.
func TestCheckOfAServerThatFails(t *testing.T) {
	host, port, _ := strings.Cut(servertest.Redis(t), ":")
	replica := servertest.Redis(t, "--replicaof", host+" "+port)
	locked := servertest.Redis(t, "--requirepass", "right")
	for name, row := range map[string]struct {
		url   string
		texts []string
	}{
		"replica": {"redis://" + replica, []string{
			`^redis: server ` + replica + `: cannot be written to: READONLY `,
			`^redis: server ` + replica + `: is a replica of ` + host + `:` + port + `, want a master`}},
		"full": {"redis://" + servertest.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction"), []string{
			`^redis: server 127\.0\.0\.1:\d+: cannot be written to: OOM `}},
		"full, and evicts": {"redis://" + servertest.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "allkeys-lru"), []string{
			`^redis: server 127\.0\.0\.1:\d+: cannot be written to: OOM `,
			`^redis: server 127\.0\.0\.1:\d+: maxmemory-policy is allkeys-lru with a maxmemory of 1 bytes, want noeviction`}},
		"wrong password": {"redis://:secret@" + locked, []string{`^redis: server ` + locked + `: WRONGPASS `}},
		"no password":    {"redis://" + locked, []string{`^redis: server ` + locked + `: NOAUTH `}},
		"nobody":         {"redis://127.0.0.1:1", []string{`^redis: server 127\.0\.0\.1:1: .*connection refused`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, row.url)
			err := newCounter(t, s, counter.Config{}).Check(ctx)
			requireFindings(t, err, row.texts...)
			require.ErrorIs(t, err, counter.ErrStore)
			require.NotContains(t, err.Error(), "secret")
			require.EqualError(t, s.Check(ctx), err.Error())
			require.NotErrorIs(t, s.Check(ctx), counter.ErrStore, "the Counter adds ErrStore")
		})
	}
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

// All masters of a Cluster are asked and written to; a master whose replica took its
// place counts as a restart.
func TestCheckOfACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.Cluster(t)
	s := open(t, "redis://"+cluster.Addrs[0]+"?addr="+cluster.Addrs[1])
	r := backend.CheckRequest{Key: "ab:?check", Skew: time.Second}
	require.NoError(t, s.CheckServers(ctx, &r))
	require.Len(t, r.Servers, 3)
	for _, server := range r.Servers {
		require.Contains(t, cluster.Addrs, server.Name)
		require.Equal(t, "yes", server.Facts["config.cluster-require-full-coverage"])
		require.NoError(t, raw(t, server.Name).ConfigSet(ctx, "maxmemory", "1").Err())
	}
	// Each master refuses, so each was written to.
	requireFindings(t, s.Check(ctx), `cannot be written to: OOM`, `cannot be written to: OOM`, `cannot be written to: OOM`)
	for _, server := range r.Servers {
		require.NoError(t, raw(t, server.Name).ConfigSet(ctx, "maxmemory", "0").Err())
	}
	c := newCounter(t, s, counter.Config{})
	require.NoError(t, c.Check(ctx))
	cluster.FailOver("k")
	require.Eventually(t, func() bool { return c.Check(ctx) == nil && c.Stats().Restarts == 1 }, patience, 10*time.Millisecond)
}

// A user without the right to INFO can count, and is told that evictions are not seen.
// The rights of docs/operating.md suffice for a whole check.
func TestCheckWithFewRights(t *testing.T) {
	addr := servertest.Redis(t)
	rights := func(more ...any) {
		all := []any{"ACL", "SETUSER", "abacus", "on", ">secret", "resetkeys", "~{ab:*", "resetchannels", "-@all"}
		for _, right := range strings.Fields("+fcall +function|load +function|list +function|delete +evalsha +eval +get +set +getrange +setrange +append +strlen +pexpire +pttl +del +unlink +time") {
			all = append(all, right)
		}
		require.NoError(t, raw(t, addr).Do(ctx, append(all, more...)...).Err())
	}
	rights()
	s := open(t, "redis://abacus:secret@"+addr)
	c := newCounter(t, s, counter.Config{})
	err := c.Check(ctx)
	requireFindings(t, err, `^redis: server `+addr+`: the user may not ask for INFO`)
	require.NotErrorIs(t, err, counter.ErrStore)
	require.NotZero(t, c.Stats().Checked)
	rights("+info")
	require.NoError(t, c.Check(ctx))
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
