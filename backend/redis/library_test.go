package redis_test

import (
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// everyCall makes a call of each kind, for a new key.
func everyCall(t *testing.T, c *counter.Counter) {
	key := name(rand.Int())
	v := try.To(c.Peek(ctx, key, 1, counter.MustLimits("100/d")))(t)
	require.EqualValues(t, 99, v.Remaining)
	v = take(t, c, key, 1, "100/d")
	require.EqualValues(t, 99, v.Remaining)
	require.NoError(t, c.Add(ctx, key, 1))
	require.EqualValues(t, 2, count(t, c, key))
	require.NoError(t, c.Refund(ctx, &v))
	require.EqualValues(t, 1, count(t, c, key))
	require.NoError(t, c.Forget(ctx, key))
	require.Zero(t, count(t, c, key))
}

func librariesOf(t *testing.T, client goredis.Cmdable) (names []string) {
	all := try.To(client.FunctionList(ctx, goredis.FunctionListQuery{}).Result())(t)
	for _, library := range all {
		names = append(names, library.Name)
	}
	slices.Sort(names)
	return names
}

// calls are the numbers of commands that a server has executed.
func calls(t *testing.T, client *goredis.Client, command string) int {
	text := try.To(client.Info(ctx, "commandstats").Result())(t)
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	return try.To(strconv.Atoi(found[1]))(t)
}

func TestFunctions(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), open(t, "redis://"+addr)
	c := newCounter(t, s, counter.Config{})
	everyCall(t, c)
	require.Len(t, librariesOf(t, client), 1)
	require.Regexp(t, `^abacus_[0-9a-f]{16}$`, librariesOf(t, client)[0])
	require.Zero(t, calls(t, client, "evalsha"))
	require.Zero(t, s.Stats().ByScripts)

	// A server that lost its libraries gets the library again.
	for i := range 3 {
		require.NoError(t, client.FunctionFlush(ctx).Err())
		everyCall(t, c)
		require.Len(t, librariesOf(t, client), 1, "round %d", i)
	}
	require.Zero(t, s.Stats().ByScripts)
}

// plant loads a library with a function.
func plant(t *testing.T, client *goredis.Client, name, description string) {
	require.NoError(t, client.FunctionLoad(ctx, "#!lua name="+name+"\nredis.register_function{function_name = '"+name+
		"_take', description = '"+description+"', callback = function() return 1 end}").Err())
}

// A load removes what another version of this package loaded a month ago and more, and
// nothing else: a version that still runs loads its library again, and is then young.
func TestOldLibraries(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	day := func(days int) string { return time.Now().UTC().AddDate(0, 0, -days).Format(time.DateOnly) }
	const old, young, ahead, odd, longer, other = "abacus_000000000000000a", "abacus_000000000000000b", "abacus_000000000000000c",
		"abacus_000000000000000d", "abacus_000000000000000a_of_mine", "mine"
	plant(t, client, old, day(32))
	plant(t, client, young, day(29))
	plant(t, client, ahead, day(-400))
	plant(t, client, odd, "long ago")
	plant(t, client, longer, day(400))
	plant(t, client, other, day(400))
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	everyCall(t, c)
	names := librariesOf(t, client)
	require.Len(t, names, 6)
	require.NotContains(t, names, old)
	require.Subset(t, names, []string{young, ahead, odd, longer, other})

	// Nothing is removed without a load.
	plant(t, client, old, day(32))
	everyCall(t, newCounter(t, open(t, "redis://"+addr), counter.Config{}))
	require.Contains(t, librariesOf(t, client), old)
}

// A restarted server has its libraries with its data.
func TestLibrariesAreSaved(t *testing.T) {
	server := servertest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	c := newCounter(t, open(t, "redis://"+server.Addr), counter.Config{})
	take(t, c, signup, 1, "10/d")
	server.Kill()
	server.Restart()
	require.Len(t, librariesOf(t, raw(t, server.Addr)), 1)
	require.Eventually(t, func() bool {
		v, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
		return err == nil && v.Remaining == 8
	}, patience, time.Millisecond)
}

// A server whose memory is full refuses functions that may write. It is sent a script,
// and denies and peeks as before.
func TestAFullServerDenies(t *testing.T) {
	addr := servertest.Redis(t, "--maxmemory-policy", "noeviction")
	client, s := raw(t, addr), open(t, "redis://"+addr)
	c := newCounter(t, s, counter.Config{})
	require.True(t, take(t, c, signup, 1, "2/d").Allowed)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	require.False(t, take(t, c, signup, 2, "2/d").Allowed)
	require.EqualValues(t, 1, s.Stats().ByScripts)
	require.True(t, try.To(c.Peek(ctx, signup, 1, counter.MustLimits("2/d")))(t).Allowed)
	require.EqualValues(t, 1, count(t, c, signup))
	require.EqualValues(t, 1, s.Stats().ByScripts, "what writes nothing is a function")
	require.ErrorContains(t, try.Err(c.Take(ctx, signup, 1, counter.MustLimits("2/d"))), "OOM")
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	scripts := s.Stats().ByScripts
	require.True(t, take(t, c, signup, 1, "2/d").Allowed)
	require.Equal(t, scripts, s.Stats().ByScripts, "functions are sent again at once")
}

// A server whose memory is full takes hits away: a Refund, a Forget and an Erase need no
// room to speak of.
func TestAFullServerTakesAway(t *testing.T) {
	for _, login := range []string{"functions", "scripts"} {
		t.Run(login, func(t *testing.T) {
			addr := servertest.Redis(t, "--maxmemory-policy", "noeviction")
			client, c := raw(t, addr), newCounter(t, open(t, logins(t, addr)[login]), counter.Config{})
			verdicts := make([]counter.Verdict, 3)
			for i := range verdicts {
				verdicts[i] = take(t, c, name(i), 5, "10/d")
			}
			require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
			require.ErrorContains(t, try.Err(c.Take(ctx, name(0), 1, counter.MustLimits("10/d"))), "OOM")
			require.NoError(t, c.Refund(ctx, &verdicts[0]))
			require.NoError(t, c.Forget(ctx, name(1)))
			require.NoError(t, c.Erase(ctx, name(2)))
			for i := range verdicts {
				require.Zero(t, count(t, c, name(i)), "key %d", i)
			}
			require.ErrorContains(t, try.Err(c.Take(ctx, name(0), 1, counter.MustLimits("10/d"))), "OOM", "what adds is refused")
		})
	}
}

// Users and servers, and how calls are sent to them: by functions with all rights of
// docs/operating.md, which also remove old libraries; otherwise by scripts, refused once.
// With the layout Plain other rights suffice. Without INFO a check cannot see evictions.
func TestRights(t *testing.T) {
	page := try.To(os.ReadFile("../../docs/operating.md"))(t)
	documented := regexp.MustCompile(`(?m)^ACL SETUSER abacus on >password (.*)$`).FindStringSubmatch(string(page))
	require.NotNil(t, documented)
	const scripts = "resetkeys ~{ab:* resetchannels -@all +evalsha +eval +get +set +getrange +setrange +append +strlen +pexpire +pttl +del +unlink +time"
	const plain = "resetkeys ~{ab:* resetchannels -@all +multi +exec +incrby +incr +decrby +pexpire +mget +exists +unlink +watch +unwatch +zadd +zremrangebyrank +zrange +time"
	for what, row := range map[string]struct {
		server    []string
		rights    string
		layout    redis.Layout
		byScripts bool
		libraries int
	}{
		"as documented":         {rights: documented[1], libraries: 1},
		"no command":            {server: []string{"--rename-command", "FCALL", ""}, rights: "allkeys +@all", byScripts: true, libraries: 1},
		"no right to run":       {rights: scripts, byScripts: true, libraries: 1},
		"no right to load":      {rights: scripts + " +fcall", byScripts: true, libraries: 1},
		"no command that loads": {server: []string{"--rename-command", "FUNCTION", ""}, rights: "allkeys +@all", byScripts: true},
		"plain":                 {rights: plain, layout: redis.Plain, libraries: 1},
	} {
		t.Run(what, func(t *testing.T) {
			addr := servertest.Redis(t, row.server...)
			client := raw(t, addr)
			const old = "abacus_0123456789abcdef"
			if row.libraries > 0 {
				plant(t, client, old, "2020-01-01")
			}
			url := user(t, addr, row.rights)
			s := openAs(t, url, row.layout)
			everyCall(t, newCounter(t, s, counter.Config{}))
			require.Equal(t, row.byScripts, s.Stats().ByScripts > 0)
			require.Equal(t, row.byScripts, calls(t, client, "evalsha") > 0)
			if row.libraries > 0 {
				require.Len(t, librariesOf(t, client), row.libraries)
				require.Equal(t, what == "as documented", librariesOf(t, client)[0] != old)
			}
			refused := client.InfoMap(ctx, "stats").Item("Stats", "total_error_replies")
			everyCall(t, newCounter(t, s, counter.Config{}))
			require.Equal(t, refused, client.InfoMap(ctx, "stats").Item("Stats", "total_error_replies"), "refused once")

			user(t, addr, "-info")
			c := newCounter(t, s, counter.Config{})
			err := c.Check(ctx)
			requireFindings(t, err, `^redis: server `+addr+`: the user may not ask for INFO`)
			require.NotErrorIs(t, err, counter.ErrStore)
			require.NotZero(t, c.Stats().Checked)
			user(t, addr, "+info")
			require.NoError(t, c.Check(ctx))
			require.NoError(t, s.Check(ctx))
		})
	}
}
