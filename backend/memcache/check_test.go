package memcache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// checked is a store on servers, and a Counter with much patience.
func checked(t *testing.T, cfg counter.Config, servers ...string) (*memcache.Store, *counter.Counter) {
	t.Helper()
	s := newStore(t, memcache.Config{}, servers...)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return s, newCounter(t, s, cfg)
}

// requireFindings wants each of the texts in a line of its own, and no other lines.
func requireFindings(t *testing.T, err error, texts ...string) {
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, len(texts), "%v", err)
	for i := range texts {
		require.Regexp(t, texts[i], lines[i])
	}
}

// Healthy servers have no findings; each was written to, and keeps nothing.
func TestCheck(t *testing.T) {
	addrs := []string{servertest.Memcached(t), servertest.Memcached(t), servertest.Memcached(t)}
	s, c := checked(t, counter.Config{}, addrs...)
	checks := fit(t, s.Check)
	require.Zero(t, c.Stats().Checked)
	checks += fit(t, c.Check)
	st := c.Stats()
	require.WithinDuration(t, time.Now(), st.Checked, patience)
	require.GreaterOrEqual(t, st.ClockWithin, time.Second)
	require.LessOrEqual(t, st.ClockAhead.Abs(), st.ClockWithin)
	for _, addr := range addrs {
		require.Equal(t, fmt.Sprint(checks), stat(t, addr, "total_items"))
		require.Equal(t, "0", stat(t, addr, "curr_items"))
	}
}

// The clock of memcached is known to one and a half seconds.
func TestCheckOfAClock(t *testing.T) {
	addr := servertest.Memcached(t)
	_, c := checked(t, counter.Config{Now: func() time.Time { return time.Now().Add(-time.Minute) }}, addr)
	err := c.Check(t.Context())
	requireFindings(t, err, `^memcache: server `+addr+`: clock is (5[89]|1m[01])\S*s ahead of this process's, give or take [1-9]\S*s; Config\.Skew is 100ms$`)
	require.ErrorIs(t, err, counter.ErrCondition)
	require.NotErrorIs(t, err, counter.ErrStore)
	require.InDelta(t, 60, c.Stats().ClockAhead.Seconds(), c.Stats().ClockWithin.Seconds()+0.001)
}

// Of several servers each has its findings: a server that is gone, a server that
// is full and refuses, and a server that has evicted.
func TestCheckOfServersThatFail(t *testing.T) {
	t.Parallel()
	gone := servertest.StartMemcached(t)
	gone.Kill()
	full, evicts, well := servertest.Memcached(t, "-m", "2", "-M"), servertest.Memcached(t, "-m", "2"), servertest.Memcached(t)
	s, c := checked(t, counter.Config{}, well, full, evicts)
	fit(t, c.Check)
	for _, addr := range []string{full, evicts} {
		client := rawClient(addr)
		for i := range 60_000 { // of the size of the items of a Check
			err := client.Set(&gomemcache.Item{Key: fmt.Sprintf("another-key-of-somebody-%d", i), Value: []byte("1")})
			require.True(t, err == nil || strings.Contains(err.Error(), "out of memory"), "%v", err)
			if err != nil || i%1000 == 0 && stat(t, addr, "evictions") != "0" {
				break
			}
		}
		require.NoError(t, client.Close())
	}
	require.Zero(t, c.Stats().Evictions, "Stats asks no server")
	err := c.Check(t.Context())
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorIs(t, err, counter.ErrCondition)
	require.InDelta(t, number(t, stat(t, evicts, "evictions")), c.Stats().Evictions, 1, "the addition of the Check itself evicts")
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 2, "%v", err)
	require.Regexp(t, `memcache: server `+full+`: cannot be written to: ma bucket .*: SERVER_ERROR [Oo]ut of memory`, err.Error())
	require.Regexp(t, `memcache: server `+evicts+`: has evicted [1-9]\d* items since its start, want none`, err.Error())

	_, c = checked(t, counter.Config{}, well, gone.Addr)
	err = c.Check(t.Context())
	requireFindings(t, err, `^memcache: server `+gone.Addr+`: dial: .*connection refused`)
	require.ErrorIs(t, err, counter.ErrStore)
	require.NotZero(t, c.Stats().Checked, "the other server has answered")

	_, c = checked(t, counter.Config{}, servertest.Redis(t))
	requireFindings(t, c.Check(t.Context()), `^memcache: server .*: stats: unexpected answer "-ERR`)
	require.NoError(t, s.Close())
	requireFindings(t, s.Check(t.Context()), `^memcache: the store is closed`)
}

// A restart is seen by the next Check, once.
func TestCheckSeesARestart(t *testing.T) {
	server := servertest.StartMemcached(t)
	_, c := checked(t, counter.Config{}, server.Addr)
	fit(t, c.Check)
	fit(t, c.Check)
	require.Zero(t, c.Stats().Restarts)
	server.Restart()
	require.Eventually(t, func() bool { return c.Check(t.Context()) == nil }, patience, time.Millisecond)
	fit(t, c.Check)
	require.EqualValues(t, 1, c.Stats().Restarts)
}

// fit waits for a Check without a finding: a server on a busy machine reads its clock late,
// and seems behind for a moment. The result is the number of Checks.
func fit(t *testing.T, check func(context.Context) error) int {
	t.Helper()
	err, checks := check(t.Context()), 1
	for ; checks < 50 && errors.Is(err, counter.ErrCondition); checks++ {
		time.Sleep(100 * time.Millisecond)
		err = check(t.Context())
	}
	require.NoError(t, err)
	return checks
}

// A frozen server does not hold a Check beyond the deadline of its context, or
// beyond Patience.
func TestCheckKeepsItsDeadline(t *testing.T) {
	server := servertest.StartMemcached(t)
	const short = 200 * time.Millisecond
	s, c := checked(t, counter.Config{}, server.Addr)
	_, impatient := checked(t, counter.Config{Patience: short}, server.Addr)
	fit(t, c.Check)
	server.Pause()
	for name, check := range map[string]func() error{
		"context": func() error {
			soon, cancel := context.WithTimeout(t.Context(), short)
			defer cancel()
			return c.Check(soon)
		},
		"patience": func() error { return impatient.Check(t.Context()) },
	} {
		began := time.Now()
		err := check()
		long.Less(t, time.Since(began), short+2*time.Second, name)
		requireFindings(t, err, `^memcache: server `+server.Addr+`: `)
		require.ErrorIs(t, err, counter.ErrStore, name)
	}
	gone, leave := context.WithCancel(t.Context())
	time.AfterFunc(short, leave)
	err := c.Check(gone)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, counter.ErrStore)
	server.Resume()
	fit(t, s.Check)
}

// A caller whose clock is ahead by more than Skew is seen by those who look.
func TestBucketsAhead(t *testing.T) {
	addr := servertest.Memcached(t)
	now := time.Unix(1_772_494_233, 0)
	at := func(lead time.Duration) counter.Config {
		return counter.Config{Settle: time.Minute, Now: func() time.Time { return now.Add(lead) }}
	}
	limits := counter.MustLimits("9/h")
	for lead, seen := range map[time.Duration]int64{
		0: 0, 50 * time.Millisecond: 0, 1500 * time.Millisecond: 1, time.Minute: 1, time.Hour: 1,
		20 * time.Second: 0, // neither in the next second nor in the next minute
	} {
		key := counter.Key{Event: "signup", Feature: lead.String()}
		_, ahead := checked(t, at(lead), addr)
		_, c := checked(t, at(0), addr)
		require.NoError(t, ahead.Add(t.Context(), key, 1))
		try.To(c.Peek(t.Context(), key, 1, limits))(t)
		require.Equal(t, seen, c.Stats().BucketsAhead, "%s ahead", lead)
	}
}

// A proxy that tells no stats, or an odd one, is no reason to say that hits cannot
// be counted.
func TestCheckThroughAProxyWithoutStats(t *testing.T) {
	for _, answer := range []string{"ERROR\r\n", "STAT version 0.5\r\nEND\r\n", ""} {
		proxy := relay(t, servertest.Memcached(t), map[string]string{"stats": answer, "stats settings": answer})
		_, c := checked(t, counter.Config{}, proxy)
		v := try.To(c.Take(t.Context(), counter.Key{Event: "e", Feature: "f"}, 1, counter.MustLimits("1/d")))(t)
		require.True(t, v.Allowed)
		err := c.Check(t.Context())
		require.ErrorIs(t, err, backend.ErrCondition, "%q", answer)
		require.NotErrorIs(t, err, counter.ErrStore, "%q", answer)
	}
}
