package classic_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/classic/servers"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// failing checks an error of a store: all that the text must contain, and must
// not.
func failing(t *testing.T, k kind, v counter.Verdict, err error) {
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "classic: "+k.name+`: event "signup": redis: 127.0.0.1:`)
	require.NotContains(t, err.Error(), "203.0.113.9")
	require.Equal(t, counter.Verdict{}, v)
}

// A server that is silent, dies and comes back. The deadline of the caller is not the
// store's fault.
func TestRedisFails(t *testing.T) {
	server := servertest.StartRedis(t)
	limiters := map[string]classic.Measured{}
	for _, k := range kinds {
		limiters[k.name] = k.new(t, 10, time.Minute, 10, onRedis(t, server.Addr, classic.Config{Timeout: 200 * time.Millisecond}))
	}
	answers := func(t *testing.T, k kind) { // a busy machine may need more than the timeout, and the server has never heard of the script
		require.Eventually(t, func() bool { _, err := limiters[k.name].Take(ctx, signup, 1); return err == nil }, patience, time.Millisecond)
	}
	fails := func(want string) func(t *testing.T, k kind) {
		return func(t *testing.T, k kind) {
			began := time.Now()
			v, err := limiters[k.name].Take(ctx, signup, 1)
			failing(t, k, v, err)
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, try.Err(limiters[k.name].Bytes(ctx, signup)), counter.ErrStore)
			long.Less(t, time.Since(began), 5*time.Second)
		}
	}
	each(t, answers)
	server.Pause()
	each(t, fails("no answer in time"))
	each(t, func(t *testing.T, k kind) {
		hangUp, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := limiters[k.name].Take(hangUp, signup, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, counter.ErrStore)
	})
	server.Resume()
	server.Kill()
	each(t, fails("redis: 127.0.0.1:"))
	c := goredis.NewClient(&goredis.Options{Addr: server.Addr, Password: "secret", ContextTimeoutEnabled: true, DialerRetries: 1})
	defer c.Close()
	s := try.To(servers.Redis(c, classic.Config{}))(t)
	v, err := kinds[0].new(t, 1, time.Minute, 0, s).Take(ctx, signup, 1)
	failing(t, kinds[0], v, err)
	require.NotContains(t, err.Error(), "secret")
	server.Restart()
	each(t, answers)
}

// A hit whose answer is lost is an error, and is counted once: it is never sent
// again, whatever the client does with other commands.
func TestNoHitIsSentTwice(t *testing.T) {
	addr := servertest.Redis(t)
	near := client(t, addr)
	each(t, func(t *testing.T, k kind) {
		proxy := servertest.NewProxy(t, addr, 0)
		far := goredis.NewClient(&goredis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, MaxRetries: 5, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond})
		defer far.Close()
		c := clockAt(start)
		s := try.To(servers.Redis(far, classic.Config{Now: c.now, Grace: grace, Timeout: patience}))(t)
		l := k.new(t, 100, time.Hour, 100, s)
		take(t, l, signup, 1)
		counted := counts(t, near, k)
		if k.name == "leaky-queue" {
			c.add(time.Minute) // there is a free slot again
		}

		// A command that only reads may be sent again, so tiers lose their second
		// answer.
		trips := proxy.Trips
		failed := make(chan error)
		if k.name == "textbook-tiers" {
			require.NoError(t, near.Do(ctx, "client", "pause", 60_000, "write").Err())
		} else {
			proxy.DropReplies(true)
		}
		before := trips()
		go func() { _, err := l.Take(ctx, signup, 1); failed <- err }()
		if k.name == "textbook-tiers" {
			require.Eventually(t, func() bool { return trips() == before+2 }, patience, time.Millisecond)
			proxy.DropReplies(true)
			require.NoError(t, near.Do(ctx, "client", "unpause").Err())
		}
		require.Eventually(t, func() bool { return counts(t, near, k) != counted }, patience, time.Millisecond)
		proxy.DropReplies(false) // so that a second try would be answered
		proxy.Cut()
		require.ErrorIs(t, <-failed, counter.ErrStore)
		once := counts(t, near, k)
		switch k.name { // what has counted once more, and no more
		case "fixed-window", "textbook-tiers":
			require.Equal(t, strings.ReplaceAll(counted, "=1;", "=2;"), once)
		case "sliding-log":
			require.Equal(t, counted+strconv.FormatInt(start.UnixMicro(), 10)+":2;", once)
		}
	})
}

// counts are all values of a kind on the server.
func counts(t *testing.T, c *goredis.Client, k kind) string {
	var all strings.Builder
	keys := try.To(c.Keys(ctx, "cl:"+k.name+":*").Result())(t)
	slices.Sort(keys)
	for _, key := range keys {
		if k.name == "sliding-log" {
			fmt.Fprintf(&all, "%s;", strings.Join(c.ZRange(ctx, key, 0, -1).Val(), ";"))
			continue
		}
		fmt.Fprintf(&all, "%s=%s;", key, c.Get(ctx, key).Val())
	}
	return all.String()
}

// A foreign value under a limiter's name is an error, not a zero.
func TestForeignValues(t *testing.T) {
	addr := servertest.Redis(t)
	each(t, func(t *testing.T, k kind) {
		c, raw := clockAt(start), client(t, addr)
		l := k.new(t, 10, time.Minute, 10, onRedis(t, addr, classic.Config{Now: c.now}))
		for what, write := range map[string]func(key string) error{
			"text":   func(key string) error { return raw.Set(ctx, key, "what 1 is", 0).Err() },
			"float":  func(key string) error { return raw.Set(ctx, key, "1.5 1e3 0x1", 0).Err() },
			"number": func(key string) error { return raw.Set(ctx, key, "1 2 3 4 5", 0).Err() },
			"hash":   func(key string) error { return raw.HSet(ctx, key, "a", "b").Err() },
		} {
			require.NoError(t, raw.FlushDB(ctx).Err())
			for _, key := range l.Keys(signup) {
				require.NoError(t, write(key))
			}
			before := raw.DBSize(ctx).Val()
			v, err := l.Take(ctx, signup, 1)
			failing(t, k, v, err)
			require.Equal(t, before, raw.DBSize(ctx).Val(), what)
		}
	})
}

// A server that repeats its arguments in an error does not tell the feature, with
// which an error would be a leak.
func TestErrorsDoNotTellTheFeature(t *testing.T) {
	addr := servertest.Redis(t, "--rename-command", "EVALSHA", "", "--rename-command", "MGET", "")
	each(t, func(t *testing.T, k kind) {
		l := k.new(t, 10, time.Minute, 10, onRedis(t, addr, classic.Config{}))
		long := signup
		long.Feature += strings.Repeat("x", 120) // of which the server repeats a part
		for _, key := range []counter.Key{signup, long} {
			v, err := l.Take(ctx, key, 1)
			failing(t, k, v, err)
			require.ErrorContains(t, err, "unknown command")
		}
	})
}

// Every name has a time to live, no longer than it may matter, is among Keys, and
// carries the key as its hash tag.
func TestWhatIsStored(t *testing.T) {
	addr := servertest.Redis(t)
	raw := client(t, addr)
	each(t, func(t *testing.T, k kind) {
		require.NoError(t, raw.FlushDB(ctx).Err())
		c := clockAt(start)
		l := k.new(t, 10, time.Minute, 10, onRedis(t, addr, classic.Config{Now: c.now, Prefix: "mine"}))
		stored := map[string]bool{}
		for range 300 {
			take(t, l, signup, 2)
			keys := try.To(raw.Keys(ctx, "*").Result())(t)
			for _, key := range keys {
				if !stored[key] {
					require.Contains(t, l.Keys(signup), key)
				}
				stored[key] = true
			}
			c.add(997 * time.Millisecond)
		}
		for key := range stored {
			require.Regexp(t, `^mine:`+k.name+`:1m\{signup:ip:203\.0\.113\.9\}[smh]?\d*$`, key)
			life := raw.PTTL(ctx, key).Val()
			longest := 2*time.Minute + time.Second
			if strings.Contains(key, "}h") {
				longest = time.Hour + time.Minute + time.Second
			}
			require.Greater(t, life, 30*time.Second, key)
			require.LessOrEqual(t, life, longest, key)
		}
		if k.name == "fixed-slots" {
			require.Len(t, stored, 3)
		}
		require.Nil(t, l.Keys(counter.Key{}))
		require.Greater(t, held(t, l, signup), int64(50))
		require.Zero(t, held(t, l, name(1)))
	})
}

// The cost by a limiter is the cost by the server.
func TestCost(t *testing.T) {
	one := classic.Cost{Calls: 1, Trips: 1, Reads: 1, Writes: 1}
	want := map[string][2]classic.Cost{ // of an admitted call on a known key, and of a denied call
		"":               {one, {1, 1, 1, 0}},
		"sliding-log":    {{1, 1, 3, 3}, {1, 1, 4, 0}},
		"textbook-tiers": {{1, 2, 142, 6}, {1, 1, 142, 0}},
		"request-decay":  {one, one}, // a denial too moves the instant
	}
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, 5*time.Millisecond)
	raw := client(t, addr)
	each(t, func(t *testing.T, k kind) {
		c := clockAt(time.Date(2013, 3, 2, 23, 30, 33, 0, time.UTC))
		l := k.new(t, 2, 24*time.Hour, 2, onRedis(t, proxy.Addr, classic.Config{Now: c.now, Grace: grace}))
		require.True(t, take(t, l, signup, 1).Allowed)
		if k.name == "leaky-queue" {
			c.add(12 * time.Hour)
		}
		for i, allowed := range []bool{true, false} {
			before := l.Cost()
			proxy.Reset()
			require.NoError(t, raw.ConfigResetStat(ctx).Err())
			require.Equal(t, allowed, take(t, l, signup, 1).Allowed)
			got := since(l, before)
			costs, is := want[k.name]
			if !is {
				costs = want[""]
			}
			require.Equal(t, costs[i], got)
			require.EqualValues(t, proxy.Trips(), got.Trips)
			reads, writes := commands(t, raw)
			if k.name == "textbook-tiers" {
				reads *= 142 // one MGET
			}
			require.Equal(t, got.Reads, reads)
			require.Equal(t, got.Writes, writes)
		}
		// In memory a state is 1 read, and 1 write.
		here := k.new(t, 2, 24*time.Hour, 2, memory(t, classic.Config{Now: c.now}))
		take(t, here, signup, 1)
		take(t, here, signup, 3)
		cost := classic.Cost{Calls: 2, Reads: 2, Writes: 1}
		switch k.name {
		case "textbook-tiers":
			cost.Reads, cost.Writes = 2*142, 3
		case "request-decay":
			cost.Writes = 2
		}
		require.Equal(t, cost, here.Cost())
	})
}

var callsOf = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`)

// commands counts the reading and the writing commands of a server.
func commands(t *testing.T, c *goredis.Client) (reads, writes int64) {
	info := try.To(c.Info(ctx, "commandstats").Result())(t)
	for _, m := range callsOf.FindAllStringSubmatch(info, -1) {
		n := try.To(strconv.ParseInt(m[2], 10, 64))(t)
		switch m[1] {
		case "get", "mget", "zcount", "zcard", "zrange":
			reads += n
		case "set", "incrby", "pexpire", "zadd", "zremrangebyscore":
			writes += n
		case "evalsha", "info", "config", "ping", "client", "hello":
		default:
			require.Failf(t, "an unexpected command", "%s", m[1])
		}
	}
	return reads, writes
}

// All names of a key are in the same hash slot, for pipelines and scripts.
func TestCluster(t *testing.T) {
	addr := servertest.Redis(t, "--cluster-enabled", "yes")
	node := client(t, addr)
	require.NoError(t, node.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_state:ok")
	}, patience, time.Millisecond)
	all := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true})
	defer all.Close()
	s := try.To(servers.Redis(all, classic.Config{Timeout: patience}))(t)
	require.Equal(t, "redis: cluster "+addr, s.String())
	each(t, func(t *testing.T, k kind) {
		l := k.new(t, 1, time.Minute, 1, s)
		for i := range 5 {
			require.True(t, take(t, l, name(i), 1).Allowed)
			require.False(t, take(t, l, name(i), 1).Allowed)
			require.Positive(t, held(t, l, name(i)))
		}
	})
}
