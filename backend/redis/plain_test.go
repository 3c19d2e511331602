package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func openPlain(t testing.TB, url string) redis.Store {
	t.Helper()
	s, err := redis.Open(url, redis.Config{Layout: redis.Plain, IOTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// limited makes a user with rules, and returns the user's URL.
func limited(t testing.TB, addr string, rules ...any) string {
	t.Helper()
	require.NoError(t, raw(t, addr).Do(ctx, append([]any{"ACL", "SETUSER", "limited", "on", ">secret", "allkeys", "+@all"}, rules...)...).Err())
	return "redis://limited:secret@" + addr
}

// The user may run no script, and the server has refused nothing: no script was tried.
// The cases take turns with the two protocols.
func TestPlainConformance(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	url := limited(t, addr, "-@scripting")
	var stores atomic.Int64
	backendtest.Run(t, func(t testing.TB) backend.Store {
		return openPlain(t, fmt.Sprintf("%s/0?protocol=%d", url, 2+stores.Add(1)%2))
	})
	log, err := raw(t, addr).ACLLog(ctx, 10).Result()
	require.NoError(t, err)
	require.Empty(t, log)
	requireTimesToLive(t, addr)
}

func TestPlainProcesses(t *testing.T) {
	t.Parallel()
	backendtest.Processes(t, func(t testing.TB) string { return servertest.Redis(t) },
		func(addr string) (backend.Store, error) {
			return redis.Open("redis://"+addr+"/0", redis.Config{Layout: redis.Plain, IOTimeout: patience})
		})
}

// A Plain store is no Atomic, whoever wraps it.
func TestLayouts(t *testing.T) {
	addr := servertest.Redis(t)
	require.Implements(t, (*backend.Atomic)(nil), open(t, "redis://"+addr))
	require.NotImplements(t, (*backend.Atomic)(nil), openPlain(t, "redis://"+addr))
	_, err := redis.Open("redis://"+addr, redis.Config{Layout: 7})
	require.EqualError(t, err, "redis: Config.Layout is Layout(7), want Sums or Plain")
	require.Equal(t, "sums plain", fmt.Sprint(redis.Sums, " ", redis.Plain))
}

// requireTimesToLive looks at every key of a server.
func requireTimesToLive(t testing.TB, addr string) (keys []string) {
	t.Helper()
	client := raw(t, addr)
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		require.NotEqual(t, time.Duration(-1), client.PTTL(ctx, key).Val(), "%s has no time to live", key)
	}
	return keys
}

func TestPlainPause(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	var stores []redis.Store
	backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
		stores = append(stores, openPlain(t, "redis://"+server.Addr))
		return stores[len(stores)-1]
	})
	var late, taken int64
	for _, s := range stores {
		st := s.Stats()
		require.Zero(t, st.NotTaken+st.Abandoned)
		late, taken = late+st.LateAnswers, taken+st.TakenBack
	}
	require.Positive(t, late)
	require.Equal(t, late, taken)
	requireTimesToLive(t, server.Addr)
}

// beheaded passes on so many bytes of what is written at once, and ends the connection
// then.
type beheaded struct {
	net.Conn
	bytes   *atomic.Int64 // below zero: all
	longest *atomic.Int64 // write
}

func (c beheaded) Write(b []byte) (int, error) {
	c.longest.Store(max(c.longest.Load(), int64(len(b))))
	n := c.bytes.Load()
	if n < 0 || n >= int64(len(b)) {
		return c.Conn.Write(b)
	}
	c.Conn.Write(b[:n])
	c.Conn.Close()
	return 0, net.ErrClosed
}

// A process dies after any byte of a call: the buckets have all of the hits or none, and
// every key has a time to live.
func TestPlainCallsCutAnywhere(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	var bytes, longest atomic.Int64
	bytes.Store(-1)
	client := goredis.NewClient(&goredis.Options{ContextTimeoutEnabled: true, DialerRetries: 1, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return beheaded{conn, &bytes, &longest}, err
	}})
	defer client.Close()
	s, err := redis.New(client, redis.Config{Layout: redis.Plain, IOTimeout: patience})
	require.NoError(t, err)
	ladder, now := mustLadder(t, "1s:1m, 1m:1h"), time.Unix(1_800_000_000, 0)
	do := func(key string, n int64) error {
		r := &backend.Request{Key: "ab:" + key, Ladder: ladder, Now: now, N: n, Deadline: time.Now().Add(patience)}
		for i, b := range ladder.Buckets(now) {
			r.Add = append(r.Add, backend.Slot{Bucket: b, TTL: ladder.At(i).Keep + b.Width})
			r.Read = append(r.Read, backend.Span{Width: b.Width, First: b.Index, Counts: make([]int64, 1)})
		}
		return s.Do(ctx, r)
	}
	near := raw(t, addr)
	for n, want := range map[int64]int64{3: 3, -2: 3, -9: 0} {
		before, prepared := int64(0), "connects"
		if n < 0 {
			before = 5
		}
		for cut, whole := int64(-1), false; !whole; cut++ {
			key := fmt.Sprintf("k%+d-%04d", n, cut+1)
			if n < 0 {
				prepared = key
			}
			require.NoError(t, do(prepared, 5), "%+d, cut %d", n, cut)
			longest.Store(0)
			bytes.Store(cut)
			failed := do(key, n)
			bytes.Store(-1)
			expected := want
			if failed != nil {
				expected = before
				// The server has seen the end of the connection.
				require.Eventually(t, func() bool { return strings.Count(near.ClientList(ctx).Val(), "\n") == 1 }, patience, time.Millisecond)
			} else {
				whole = cut >= 0
				require.True(t, cut < 0 || cut == longest.Load(), "a call without an error was cut")
			}
			second, _ := near.Get(ctx, fmt.Sprintf("{ab:%s}:1s:%d", key, now.Unix())).Int64()
			minute, _ := near.Get(ctx, fmt.Sprintf("{ab:%s}:1m:%d", key, now.Unix()/60)).Int64()
			require.Equal(t, []int64{expected, expected}, []int64{second, minute}, "%+d, cut after %d of %d bytes", n, cut, longest.Load())
		}
	}
	requireTimesToLive(t, addr)
}

// Callers add, take back what they have added, take back too much, and delete, all at
// once: no count is ever seen below zero or beyond what was added, and no key loses its
// time to live.
func TestPlainCountsAreNeverSeenBelowZero(t *testing.T) {
	addr := servertest.Redis(t)
	s := openPlain(t, "redis://"+addr)
	ladder, now := mustLadder(t, "1s:1m"), time.Unix(1_800_000_000, 0)
	bucket := ladder.Buckets(now)[0]
	do := func(n int64) int64 {
		r := &backend.Request{Key: "ab:k", Ladder: ladder, Now: now, N: n, Deadline: time.Now().Add(patience),
			Add: []backend.Slot{{Bucket: bucket, TTL: time.Hour}}}
		if err := s.Do(ctx, r); err != nil {
			t.Error(err)
		}
		return r.Add[0].Count
	}
	const callers, calls = 6, 300
	var all, readers sync.WaitGroup
	var done atomic.Bool
	client := raw(t, addr)
	name := fmt.Sprintf("{ab:k}:1s:%d", bucket.Index)
	readers.Go(func() {
		for !done.Load() {
			n, err := client.Get(ctx, name).Int64()
			if err != nil && !errors.Is(err, goredis.Nil) || n < 0 || n > callers*calls*3 {
				t.Errorf("%d was read, %v", n, err)
				return
			}
			if client.PTTL(ctx, name).Val() == -1 {
				t.Error("no time to live")
				return
			}
		}
	})
	for i := range callers {
		all.Go(func() {
			for j := range calls {
				if n := do(3); n < 3 || n > callers*calls*3 {
					t.Errorf("an addition of 3 answered %d", n)
				}
				switch {
				case i == 0 && j%10 == 0:
					do(-backend.MaxCount)
				case i == 1 && j%10 == 0:
					client.Unlink(ctx, name)
				default:
					if n := do(-3); n < 0 {
						t.Errorf("a taking back answered %d", n)
					}
				}
			}
		})
	}
	all.Wait()
	done.Store(true)
	readers.Wait()
	require.Zero(t, do(-backend.MaxCount))
	require.EqualValues(t, 3, do(3))
}

// Without races every hit is accounted for: what was added and not taken back is there.
func TestPlainTakingBackIsExact(t *testing.T) {
	addr := servertest.Redis(t)
	s := openPlain(t, "redis://"+addr)
	ladder, now := mustLadder(t, "1s:1m"), time.Unix(1_800_000_000, 0)
	var all sync.WaitGroup
	do := func(n int64) int64 {
		r := &backend.Request{Key: "ab:k", Ladder: ladder, Now: now, N: n, Deadline: time.Now().Add(patience),
			Add: []backend.Slot{{Bucket: ladder.Buckets(now)[0], TTL: time.Hour}}}
		if err := s.Do(ctx, r); err != nil {
			t.Error(err)
		}
		return r.Add[0].Count
	}
	for range 8 {
		all.Go(func() {
			for range 200 {
				do(5)
				do(-4)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 8*200+7, do(7))
}

// A value in the place of a bucket that is no count is an error wherever the bucket
// is added to or read, and is left alone.
func TestPlainForeignValues(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), openPlain(t, "redis://"+addr)
	ladder, now := mustLadder(t, "1s:1m, 1m:1h"), time.Unix(1_800_000_000, 0)
	second, minute := ladder.Buckets(now)[0], ladder.Buckets(now)[1]
	name := fmt.Sprintf("{ab:k}:1s:%d", second.Index)
	for what, write := range map[string]func() error{
		"empty":      func() error { return client.Set(ctx, name, "", time.Hour).Err() },
		"text":       func() error { return client.Set(ctx, name, "once upon a time", time.Hour).Err() },
		"a fraction": func() error { return client.Set(ctx, name, "1.5", time.Hour).Err() },
		"too large":  func() error { return client.Set(ctx, name, "99999999999999999999", time.Hour).Err() },
		"spaces":     func() error { return client.Set(ctx, name, "9 ", time.Hour).Err() },
		"a hash":     func() error { return client.HSet(ctx, name, "a", "b").Err() },
		"a list":     func() error { return client.LPush(ctx, name, "1").Err() },
	} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, client.Del(ctx, name).Err())
			require.NoError(t, write())
			before := client.Dump(ctx, name).Val()
			for _, n := range []int64{1, -1} {
				r := &backend.Request{Key: "ab:k", Ladder: ladder, Now: now, N: n,
					Add: []backend.Slot{{Bucket: second, TTL: time.Minute}, {Bucket: minute, TTL: time.Hour}}}
				err := s.Do(ctx, r)
				require.ErrorContains(t, err, "not written by this store")
				require.Zero(t, r.Add[0].Count)
				if n > 0 {
					require.Positive(t, r.Add[1].Count, "the minute was added to for certain")
				}
			}
			r := &backend.Request{Key: "ab:k", Ladder: ladder, Now: now, Read: []backend.Span{{Width: time.Second, First: second.Index - 5, Counts: make([]int64, 10)}}}
			require.ErrorContains(t, s.Do(ctx, r), "not written by this store")
			require.Equal(t, before, client.Dump(ctx, name).Val())
		})
	}
	require.NoError(t, client.Set(ctx, name, -5, time.Hour).Err())
	for _, r := range []*backend.Request{
		{N: 1, Add: []backend.Slot{{Bucket: second, TTL: time.Minute}}},
		{Read: []backend.Span{{Width: time.Second, First: second.Index, Counts: make([]int64, 1)}}},
		{N: -1, Add: []backend.Slot{{Bucket: second, TTL: time.Minute}}},
	} {
		r.Key, r.Ladder, r.Now = "ab:k", ladder, now
		require.ErrorContains(t, s.Do(ctx, r), "not written by this store", "a number below zero")
	}
}

// A server that refuses an addition refuses all of it.
func TestPlainRefusals(t *testing.T) {
	master := servertest.Redis(t)
	host, port, _ := strings.Cut(master, ":")
	replica := servertest.Redis(t, "--replicaof", host+" "+port)
	full := servertest.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	for what, c := range map[string]struct{ url, want string }{
		"no memory":         {"redis://" + full, "OOM"},
		"a replica":         {"redis://" + replica, "READONLY"},
		"no transactions":   {limited(t, servertest.Redis(t), "-multi"), "the layout Plain needs MULTI, and PEXPIRE with NX: NOPERM"},
		"no times to live":  {limited(t, servertest.Redis(t), "-pexpire"), "the layout Plain needs MULTI, and PEXPIRE with NX: NOPERM"},
		"no additions":      {limited(t, servertest.Redis(t), "-incrby"), "NOPERM"},
		"no server":         {"redis://127.0.0.1:1", "connection refused"},
		"another program":   {"redis://" + servertest.Memcached(t), "127.0.0.1:"},
		"the wrong user":    {"redis://nobody:secret@" + servertest.Redis(t), "WRONGPASS"},
		"replicas required": {"redis://" + servertest.Redis(t, "--min-replicas-to-write", "1"), "NOREPLICAS"},
	} {
		t.Run(what, func(t *testing.T) {
			s := openPlain(t, c.url)
			for range 3 {
				c2 := newCounter(t, s, counter.Config{Patience: 500 * time.Millisecond})
				v, err := c2.Take(ctx, signup, 1, counter.MustLimits("10/d"))
				require.Equal(t, counter.Verdict{}, v)
				require.ErrorIs(t, err, backend.ErrStore)
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), "203.0.113.9")
				require.NotContains(t, err.Error(), "secret")
				require.ErrorContains(t, c2.Add(ctx, signup, 1), c.want)
			}
			if what != "no server" && what != "another program" {
				require.Zero(t, raw(t, c.url[strings.LastIndexAny(c.url, "@/")+1:]).DBSize(ctx).Val())
			}
		})
	}
}

// The rights of docs/operating.md suffice for every call.
func TestPlainRights(t *testing.T) {
	addr := servertest.Redis(t)
	args := []any{"ACL", "SETUSER", "abacus", "on", ">secret"}
	for _, right := range strings.Fields("resetkeys ~{ab:* resetchannels -@all +multi +exec +incrby +incr +decrby +pexpire +mget +exists +unlink +watch +unwatch +zadd +zremrangebyrank +zrange +time +info") {
		args = append(args, right)
	}
	client := raw(t, addr)
	require.NoError(t, client.Do(ctx, args...).Err())
	s := openPlain(t, "redis://abacus:secret@"+addr)
	require.NoError(t, s.Check(ctx))
	everyCall(t, newCounter(t, s, counter.Config{}))
	entries, err := client.ACLLog(ctx, 10).Result()
	require.NoError(t, err)
	for _, entry := range entries {
		require.Contains(t, []string{"client|setinfo", "client|maint_notifications"}, entry.Object)
	}
}

// The right to transactions is taken away while the store is in use: each call is an
// error, and after the first nothing is sent that would count without a transaction.
func TestPlainLosesTheRight(t *testing.T) {
	addr := servertest.Redis(t)
	c := newCounter(t, openPlain(t, limited(t, addr)), counter.Config{Patience: 500 * time.Millisecond})
	require.EqualValues(t, 9, take(t, c, signup, 1, "10/d").Remaining)
	limited(t, addr, "-multi")
	for i := range 4 {
		require.ErrorContains(t, c.Add(ctx, name(i), 1), "needs MULTI")
	}
	requireTimesToLive(t, addr)
	for i := range 4 {
		n := len(raw(t, addr).Keys(ctx, "*user:"+strconv.Itoa(i)+"*").Val())
		if i > 0 {
			require.Zero(t, n)
		}
	}
	limited(t, addr, "+multi")
	require.EqualValues(t, 8, take(t, c, signup, 1, "10/d").Remaining)
}

// On a server that refuses MULTI the first call of a store may be an undo: nothing is
// taken, and no bucket is seen below zero or without a time to live.
func TestPlainTakesNothingBackWithoutTransactions(t *testing.T) {
	addr := servertest.Redis(t)
	client, ladder, now := raw(t, addr), mustLadder(t, "1s:1m"), time.Unix(1_800_000_000, 0)
	bucket := ladder.Buckets(now)[0]
	name := fmt.Sprintf("{ab:k}:1s:%d", bucket.Index)
	for _, held := range []int{0, 5} {
		require.NoError(t, client.Set(ctx, name, held, time.Hour).Err())
		s := openPlain(t, limited(t, addr, "-multi"))
		for range 2 {
			err := s.Do(ctx, &backend.Request{Key: "ab:k", Ladder: ladder, Now: now, N: -3, Add: []backend.Slot{{Bucket: bucket, TTL: time.Minute}}})
			require.ErrorContains(t, err, "needs MULTI")
			require.Equal(t, strconv.Itoa(held), client.Get(ctx, name).Val())
		}
		requireTimesToLive(t, addr)
	}
}

// An addition beyond MaxCount is undone. Where the server refuses that, the hits that
// stay are a number of Stats.
func TestPlainCountsWhatItCannotTakeBack(t *testing.T) {
	addr := servertest.Redis(t)
	client, ladder, now := raw(t, addr), mustLadder(t, "1s:1m"), time.Unix(1_800_000_000, 0)
	bucket := ladder.Buckets(now)[0]
	for i, rule := range []string{"+decrby", "-decrby"} {
		require.NoError(t, client.Set(ctx, fmt.Sprintf("{ab:k}:1s:%d", bucket.Index), backend.MaxCount-1, time.Hour).Err())
		s := openPlain(t, limited(t, addr, rule))
		err := s.Do(ctx, &backend.Request{Key: "ab:k", Ladder: ladder, Now: now, N: 5, Add: []backend.Slot{{Bucket: bucket, TTL: time.Minute}}})
		require.ErrorIs(t, err, backend.ErrMaxCount)
		require.EqualValues(t, i, s.Stats().NotTaken)
		require.EqualValues(t, i, s.Report().HitsLeft)
	}
}

// The example of docs/storage.md.
func TestPlainStoredAsDocumented(t *testing.T) {
	addr := servertest.Redis(t)
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	c := newCounter(t, openPlain(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	require.NoError(t, c.Add(ctx, signup, 1))
	require.NoError(t, c.Add(ctx, signup, 2))
	now = now.Add(2 * time.Second)
	require.NoError(t, c.Add(ctx, signup, 1))

	client, stored := raw(t, addr), map[string]string{}
	for _, key := range requireTimesToLive(t, addr) {
		stored[key] = client.Get(ctx, key).Val()
	}
	require.Equal(t, map[string]string{
		"{ab:13hnD:signup:ip:203.0.113.9}:1s:1772407833": "3",
		"{ab:13hnD:signup:ip:203.0.113.9}:1s:1772407835": "1",
		"{ab:13hnD:signup:ip:203.0.113.9}:1m:29540130":   "4",
		"{ab:13hnD:signup:ip:203.0.113.9}:1h:492335":     "4",
	}, stored)
	ttl := client.PTTL(ctx, "{ab:13hnD:signup:ip:203.0.113.9}:1h:492335").Val()
	require.InDelta(t, 25*time.Hour, ttl, float64(time.Minute))

	require.NoError(t, c.Forget(ctx, signup))
	keys := requireTimesToLive(t, addr)
	require.Len(t, keys, 2, "of the key and of the soft key")
	for _, key := range keys {
		require.Regexp(t, `^\{ab:![0-9a-z]{4}\}[\w-]{43}$`, key)
		require.Equal(t, []string{"9898db890a4b4e00"}, client.ZRange(ctx, key, 0, -1).Val())
	}
}

func TestPlainRoundTrips(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Redis(t), 20*time.Millisecond)
	// Far from the ends of all buckets, where calls look again.
	halfPast := time.Now().Truncate(time.Hour).Add(30*time.Minute + 30*time.Second + 500*time.Millisecond)
	c := newCounter(t, openPlain(t, "redis://"+proxy.Addr), counter.Config{Now: func() time.Time { return halfPast }})
	trips := func(want int, what string, call func() error) {
		t.Helper()
		proxy.Reset()
		require.NoError(t, call(), what)
		require.Equal(t, want, proxy.Trips(), what)
	}
	taking := func(key counter.Key, limits string, allowed bool) func() error {
		return func() error {
			require.Equal(t, allowed, take(t, c, key, 1, limits).Allowed)
			return nil
		}
	}
	take(t, c, name(0), 1, "1/d") // makes the connection, and asks for transactions
	for i, limits := range []string{"10/m", "10/m, 50/h, 100/d", "100/d"} {
		key := name(1 + i)
		trips(1, "fresh", taking(key, limits, true))
		trips(1, "again", taking(key, limits, true))
		trips(1, "count", func() error { _, err := c.Count(ctx, key, 24*time.Hour); return err })
		trips(1, "add", func() error { return c.Add(ctx, key, 1) })
	}
	for i, row := range []struct {
		limits       string
		denied, next int
	}{{"2/m", 2, 2}, {"2/d", 2, 3}} {
		key := name(11 + i)
		take(t, c, key, 1, row.limits)
		take(t, c, key, 1, row.limits)
		trips(row.denied, "denied, "+row.limits, taking(key, row.limits, false))
		trips(row.next, "denied by reading, "+row.limits, taking(key, row.limits, false))
		trips(0, "denied from memory, "+row.limits, taking(key, row.limits, false))
	}
}

// A transaction whose answer is lost is executed once, and is an error.
func TestPlainIsSentOnce(t *testing.T) {
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, 0)
	near := newCounter(t, openPlain(t, "redis://"+addr), counter.Config{})
	c := newCounter(t, openPlain(t, "redis://"+proxy.Addr+"/0?max_retries=5&min_retry_backoff=1ms&max_retry_backoff=1ms"), counter.Config{})
	require.NoError(t, c.Add(ctx, signup, 1))
	proxy.DropReplies(true)
	failed := make(chan error)
	go func() { failed <- c.Add(ctx, signup, 1) }()
	require.Eventually(t, func() bool { return count(t, near, signup) == 2 }, patience, time.Millisecond)
	proxy.DropReplies(false)
	proxy.Cut()
	require.ErrorIs(t, <-failed, backend.ErrStore)
	require.EqualValues(t, 2, count(t, near, signup))
	require.NoError(t, c.Add(ctx, signup, 1))
	require.EqualValues(t, 3, count(t, near, signup))
}

// On a Cluster all buckets of a key are on one node, with the marker of a Forget; after a
// failover the keys count on.
func TestPlainCluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.Cluster(t)
	url := "redis://" + cluster.Addrs[0] + "?protocol=2&addr=" + strings.Join(cluster.Addrs[1:], "&addr=")
	s := openPlain(t, url)
	require.NoError(t, s.Check(ctx))
	c := newCounter(t, s, counter.Config{})
	for i := range 50 {
		v := take(t, c, name(i), 1, "5/m, 10/d")
		require.True(t, v.Allowed)
		if i%2 == 0 {
			require.NoError(t, c.Refund(ctx, &v))
			require.Zero(t, count(t, c, name(i)))
		}
	}
	require.NoError(t, c.Forget(ctx, name(1)))
	require.Zero(t, count(t, c, name(1)))
	for _, node := range cluster.Nodes() {
		requireTimesToLive(t, node.Addr)
	}
	cluster.FailOver("some key")
	require.Eventually(t, func() bool {
		for i := range 50 {
			if n, err := c.Count(ctx, name(i), 24*time.Hour); err != nil || i > 1 && n.High != int64(i%2) {
				return false
			}
		}
		_, err := c.Take(ctx, name(7), 1, counter.MustLimits("10/d"))
		return err == nil
	}, patience, 10*time.Millisecond)
}

// A Forget leaves a key for no bucket, and the newest label, for the longest life that
// was asked for.
func TestPlainForgets(t *testing.T) {
	addr := servertest.Redis(t)
	client, s := raw(t, addr), openPlain(t, "redis://"+addr)
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	c := newCounter(t, s, counter.Config{Now: func() time.Time { return now }})
	for range 700 {
		require.NoError(t, c.Add(ctx, signup, 2))
		now = now.Add(101 * time.Second)
	}
	require.Greater(t, len(requireTimesToLive(t, addr)), 1300)
	require.NoError(t, c.Forget(ctx, signup))
	keys := requireTimesToLive(t, addr)
	require.Len(t, keys, 2, "the markers of the key and of the soft key")
	require.NotContains(t, strings.Join(keys, " "), "203.0.113.9")

	key := "ab:1:signup:k"
	for _, r := range []struct {
		label    int64
		remember time.Duration
	}{{50, time.Hour}, {40, 2 * time.Hour}, {60, time.Minute}, {-7, time.Minute}} {
		require.NoError(t, s.Forget(ctx, &backend.ForgetRequest{Key: key, Ladder: mustLadder(t, "1m:1h"), TTLs: []time.Duration{time.Hour},
			Now: now, Label: r.label, Remember: r.remember}))
	}
	label, err := s.Forgotten(ctx, &backend.ForgetRequest{Key: key, Now: now})
	require.NoError(t, err)
	require.EqualValues(t, 60, label)
	marker := slices.DeleteFunc(client.Keys(ctx, "*").Val(), func(k string) bool { return slices.Contains(keys, k) })
	require.Len(t, marker, 1)
	require.Greater(t, client.PTTL(ctx, marker[0]).Val(), 119*time.Minute)
	require.EqualValues(t, 1, client.ZCard(ctx, marker[0]).Val())
}

// A late answer to somebody else's transaction is nobody's business.
func TestTheDialerLeavesOtherTransactionsAlone(t *testing.T) {
	server := servertest.StartRedis(t)
	dialer := redis.NewDialer(nil)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr, Dialer: dialer.DialContext, ContextTimeoutEnabled: true})
	defer dialer.Close()
	defer client.Close()
	require.NoError(t, client.Ping(ctx).Err())
	server.Pause()
	hurried, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := client.TxPipelined(hurried, func(p goredis.Pipeliner) error {
		p.IncrBy(ctx, "{mine}:1", 5)
		return p.PExpire(ctx, "{mine}:1", time.Hour).Err()
	})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	server.Resume()
	near := raw(t, server.Addr)
	require.Eventually(t, func() bool { return near.Get(ctx, "{mine}:1").Val() == "5" }, patience, time.Millisecond)
	require.NoError(t, dialer.Close())
	require.Equal(t, "5", near.Get(ctx, "{mine}:1").Val())
}
