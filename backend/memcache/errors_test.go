package memcache_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// failsAtOnce checks each kind of call to a failing server: an error names the
// server, long before the deadline, and no slot has a count.
func failsAtOnce(t *testing.T, s backend.Store, addr, want string) {
	reading := readingToo(adding("k", 1))
	for _, op := range []*backend.Request{adding("k", 1, slot(1)), adding("k", -1, slot(1)), reading, readingToo(adding("k", 1, slot(1), slot(2), slot(3)))} {
		op.Deadline = time.Now().Add(patience)
		err := s.Do(context.Background(), op)
		require.ErrorContains(t, err, "memcache: "+addr+": ")
		require.ErrorContains(t, err, want)
		require.Less(t, time.Now(), op.Deadline.Add(-patience/2))
		for _, slot := range op.Add {
			require.Zero(t, slot.Count)
		}
	}
}

// Servers that are absent, something else than memcached, or hang up.
func TestServersThatFail(t *testing.T) {
	killed, path := servertest.StartMemcached(t), t.TempDir()+"/nobody.sock"
	killed.Kill()
	for addr, want := range map[string]string{
		killed.Addr: ": dial tcp: connect: connection refused", path: ": dial unix: connect: no such file", "nowhere.invalid:11211": "lookup nowhere.invalid", servertest.Redis(t): "-ERR",
		newFake(t, false, func(string) string { return "" }).addr: "the server closed the connection",
	} {
		failsAtOnce(t, newStore(t, memcache.Config{}, addr), addr, want)
	}
}

// A single failed chunk fails the read.
func TestAMissingChunk(t *testing.T) {
	server := newFake(t, false, func(line string) string {
		if strings.Contains(line, " k|1m17500 ") {
			return "SERVER_ERROR\r\n"
		}
		return "END\r\n"
	})
	s := newStore(t, memcache.Config{}, server.addr)
	op := &backend.Request{Key: "k", Read: []backend.Span{{Width: time.Minute, Counts: make([]int64, 20_000)}}}
	require.ErrorContains(t, s.Do(context.Background(), op), "SERVER_ERROR")
}

// Confirmed additions are reported, though another part of the call has failed.
func TestWhatIsConfirmedIsTold(t *testing.T) {
	server := newFake(t, false, func(line string) string {
		switch {
		case strings.HasPrefix(line, "incr k|1m2 "):
			return "SERVER_ERROR out of memory in incr\r\n"
		case strings.HasPrefix(line, "incr"):
			return "4\r\n"
		case strings.HasPrefix(line, "add"):
			return "NOT_STORED\r\n"
		}
		return "END\r\n"
	})
	s := newStore(t, memcache.Config{}, server.addr)
	op := readingToo(adding("k", 4, slot(1), slot(2), slot(3)))
	require.ErrorContains(t, s.Do(context.Background(), op), "out of memory")
	require.Equal(t, []int64{4, 0, 4}, []int64{op.Add[0].Count, op.Add[1].Count, op.Add[2].Count})
	require.Zero(t, s.Stats().LateAdditions)
}

// A memcached without room that must not evict.
func TestOutOfMemory(t *testing.T) {
	addr := servertest.Memcached(t, "-m", "2", "-M")
	raw := rawClient(addr)
	defer raw.Close()
	s := newStore(t, memcache.Config{}, addr)
	require.EqualValues(t, 1, add(t, s, "j", 1, 1))
	added := int64(1)
	var err error
	for i := int64(0); err == nil && i < 1_000_000; i += 100 {
		op := adding("k", 1)
		for j := range int64(100) {
			op.Add = append(op.Add, slot(i+j))
		}
		err = s.Do(context.Background(), op)
		for _, slot := range op.Add {
			added += slot.Count
		}
	}
	require.ErrorContains(t, err, "memcache: "+addr+": ma bucket 1m")
	require.ErrorContains(t, err, "SERVER_ERROR Out of memory allocating new item")
	require.Equal(t, added, number(t, stat(t, addr, "curr_items")))
	require.EqualValues(t, 2, add(t, s, "j", 1, 1), "what is there goes on")
}

// Connections that break under a request cause an error at once; nothing is
// sent again, and the next call succeeds.
func TestConnectionsAreCut(t *testing.T) {
	addr := servertest.Memcached(t)
	proxy := servertest.NewProxy(t, addr, 0)
	s := newStore(t, memcache.Config{}, proxy.Addr)
	require.EqualValues(t, 1, add(t, s, "k", 1, 1))
	proxy.DropReplies(true)
	failed := make(chan error, 1)
	op := adding("k", 1, slot(1))
	go func() { failed <- s.Do(context.Background(), op) }()
	require.Eventually(t, func() bool { return stat(t, addr, "incr_hits") == "1" }, patience, time.Millisecond)
	proxy.Cut()
	err := <-failed
	require.ErrorContains(t, err, "memcache: "+proxy.Addr+": ma: ")
	require.Zero(t, op.Add[0].Count)
	proxy.DropReplies(false)
	require.EqualValues(t, 3, add(t, s, "k", 1, 1), "the addition without an answer stays, and was sent once")
}

// A restart empties the server and closes all idle connections, and fails no
// call.
func TestARestart(t *testing.T) {
	server := servertest.StartMemcached(t)
	s := newStore(t, memcache.Config{}, server.Addr)
	for range 2 {
		for i := range int64(20) {
			require.EqualValues(t, 1, add(t, s, "k", 1, i))
			read(t, s, "k", time.Minute, 0, 10)
			require.NoError(t, s.Do(context.Background(), readingToo(adding("j", 1, slot(1), slot(2), slot(3)))))
		}
		server.Restart()
	}
	server.Kill()
	failsAtOnce(t, s, server.Addr, "connection refused")
}

// A connection with unrequested bytes fails no call: the bytes would pass for
// the answer to the next request.
func TestAConnectionThatSpeaksUnasked(t *testing.T) {
	conns := make(chan net.Conn)
	s := newStore(t, memcache.Config{}, servertest.Serve(t, func(conn net.Conn) {
		conns <- conn
		<-t.Context().Done()
	}))
	for range 2 {
		done := make(chan int64)
		go func() {
			op := adding("k", 1, slot(1))
			assert.NoError(t, s.Do(context.Background(), op))
			done <- op.Add[0].Count
		}()
		select {
		case conn := <-conns:
			in := bufio.NewScanner(conn)
			for range 2 { // the question that a connection begins with, and the addition
				require.True(t, in.Scan())
				try.To(io.WriteString(conn, metaAnswer(in.Text(), 1)))(t)
			}
			require.EqualValues(t, 1, <-done)
			try.To(io.WriteString(conn, "77\r\n"))(t)
		case <-time.After(patience):
			require.Fail(t, "the connection was used again")
		}
	}
}

// A server that refuses connections is dialled now and then, and used again as
// soon as it is back.
func TestARefusingServerIsDialledSeldom(t *testing.T) {
	server := servertest.StartMemcached(t)
	server.Kill()
	var dials atomic.Int64
	s := newStore(t, memcache.Config{DialContext: counting(&dials)}, server.Addr)
	require.Error(t, s.Do(context.Background(), adding("k", 1, slot(1))))
	began := time.Now()
	for time.Since(began) < 500*time.Millisecond {
		require.ErrorContains(t, s.Do(context.Background(), readingToo(adding("k", 1, slot(1)))), "connection refused")
	}
	require.LessOrEqual(t, dials.Load(), int64(1+10+1))
	server.Restart()
	began = time.Now()
	require.Eventually(t, func() bool { return s.Do(context.Background(), adding("k", 1, slot(1))) == nil }, patience, time.Millisecond)
	t.Logf("used %v after its return", time.Since(began))
	require.Zero(t, s.Stats().Unanswered, "nothing was sent")
}

// A server that refuses connections fails each call in its turn, however many calls
// come meanwhile.
func TestACrowdAtAServerThatRefuses(t *testing.T) {
	killed := servertest.StartMemcached(t)
	killed.Kill()
	s := newStore(t, memcache.Config{}, killed.Addr)
	const calls = 40_000
	var ended, most atomic.Int64
	crowd(64, func(int) {
		for ended.Load() < calls {
			before := ended.Load()
			if err := s.Do(context.Background(), adding("k", 1, slot(1))); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
			if overtaken := ended.Add(1) - before; overtaken > most.Load() {
				most.Store(overtaken)
			}
		}
	})
	require.Less(t, most.Load(), int64(calls*3/4))
}

// A proxy in front of several servers answers the question what it understands by an
// error, since the server of that name is down: the other servers count.
func TestAProxyWithAServerDown(t *testing.T) {
	s := newStore(t, memcache.Config{Proxied: true}, relay(t, servertest.Memcached(t), map[string]string{"ma": "", "get |abacus": "SERVER_ERROR Connection refused\r\n"}))
	for i := range int64(3) {
		require.Equal(t, i+1, add(t, s, "k", 1, 7))
	}
}

// A proxy that knows stats, and no detailed stats: Check does without.
func TestCheckWithoutDetailedStats(t *testing.T) {
	s := newStore(t, memcache.Config{}, relay(t, servertest.Memcached(t, "-M"), map[string]string{
		"ma": "", "stats settings": "ERROR\r\n", "stats items": "ERROR\r\n", "stats slabs": "ERROR\r\n",
	}))
	err := s.Check(context.Background())
	require.NotErrorIs(t, err, backend.ErrStore)
	if err != nil {
		require.ErrorIs(t, err, backend.ErrCondition)
		require.NotContains(t, err.Error(), "cannot be written to")
	}
}

// A long value that something else wrote under the name of a bucket is an error for
// its key, without the text of the key, and nothing for other keys: the connection is
// kept. Erase deletes the value.
func TestALongForeignValue(t *testing.T) {
	old, behind := oldMemcached(t)
	for name, addrs := range map[string][2]string{"meta": {behind, behind}, "classic": {old, behind}} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, memcache.Config{}, addrs[0])
			key, other := "ab:1x:e:secret"+name, "ab:1x:e:other"+name
			f := forgetting(key)
			hour := f.Ladder.Buckets(f.Now)[2]
			bucket := fmt.Sprint("1h", hour.Index)
			item := key + "|" + bucket
			for _, size := range []int{1100, 100_000, 1_000_000} {
				require.NoError(t, rawClient(addrs[1]).Set(&gomemcache.Item{Key: item, Value: []byte(strings.Repeat("x", size))}))
				op := readingToo(adding(key, 1))
				op.Read[0].Width, op.Read[0].First = time.Hour, hour.Index-10
				op.Add = nil
				err := s.Do(context.Background(), op)
				require.ErrorContains(t, err, "get bucket "+bucket+`: holds "more than 1024 bytes", want a count`)
				require.NotContains(t, err.Error(), "secret")
				require.EqualValues(t, 1, add(t, s, other, 1, int64(size)))
				f.Erase = true
				require.NoError(t, s.Forget(context.Background(), f))
				require.ErrorIs(t, try.Err(rawClient(addrs[1]).Get(item)), gomemcache.ErrCacheMiss)
			}
			require.Zero(t, s.Report().HitsLeft)
		})
	}
}
