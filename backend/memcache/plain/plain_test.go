package plain_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memcache/plain"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// patience is the timeout of requests for which slowness is no failure.
const patience = 20 * time.Second

func client(t testing.TB, addrs ...string) *memcache.Client {
	c := memcache.New(addrs...)
	c.Timeout, c.MaxIdleConns = patience, 256
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func newStore(t testing.TB, c *memcache.Client) *plain.Store { return try.To(plain.New(c))(t) }

func adding(n int64, minutes ...int64) *backend.Request {
	r := &backend.Request{Key: "k", Ladder: tiers.Default, Now: time.Now(), N: n}
	for _, index := range minutes {
		r.Add = append(r.Add, backend.Slot{Bucket: tiers.Bucket{Width: time.Minute, Index: index}, TTL: time.Hour})
	}
	return r
}

func read(t testing.TB, s backend.Store, n int) []int64 {
	r := &backend.Request{Key: "k", Read: []backend.Span{{Width: time.Minute, Counts: make([]int64, n)}}}
	require.NoError(t, s.Do(t.Context(), r))
	return r.Read[0].Counts
}

func TestConformance(t *testing.T) {
	s := newStore(t, client(t, servertest.Memcached(t)))
	backendtest.Run(t, func(testing.TB) backend.Store { return s })
}

func TestNoClient(t *testing.T) {
	require.EqualError(t, try.Err(plain.New(nil)), "memcache: NewFromClient: client is nil, want a gomemcache client")
}

// One server or several, and the client is left as it is.
func TestServers(t *testing.T) {
	addr, other := servertest.Memcached(t), servertest.Memcached(t)
	for name, addrs := range map[string][]string{"one": {addr}, "two": {addr, other}} {
		t.Run(name, func(t *testing.T) {
			c := client(t, addrs...)
			require.NoError(t, c.FlushAll())
			s := newStore(t, c)
			minutes, want := make([]int64, 100), make([]int64, 2500)
			for i := range minutes {
				minutes[i], want[i] = int64(i), 3
			}
			r := adding(3, minutes...)
			require.NoError(t, s.Do(t.Context(), r))
			require.False(t, r.Ordered)
			require.Equal(t, want, read(t, s, 2500))
		})
	}
}

// With gomemcache's own selector a key has buckets on two servers: the server that is
// down fails the read, and additions confirmed by the other are reported.
func TestOneServerOfTwoIsDown(t *testing.T) {
	server := servertest.StartMemcached(t)
	s := newStore(t, client(t, server.Addr, servertest.Memcached(t)))
	r := adding(1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	require.NoError(t, s.Do(t.Context(), r))
	server.Kill()
	require.Error(t, s.Do(t.Context(), &backend.Request{Key: "k", Read: []backend.Span{{Width: time.Minute, Counts: make([]int64, 16)}}}))
	require.Error(t, s.Do(t.Context(), r))
	confirmed := 0
	for _, slot := range r.Add {
		if slot.Count > 0 {
			require.EqualValues(t, 2, slot.Count)
			confirmed++
		}
	}
	require.Positive(t, confirmed)
	require.Less(t, confirmed, 16)
}

// Calls to a server that stands still return by their deadline, and leave a bounded
// number of goroutines behind. Additions that are answered within the client's
// Timeout are undone.
func TestASilentServer(t *testing.T) {
	server := servertest.StartMemcached(t)
	s := newStore(t, client(t, server.Addr))
	require.NoError(t, s.Do(t.Context(), adding(1, 0, 1, 2)))
	server.Pause()
	defer server.Resume()
	before := runtime.NumGoroutine()
	for i := range 300 {
		r := adding(1, 0, 1, 2)
		r.Deadline = time.Now().Add(5 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		if i%2 == 0 {
			r.Deadline = time.Time{}
			time.AfterFunc(5*time.Millisecond, cancel)
		}
		began := time.Now()
		err := s.Do(ctx, r)
		cancel()
		require.Truef(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled), "%v", err)
		require.Less(t, time.Since(began), patience/2)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+6*256)
	server.Resume()
	require.Eventually(t, func() bool { return s.Report().LateAnswers == 3*256 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return read(t, s, 3)[0] == 1 }, patience, time.Millisecond)
	require.Zero(t, s.Report().HitsLeft)
}

// An addition that is answered after the client's Timeout stays, and is counted.
func TestAnAnswerAfterTheTimeout(t *testing.T) {
	server := servertest.StartMemcached(t)
	c := client(t, server.Addr)
	s := newStore(t, c)
	require.NoError(t, s.Do(t.Context(), adding(1, 0)))
	c.Timeout = 50 * time.Millisecond
	server.Pause()
	defer server.Resume()
	require.Error(t, s.Do(t.Context(), adding(1, 0)))
	require.EqualValues(t, 1, s.Report().HitsLeft)
}

// The answers to an addition of 5. gomemcache panics on some answers that no memcached
// gives. Of two callers that find no item one adds it, and the other increments.
func TestAnswersToAnAddition(t *testing.T) {
	for name, row := range map[string]struct {
		answers []string
		count   int64
		err     string
	}{
		"new":             {[]string{"NOT_FOUND\r\n", "STORED\r\n"}, 5, ""},
		"a lost race":     {[]string{"NOT_FOUND\r\n", "NOT_STORED\r\n", "6\r\n"}, 6, ""},
		"without end":     {strings.SplitAfter(strings.Repeat("NOT_FOUND\r\nNOT_STORED\r\n", 12), "\r\n"), 0, "add bucket 1m1: the item came and went 12 times"},
		"a newline":       {[]string{"\n"}, 0, "not understood"},
		"nonsense":        {[]string{"5 apples\r\n"}, 0, "incr bucket 1m1: "},
		"wrapped":         {[]string{"4\r\n"}, 0, "held a number of 2^63 or more"},
		"an error":        {[]string{"SERVER_ERROR oh\r\n"}, 0, "SERVER_ERROR oh"},
		"beyond MaxCount": {[]string{"9007199254740995\r\n", "9007199254740990\r\n"}, 0, "would hold 9007199254740995: the count would exceed 2^53-1"},
		"huge":            {[]string{"18446744073709551615\r\n"}, 0, "held a number of 2^63 or more"},
	} {
		var next atomic.Int64
		addr := servertest.Serve(t, func(conn net.Conn) {
			for in := bufio.NewScanner(conn); in.Scan(); {
				if strings.HasPrefix(in.Text(), "add") {
					in.Scan()
				}
				fmt.Fprint(conn, row.answers[min(int(next.Add(1)), len(row.answers))-1])
			}
		})
		r := adding(5, 1)
		err := newStore(t, client(t, addr)).Do(t.Context(), r)
		require.Equal(t, row.count, r.Add[0].Count, name)
		if row.err != "" {
			require.ErrorContains(t, err, row.err, name)
		} else {
			require.NoError(t, err, name)
		}
		require.GreaterOrEqual(t, next.Load(), min(int64(len(row.answers)), 24), "%s: all are asked for", name)
	}
}

// Check and Erase report the missing commands.
func TestWhatItCannotDo(t *testing.T) {
	s := newStore(t, client(t, servertest.Memcached(t)))
	require.ErrorIs(t, s.CheckServers(t.Context(), &backend.CheckRequest{Key: "ab:?check"}), backend.ErrCondition)
	err := newStore(t, client(t, "127.0.0.1:1")).CheckServers(t.Context(), &backend.CheckRequest{Key: "ab:?check"})
	require.False(t, errors.Is(err, backend.ErrCondition), "%v", err)
	require.ErrorContains(t, err, "connection refused")
	ladder := tiers.For(time.Hour)
	err = s.Forget(t.Context(), &backend.ForgetRequest{Key: "k", Ladder: ladder, TTLs: make([]time.Duration, ladder.Len()), Now: time.Now(), Erase: true})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
