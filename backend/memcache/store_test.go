package memcache_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/tiers"
)

// patience is the timeout of calls that must not fail for their slowness.
const patience = 20 * time.Second

func newStore(t testing.TB, cfg memcache.Config, servers ...string) *memcache.Store {
	t.Helper()
	if cfg.IOTimeout == 0 {
		cfg.IOTimeout = patience
	}
	s, err := memcache.New(cfg, servers...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// rawClient is a client to look behind a store's back.
func rawClient(servers ...string) *gomemcache.Client {
	c := gomemcache.New(servers...)
	c.Timeout = patience
	return c
}

// slot is the bucket of a minute.
func slot(index int64) backend.Slot {
	return backend.Slot{Bucket: tiers.Bucket{Width: time.Minute, Index: index}, TTL: time.Hour}
}

func adding(key string, n int64, slots ...backend.Slot) *backend.Request {
	return &backend.Request{Key: key, Ladder: tiers.Default, Now: time.Now(), N: n, Add: slots}
}

func add(t testing.TB, s backend.Store, key string, n int64, index int64) int64 {
	t.Helper()
	op := adding(key, n, slot(index))
	require.NoError(t, s.Do(context.Background(), op))
	return op.Add[0].Count
}

func read(t testing.TB, s backend.Store, key string, width time.Duration, first int64, n int) []int64 {
	t.Helper()
	op := &backend.Request{Key: key, Ladder: tiers.Default, Now: time.Now(), Read: []backend.Span{{Width: width, First: first, Counts: make([]int64, n)}}}
	require.NoError(t, s.Do(context.Background(), op))
	return op.Read[0].Counts
}

func TestEveryByteThatIsStored(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	require.EqualValues(t, 3, add(t, s, "ab:1wxyz:signup:ip:203.0.113.9", 3, 29454210))
	require.EqualValues(t, 10, add(t, s, "ab:1wxyz:signup:ip:203.0.113.9", 7, 29454210))
	require.EqualValues(t, 9, add(t, s, "ab:1wxyz:signup:ip:203.0.113.9", -1, 29454210))
	raw := rawClient(addr)
	item, err := raw.Get("ab:1wxyz:signup:ip:203.0.113.9|1m29454210")
	require.NoError(t, err)
	require.Equal(t, "9 ", string(item.Value), "memcached keeps the length of a number that decr has made shorter")
	require.Zero(t, item.Flags)
	require.Equal(t, []int64{0, 9, 0}, read(t, s, "ab:1wxyz:signup:ip:203.0.113.9", time.Minute, 29454209, 3))
	require.EqualValues(t, "1", stat(t, addr, "curr_items"))
}

func TestOverlappingSpans(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	for i := range int64(10) {
		add(t, s, "k", i+1, i)
	}
	op := &backend.Request{Key: "k", Now: time.Now(), Read: []backend.Span{
		{Width: time.Minute, First: 5, Counts: []int64{7, 7, 7}},
		{Width: time.Minute, First: 2, Counts: make([]int64, 4)},
		{Width: time.Second, First: 2, Counts: []int64{7, 7}},
		{Width: time.Minute, First: 0, Counts: nil},
		{Width: time.Minute, First: -2, Counts: make([]int64, 3)},
		{Width: time.Minute, First: 6, Counts: make([]int64, 5)},
		{Width: time.Minute, First: 5, Counts: make([]int64, 3)},
		{Width: time.Minute, First: 7, Counts: make([]int64, 1)},
	}}
	require.NoError(t, s.Do(context.Background(), op))
	var got [][]int64
	for _, span := range op.Read {
		got = append(got, span.Counts)
	}
	require.Equal(t, [][]int64{{6, 7, 8}, {3, 4, 5, 6}, {0, 0}, nil, {0, 0, 1}, {7, 8, 9, 10, 0}, {6, 7, 8}, {8}}, got)
}

// Reads of more than a thousand buckets are several multi-gets with a single
// answer.
func TestLargeReads(t *testing.T) {
	s := newStore(t, memcache.Config{}, servertest.Memcached(t))
	const n = 25_300
	want := make([]int64, n)
	for _, i := range []int64{0, 1, 999, 1000, 1001, 1999, 2000, 17_000, n - 1} {
		want[i] = add(t, s, "k", i+1, i)
	}
	require.Equal(t, want, read(t, s, "k", time.Minute, 0, n))
}

func TestManySlots(t *testing.T) {
	s := newStore(t, memcache.Config{MaxInFlight: 3}, servertest.Memcached(t))
	op := adding("k", 2)
	for i := range int64(500) {
		op.Add = append(op.Add, slot(i))
	}
	for round := range int64(2) {
		require.NoError(t, s.Do(context.Background(), op))
		for _, slot := range op.Add {
			require.Equal(t, 2*(round+1), slot.Count)
		}
	}
	op.N = -backend.MaxCount
	require.NoError(t, s.Do(context.Background(), op))
	require.Equal(t, make([]int64, 500), read(t, s, "k", time.Minute, 0, 500))
}

func TestTakingBack(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	op := adding("k", -1, slot(1))
	op.Add[0].Count = 5
	require.NoError(t, s.Do(context.Background(), op))
	require.Zero(t, op.Add[0].Count, "zeroed, and nothing is there")
	require.Equal(t, "0", stat(t, addr, "curr_items"), "taking back creates nothing")
	require.EqualValues(t, 5, add(t, s, "k", 5, 1))
	require.EqualValues(t, 2, add(t, s, "k", -3, 1))
	require.Zero(t, add(t, s, "k", -3, 1), "stops at zero")
	require.EqualValues(t, 1, add(t, s, "k", 1, 1))
}

// memcached counts to 2^64 and then from zero on; a bucket counts to MaxCount.
func TestABucketIsFull(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	require.Equal(t, int64(backend.MaxCount), add(t, s, "k", backend.MaxCount, 1))
	for range 3 {
		op := adding("k", backend.MaxCount, slot(1), slot(2))
		err := s.Do(context.Background(), op)
		require.ErrorContains(t, err, "memcache: "+addr+": ma bucket 1m1: would hold 18014398509481982: the count would exceed 2^53-1")
		require.ErrorIs(t, err, backend.ErrMaxCount)
		require.Zero(t, op.Add[0].Count)
		if op.Add[1].Count > 0 {
			add(t, s, "k", -backend.MaxCount, 2)
		}
	}
	require.Equal(t, []int64{backend.MaxCount}, read(t, s, "k", time.Minute, 1, 1), "the addition was taken back")
	require.Equal(t, int64(backend.MaxCount-1), add(t, s, "k", -1, 1))
	require.Equal(t, int64(backend.MaxCount), add(t, s, "k", 1, 1))
}

// A value that no Store has written is an error, never a count.
func TestForeignValues(t *testing.T) {
	addr := servertest.Memcached(t)
	raw := rawClient(addr)
	for name, row := range map[string]struct{ value, get, incr, decr string }{
		"text":       {"many", `get bucket 1m1: holds "many", want a count`, "ma bucket 1m1: CLIENT_ERROR cannot increment or decrement non-numeric value", "ma bucket 1m1: CLIENT_ERROR"},
		"empty":      {"", `get bucket 1m1: holds "", want a count`, "ma bucket 1m1: CLIENT_ERROR", "ma bucket 1m1: CLIENT_ERROR"},
		"negative":   {"-5", `get bucket 1m1: holds "-5", want a count`, "ma bucket 1m1: CLIENT_ERROR", "ma bucket 1m1: CLIENT_ERROR"},
		"too large":  {"9223372036854775809", "get bucket 1m1: holds 9223372036854775809, want at most 9007199254740991", "ma bucket 1m1: held a number of 2^63 or more", "ma bucket 1m1: holds 9223372036854775808, want at most"},
		"2^64 - 1":   {"18446744073709551615", "get bucket 1m1: holds 18446744073709551615, want at most", "ma bucket 1m1: held a number of 2^63 or more", "ma bucket 1m1: holds 18446744073709551614, want at most"},
		"far beyond": {strings.Repeat("9", 30), "get bucket 1m1: holds \"999", "ma bucket 1m1: CLIENT_ERROR", "ma bucket 1m1: CLIENT_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, memcache.Config{}, addr)
			set := func() { require.NoError(t, raw.Set(&gomemcache.Item{Key: "k|1m1", Value: []byte(row.value)})) }
			set()
			read := &backend.Request{Key: "k", Now: time.Now(), Read: []backend.Span{{Width: time.Minute, First: 0, Counts: make([]int64, 3)}}}
			require.ErrorContains(t, s.Do(context.Background(), read), "memcache: "+addr+": "+row.get)
			set()
			op := adding("k", 1, slot(1))
			require.ErrorContains(t, s.Do(context.Background(), op), "memcache: "+addr+": "+row.incr)
			require.Zero(t, op.Add[0].Count)
			set()
			op = adding("k", -1, slot(1))
			require.ErrorContains(t, s.Do(context.Background(), op), "memcache: "+addr+": "+row.decr)
			require.Zero(t, op.Add[0].Count)
		})
	}
}

// Items live for their TTL: relative up to 30 days, by date beyond.
func TestItemsLive(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	for i, ttl := range []time.Duration{time.Millisecond, time.Hour, 30*24*time.Hour - time.Second, 30 * 24 * time.Hour, 31 * 24 * time.Hour, 367 * 24 * time.Hour} {
		op := adding("k", 1, slot(int64(i)))
		op.Add[0].TTL = ttl
		op.Now = time.Date(2013, 1, 1, 0, 0, 0, 0, time.UTC) // the replay of a log
		require.NoError(t, s.Do(context.Background(), op))
		require.EqualValues(t, 1, op.Add[0].Count)
		require.Equal(t, []int64{1}, read(t, s, "k", time.Minute, int64(i), 1), ttl)
		require.InDelta(t, (ttl + min(ttl, time.Minute) + 2*time.Second).Seconds(), left(t, addr, fmt.Sprintf("k|1m%d", i)), 2, ttl)
	}
	op := adding("k", 1, slot(100), slot(101))
	op.Add[1].TTL = 100 * 366 * 24 * time.Hour
	require.ErrorContains(t, s.Do(context.Background(), op), "memcache: TTL 36600d ends after 2038-01-19")
	require.Equal(t, []int64{0}, read(t, s, "k", time.Minute, 100, 1), "nothing was sent")
}

func TestWhatDoRefuses(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	span := func(width time.Duration, first int64, n int) backend.Span {
		return backend.Span{Width: width, First: first, Counts: make([]int64, n)}
	}
	for _, row := range []struct {
		op   *backend.Request
		want string
	}{
		{adding("", 1, slot(1)), "memcache: Key has 0 bytes, want 1 to 200"},
		{adding(strings.Repeat("k", 201), 1, slot(1)), "memcache: Key has 201 bytes, want 1 to 200"},
		{adding("k 1 0\r\nflush_all", 1, slot(1)), "memcache: Key has byte 0x20 at index 1, want printable ASCII without spaces"},
		{adding("k", 0, slot(1)), "memcache: Request.N is 0, want 1 to 9007199254740991, or the same below zero"},
		{adding("k", backend.MaxCount+1, slot(1)), "memcache: Request.N is 9007199254740992, want"},
		{adding("k", math.MinInt64, slot(1)), "memcache: Request.N is -9223372036854775808, want"},
		{adding("k", 1, backend.Slot{Bucket: tiers.Bucket{Width: time.Minute}}), "memcache: TTL is 0s, want above zero"},
		{adding("k", 1, backend.Slot{TTL: time.Hour}), "memcache: bucket width is 0s, want at least 1ms"},
		{&backend.Request{Key: "k", Read: []backend.Span{span(0, 1, 1)}}, "memcache: bucket width is 0s, want at least 1ms"},
		{&backend.Request{Key: "k", Read: []backend.Span{span(time.Minute, math.MaxInt64-1, 3)}}, "memcache: Span of 3 buckets from index 9223372036854775806, want indexes of 64 bits"},
	} {
		require.ErrorContains(t, s.Do(context.Background(), row.op), row.want)
	}
	require.NoError(t, s.Do(context.Background(), &backend.Request{Key: "k", N: 1}), "nothing to do")
	require.Equal(t, "0", stat(t, addr, "cmd_set"))
	require.Equal(t, "0", stat(t, addr, "cmd_get"))
}

func TestConfig(t *testing.T) {
	for _, row := range []struct {
		cfg  memcache.Config
		want string
	}{
		{memcache.Config{IOTimeout: -time.Second}, "memcache: Config.IOTimeout is -1s, want zero or more"},
		{memcache.Config{MaxInFlight: -1}, "memcache: Config.MaxInFlight is -1, want zero or more"},
		{memcache.Config{Conns: -3}, "memcache: Config.Conns is -3, want zero or more"},
	} {
		_, err := memcache.New(row.cfg, "localhost:11211")
		require.EqualError(t, err, row.want)
	}
	_, err := memcache.New(memcache.Config{})
	require.EqualError(t, err, "memcache: no servers, want at least one")
}

func TestAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/memcached.sock"
	unixMemcached(t, path)
	s := newStore(t, memcache.Config{}, path)
	require.EqualValues(t, 2, add(t, s, "k", 2, 1))
	require.EqualValues(t, 5, add(t, s, "k", 3, 1))
}

func TestAClosedStore(t *testing.T) {
	var mu sync.Mutex
	var conns []net.Conn
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, conn)
		return conn, err
	}
	s, err := memcache.New(memcache.Config{DialContext: dial}, servertest.Memcached(t))
	require.NoError(t, err)
	require.NoError(t, s.Do(context.Background(), readingToo(adding("k", 1, slot(1), slot(2)))))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice is harmless")
	require.EqualError(t, s.Do(context.Background(), adding("k", 1, slot(1))), "memcache: the store is closed")
	idle(t, s)
	require.NotEmpty(t, conns)
	for _, conn := range conns {
		require.ErrorIs(t, conn.SetDeadline(time.Time{}), net.ErrClosed)
	}
}
