package redis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// secondName is the stored key of the bucket of second.
const secondName = "{ab:k}:1s:1800000000"

var second = time.Unix(1_800_000_000, 0)

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
	s := try.To(redis.New(client, redis.Config{Layout: redis.Plain, IOTimeout: patience}))(t)
	do := func(key string, n int64) error {
		r := adding("ab:"+key, mustLadder(t, "1s:1m, 1m:1h"), second, n)
		r.Deadline = time.Now().Add(patience)
		for _, slot := range r.Add {
			r.Read = append(r.Read, backend.Span{Width: slot.Width, First: slot.Index, Counts: make([]int64, 1)})
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
			for _, bucket := range []string{"1s:1800000000", "1m:30000000"} {
				got, _ := near.Get(ctx, "{ab:"+key+"}:"+bucket).Int64()
				require.Equal(t, expected, got, "%+d, %s, cut after %d of %d bytes", n, bucket, cut, longest.Load())
			}
		}
	}
	requireTimesToLive(t, addr)
}

// Callers add, take back what they have added, take back too much, and delete, all at
// once: no count is ever seen below zero or beyond what was added, and no key loses its
// time to live.
func TestPlainCountsAreNeverSeenBelowZero(t *testing.T) {
	addr := servertest.Redis(t)
	s, client := openPlain(t, "redis://"+addr), raw(t, addr)
	do := func(n int64) int64 {
		r := adding("ab:k", mustLadder(t, "1s:1m"), second, n)
		assert.NoError(t, s.Do(ctx, r))
		return r.Add[0].Count
	}
	const callers, calls = 6, 300
	var readers sync.WaitGroup
	var done atomic.Bool
	readers.Go(func() {
		for !done.Load() {
			n, err := client.Get(ctx, secondName).Int64()
			if err != nil && !errors.Is(err, goredis.Nil) || n < 0 || n > callers*calls*3 || client.PTTL(ctx, secondName).Val() == -1 {
				t.Errorf("%d was read, %v, or there is no time to live", n, err)
				return
			}
		}
	})
	crowd(callers, func(i int) {
		for j := range calls {
			if n := do(3); n < 3 || n > callers*calls*3 {
				t.Errorf("an addition of 3 answered %d", n)
			}
			switch {
			case i == 0 && j%10 == 0:
				do(-backend.MaxCount)
			case i == 1 && j%10 == 0:
				client.Unlink(ctx, secondName)
			default:
				if n := do(-3); n < 0 {
					t.Errorf("a taking back answered %d", n)
				}
			}
		}
	})
	done.Store(true)
	readers.Wait()
	require.Zero(t, do(-backend.MaxCount))
	require.EqualValues(t, 3, do(3))
}

// A value in the place of a bucket that is no count is an error wherever the bucket
// is added to or read, and is left alone.
func TestPlainForeignValues(t *testing.T) {
	addr := servertest.Redis(t)
	client, s, ladder := raw(t, addr), openPlain(t, "redis://"+addr), mustLadder(t, "1s:1m, 1m:1h")
	for what, value := range map[string]string{
		"empty": "", "text": "once upon a time", "a fraction": "1.5", "too large": "99999999999999999999",
		"spaces": "9 ", "below zero": "-5", "a hash": "", "a list": "",
	} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, client.Del(ctx, secondName).Err())
			switch what {
			case "a hash":
				require.NoError(t, client.HSet(ctx, secondName, "a", "b").Err())
			case "a list":
				require.NoError(t, client.LPush(ctx, secondName, "1").Err())
			default:
				require.NoError(t, client.Set(ctx, secondName, value, time.Hour).Err())
			}
			before := client.Dump(ctx, secondName).Val()
			for _, n := range []int64{1, 0, -1} {
				r := adding("ab:k", ladder, second, n)
				if n == 0 {
					r.Add, r.Read = nil, []backend.Span{{Width: time.Second, First: second.Unix() - 5, Counts: make([]int64, 10)}}
				}
				require.ErrorContains(t, s.Do(ctx, r), "not written by this store")
				if n > 0 {
					require.Zero(t, r.Add[0].Count)
					require.Positive(t, r.Add[1].Count, "the minute was added to for certain")
				}
				if what != "below zero" { // a number can be added to
					require.Equal(t, before, client.Dump(ctx, secondName).Val())
				}
			}
		})
	}
}

// The right to transactions is taken away while the store is in use: each call is an
// error, and after the first nothing is sent that would count without a transaction.
func TestPlainLosesTheRight(t *testing.T) {
	addr := servertest.Redis(t)
	store := openPlain(t, user(t, addr, "allkeys +@all"))
	c, hasty := newCounter(t, store, counter.Config{Settle: patience}), newCounter(t, store, counter.Config{Settle: patience, Patience: 10 * time.Second})
	require.EqualValues(t, 9, take(t, c, signup, 1, "10/d").Remaining)
	user(t, addr, "-multi")
	for i := range 4 {
		require.ErrorContains(t, hasty.Add(ctx, name(i), 1), "needs MULTI")
		if i > 0 {
			require.Empty(t, raw(t, addr).Keys(ctx, "*user:"+strconv.Itoa(i)+"*").Val())
		}
	}
	requireTimesToLive(t, addr)
	user(t, addr, "+multi")
	require.EqualValues(t, 8, take(t, c, signup, 1, "10/d").Remaining)
}

// On a server that refuses MULTI the first call of a store may be an undo: nothing is
// taken, and no bucket is seen below zero or without a time to live. An addition beyond
// MaxCount is undone; where the server refuses that, the hits that stay are a number of
// Stats.
func TestPlainUndosThatAreRefused(t *testing.T) {
	addr := servertest.Redis(t)
	client, ladder := raw(t, addr), mustLadder(t, "1s:1m")
	for _, row := range []struct {
		rule string
		n    int64 // of calls
		held int64 // before
		left int64 // after the first call
		want string
		told int64
	}{
		{"-multi", -3, 0, 0, "needs MULTI", 0},
		{"-multi", -3, 5, 5, "needs MULTI", 0},
		{"+multi +decrby", 5, backend.MaxCount - 1, backend.MaxCount - 1, backend.ErrMaxCount.Error(), 0},
		{"-decrby", 5, backend.MaxCount - 1, backend.MaxCount + 4, backend.ErrMaxCount.Error(), 1},
	} {
		require.NoError(t, client.Set(ctx, secondName, row.held, time.Hour).Err())
		s := openPlain(t, user(t, addr, "allkeys +@all "+row.rule))
		require.ErrorContains(t, s.Do(ctx, adding("ab:k", ladder, second, row.n)), row.want, row.rule)
		require.Equal(t, strconv.FormatInt(row.left, 10), client.Get(ctx, secondName).Val(), row.rule)
		require.Equal(t, []int64{row.told, row.told}, []int64{s.Stats().NotTaken, s.Report().HitsLeft}, row.rule)
		requireTimesToLive(t, addr)
	}
}

// The example of docs/storage.md. A Forget leaves a key for no bucket, and the newest label.
func TestPlainStoredAsDocumented(t *testing.T) {
	addr := servertest.Redis(t)
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	c := newCounter(t, openPlain(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	documented(t, c, &now)

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

	for range 2 {
		require.NoError(t, c.Forget(ctx, signup))
		now = now.Add(-time.Second)
	}
	keys := requireTimesToLive(t, addr)
	require.Len(t, keys, 2, "of the key and of the soft key")
	for _, key := range keys {
		require.Regexp(t, `^\{ab:![0-9a-z]{4}\}[\w-]{43}$`, key)
		require.Equal(t, []string{"9898db890a4b4e00"}, client.ZRange(ctx, key, 0, -1).Val())
	}
}

// A hit between any two steps of a Forget goes from all tiers or from none, and a Forget
// between any two steps of another leaves nothing that a later Forget does not find.
func TestPlainForgetAmidOtherCalls(t *testing.T) {
	addr := servertest.Redis(t)
	near, ladder := openPlain(t, "redis://"+addr), mustLadder(t, "1s:1m, 1m:1h, 1h:1d")
	s, client := onClient(t, "redis://"+addr, redis.Config{Layout: redis.Plain})
	hit := func(key string, at time.Time) { require.NoError(t, near.Do(ctx, adding(key, ladder, at, 1))) }
	forget := func(s redis.Store, key string) {
		f := forgetting("1s:1m, 1m:1h, 1h:1d", second)
		f.Key = key
		require.NoError(t, s.Forget(ctx, f))
	}
	left := func(key string) (sums [3]int64) { // of each tier
		r := adding(key, ladder, second, 0)
		for _, slot := range r.Add {
			from := second.Add(-2*time.Minute).UnixNano() / int64(slot.Width)
			r.Read = append(r.Read, backend.Span{Width: slot.Width, First: from, Counts: make([]int64, 4*time.Minute/slot.Width+2)})
		}
		r.Add = nil
		require.NoError(t, near.Do(ctx, r))
		for i, span := range r.Read {
			for _, n := range span.Counts {
				sums[i] += n
			}
		}
		return sums
	}
	for what, amid := range map[string]func(key string){
		"a hit of a second that is there": func(key string) { hit(key, second) },
		"a hit of another second":         func(key string) { hit(key, second.Add(time.Second)) },
		"a hit of another minute":         func(key string) { hit(key, second.Add(time.Minute)) },
		"a Forget and hits":               func(key string) { forget(near, key); hit(key, second); hit(key, second.Add(time.Second)) },
	} {
		t.Run(what, func(t *testing.T) {
			step, last := 0, 0
			var key string
			client.AddHook(&sendings{after: func() {
				if step++; step == last {
					amid(key)
				}
			}})
			for done := false; !done; done = step < last {
				step, last = 0, last+1
				key = fmt.Sprint("ab:", strings.ReplaceAll(what, " ", ""), last)
				hit(key, second)
				hit(key, second)
				hit(key, second.Add(-time.Minute))
				forget(s, key)
				sums := left(key)
				require.Equal(t, [3]int64{sums[0], sums[0], sums[0]}, sums, "after step %d of a Forget: %s", last, what)
				forget(near, key)
				require.Zero(t, left(key), "after step %d of a Forget: %s, and another Forget", last, what)
			}
			require.Greater(t, last, 10)
		})
	}

	// A key that is hit at every step is never the same for long enough.
	hits := 0
	client.AddHook(&sendings{after: func() { hits++; hit("ab:busy", second) }})
	hit("ab:busy", second)
	forget(s, "ab:busy")
	require.Greater(t, hits, 90)
	sums := left("ab:busy")
	require.Less(t, slices.Max(sums[:]), int64(hits))
	require.Positive(t, slices.Min(sums[:]))
	forget(near, "ab:busy")
	require.Zero(t, left("ab:busy"))
}

// On a Cluster all buckets of a key are on one node, with the marker of a Forget; after a
// failover the keys count on.
func TestPlainCluster(t *testing.T) {
	t.Parallel()
	url, cluster := clusterURL(t)
	s := openPlain(t, url)
	require.NoError(t, s.Check(ctx))
	c := newCounter(t, s, counter.Config{})
	want := map[int]int64{}
	for i := range 50 {
		v := take(t, c, name(i), 1, "5/m, 10/d")
		require.True(t, v.Allowed)
		if want[i] = int64(i % 2); i%2 == 0 {
			require.NoError(t, c.Refund(ctx, &v))
		}
	}
	require.NoError(t, c.Forget(ctx, name(1)))
	want[1] = 0
	for _, node := range cluster.Nodes() {
		requireTimesToLive(t, node.Addr)
	}
	counts := func() bool {
		got := map[int]int64{}
		for i := range 50 {
			n, err := c.Count(ctx, name(i), day)
			if err != nil {
				return false
			}
			got[i] = n.High
		}
		return maps.Equal(want, got)
	}
	require.True(t, counts())
	cluster.FailOver("some key")
	require.Eventually(t, counts, patience, 10*time.Millisecond)
	take(t, c, name(7), 1, "10/d")
}

// A late answer to somebody else's transaction is nobody's business.
func TestTheDialerLeavesOtherTransactionsAlone(t *testing.T) {
	server := servertest.StartRedis(t)
	dialer := redis.NewDialer(nil)
	_, client := onClient(t, "redis://"+server.Addr, redis.Config{Dialer: dialer})
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
