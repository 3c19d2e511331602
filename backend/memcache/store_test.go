package memcache_test

import (
	"context"
	"math"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// patience is the timeout of calls that must not fail for their slowness.
const patience = 20 * time.Second

func newStore(t testing.TB, cfg memcache.Config, servers ...string) *memcache.Store {
	if cfg.IOTimeout == 0 {
		cfg.IOTimeout = patience
	}
	s := try.To(memcache.New(cfg, servers...))(t)
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
	op := adding(key, n, slot(index))
	require.NoError(t, s.Do(context.Background(), op))
	return op.Add[0].Count
}

func read(t testing.TB, s backend.Store, key string, width time.Duration, first int64, n int) []int64 {
	op := &backend.Request{Key: key, Ladder: tiers.Default, Now: time.Now(), Read: []backend.Span{{Width: width, First: first, Counts: make([]int64, n)}}}
	require.NoError(t, s.Do(context.Background(), op))
	return op.Read[0].Counts
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
		{adding("k", 1, slot(100), backend.Slot{Bucket: slot(101).Bucket, TTL: 100 * 366 * 24 * time.Hour}), "memcache: TTL 36600d ends after 2038-01-19"},
		{&backend.Request{Key: "k", Read: []backend.Span{span(0, 1, 1)}}, "memcache: bucket width is 0s, want at least 1ms"},
		{&backend.Request{Key: "k", Read: []backend.Span{span(time.Minute, math.MaxInt64-1, 3)}}, "memcache: Span of 3 buckets from index 9223372036854775806, want indexes of 64 bits"},
	} {
		require.ErrorContains(t, s.Do(context.Background(), row.op), row.want)
	}
	require.NoError(t, s.Do(context.Background(), &backend.Request{Key: "k", N: 1}), "nothing to do")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	late := adding("k", -1, slot(1))
	late.Deadline = time.Now()
	require.EqualError(t, s.Do(context.Background(), late), "memcache: i/o timeout before the call")
	require.ErrorIs(t, s.Do(gone, late), context.Canceled, "the caller's own end is told first")
	require.Equal(t, "0", stat(t, addr, "cmd_set"))
	require.Equal(t, "0", stat(t, addr, "cmd_get"))
}

func TestAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/memcached.sock"
	cmd := exec.Command("memcached", "-s", path, "-U", "0", "-u", "root") // who is not root stays who he is
	require.NoError(t, servertest.Start(cmd))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := newStore(t, memcache.Config{}, path)
	require.Eventually(t, func() bool { return s.Do(context.Background(), adding("k", 2, slot(1))) == nil }, patience, time.Millisecond)
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
	s := try.To(memcache.New(memcache.Config{DialContext: dial}, servertest.Memcached(t)))(t)
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

// The example of docs/storage.md, item by item: other items are another format,
// see docs/release.md.
func TestStoredAsDocumented(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		ctx, addr := context.Background(), servertest.Memcached(t)
		client := rawClient(addr)
		var store backend.Store = newStore(t, memcache.Config{}, addr)
		if plain {
			store = try.To(memcache.NewFromClient(client))(t)
		}
		now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
		c := newCounter(t, store, counter.Config{Now: func() time.Time { return now }})
		key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
		require.NoError(t, c.Add(ctx, key, 1))
		require.NoError(t, c.Add(ctx, key, 2))
		now = now.Add(2 * time.Second)
		require.NoError(t, c.Add(ctx, key, 1))
		require.Zero(t, add(t, store, "another", -1, 1), "an undo makes no item")
		for name, value := range map[string]string{
			"ab:13hnD:signup:ip:203.0.113.9|1s1772407833": "3",
			"ab:13hnD:signup:ip:203.0.113.9|1s1772407835": "1",
			"ab:13hnD:signup:ip:203.0.113.9|1m29540130":   "4",
			"ab:13hnD:signup:ip:203.0.113.9|1h492335":     "4",
		} {
			item, err := client.Get(name)
			require.NoError(t, err, name)
			require.Equal(t, value, string(item.Value), name)
			require.Zero(t, item.Flags, name)
		}
		require.Equal(t, "4", stat(t, addr, "curr_items"), "and no other item")
		if plain {
			return
		}
		require.NoError(t, c.Forget(ctx, key))
		item := try.To(client.Get("b15ca4bc213a2bb9dmVFIiivVcGy_VJF0ZeROs1UbLgSBvh7egKT5VftHes|forgotten"))(t)
		require.Regexp(t, `^1772407835000000000 \d{10}$`, string(item.Value))
	}
}
