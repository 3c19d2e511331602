package memcache_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// readingToo adds a read to op.
func readingToo(op *backend.Request) *backend.Request {
	op.Read = []backend.Span{{Width: time.Minute, First: 10, Counts: make([]int64, 50)}}
	return op
}

// idle waits until no request is in flight and no connection listens.
func idle(t testing.TB, s *memcache.Store) {
	require.Eventually(t, func() bool { return s.Stats().InFlight == 0 && s.Stats().Listening == 0 }, patience, time.Millisecond)
}

// Calls to a server that does not answer return by the deadline of the request,
// of the context or of the store, and leave a bounded number of requests
// behind.
func TestASilentServer(t *testing.T) {
	t.Parallel()
	const inFlight, ioTimeout = 10, 2 * time.Second
	server := servertest.StartMemcached(t)
	s := newStore(t, memcache.Config{IOTimeout: ioTimeout, MaxInFlight: inFlight}, server.Addr)
	add(t, s, "connected", 1, 1)
	server.Pause()
	defer server.Resume()
	call := func(ctx context.Context, op *backend.Request, deadline time.Duration) (time.Duration, error) {
		began := time.Now()
		if deadline > 0 {
			op.Deadline = began.Add(deadline)
		}
		err := s.Do(ctx, op)
		return time.Since(began), err
	}
	three := func() *backend.Request { return readingToo(adding("k", 1, slot(1), slot(2), slot(3))) }
	spent, err := call(context.Background(), three(), 30*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.EqualError(t, err, "memcache: "+server.Addr+": i/o timeout, without an answer")
	require.GreaterOrEqual(t, spent, 30*time.Millisecond)
	long.Less(t, spent, ioTimeout)

	// Further additions would be counted for nobody, and further reads are of no
	// use.
	for _, op := range []*backend.Request{three(), readingToo(adding("k", 1))} {
		spent, err = call(context.Background(), op, 30*time.Millisecond)
		require.EqualError(t, err, "memcache: "+server.Addr+": i/o timeout: the server is silent, nothing was sent")
		require.GreaterOrEqual(t, spent, 30*time.Millisecond)
		long.Less(t, spent, ioTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	spent, err = call(ctx, three(), patience)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	long.Less(t, spent, ioTimeout)
	require.EqualValues(t, 3, s.Stats().Withheld)
	require.Equal(t, 1, s.Stats().InFlight)
	f := forgetting("k")
	f.Deadline = time.Now().Add(30 * time.Millisecond)
	require.ErrorIs(t, s.Forget(context.Background(), f), os.ErrDeadlineExceeded)
	require.ErrorIs(t, s.Forget(ctx, forgetting("k")), context.DeadlineExceeded)

	// Undos are sent beyond MaxInFlight.
	for range inFlight {
		_, err = call(context.Background(), adding("k", -1, slot(1)), 5*time.Millisecond)
		require.EqualError(t, err, "memcache: "+server.Addr+": i/o timeout, without an answer")
	}
	st := s.Stats()
	require.Equal(t, []int64{inFlight + 1, 1, 0, 0}, []int64{int64(st.InFlight), int64(st.Listening), st.Refused, st.TakingBackFailed})

	// The additions are listened for, beyond IOTimeout, and taken back.
	time.Sleep(ioTimeout + 500*time.Millisecond)
	require.Equal(t, 1, s.Stats().Listening)
	spent, err = call(context.Background(), three(), 0)
	require.Error(t, err)
	require.Less(t, spent, patience/2, "the store's own timeout is two seconds")
	server.Resume()
	idle(t, s)
	st = s.Stats()
	require.Equal(t, []int64{3, 3, 0, 0}, []int64{st.LateAdditions, st.TakenBack, st.TakingBackFailed, st.Unanswered})
	require.Equal(t, []int64{0, 0, 0}, read(t, s, "k", time.Minute, 1, 3))
}

// Calls to a silent server leave two goroutines behind: the reader of the answers
// and the dialler.
func TestGoroutinesAreBounded(t *testing.T) {
	server := servertest.StartMemcached(t)
	s := newStore(t, memcache.Config{IOTimeout: time.Second}, server.Addr)
	add(t, s, "connected", 1, 1)
	server.Pause()
	defer server.Resume()
	before, most := runtime.NumGoroutine(), 0
	for range 100 {
		op := readingToo(adding("k", 1, slot(1), slot(2), slot(3)))
		op.Deadline = time.Now().Add(3 * time.Millisecond)
		require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
		most = max(most, runtime.NumGoroutine())
	}
	require.LessOrEqual(t, most, before+10) // of 100 calls; some goroutines may be ending
	require.Equal(t, 1, s.Stats().Listening)
	require.NoError(t, s.Close())
	idle(t, s)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, patience, time.Millisecond) // the extra goroutine is Eventually's own
}

// A server that hangs does not stop calls to other servers.
func TestOneServerOfTwoIsSilent(t *testing.T) {
	server, other := servertest.StartMemcached(t), servertest.Memcached(t)
	s := newStore(t, memcache.Config{MaxInFlight: 2}, server.Addr, other)
	server.Pause()
	defer server.Resume()
	selector := try.To(memcache.NewSelector(server.Addr, other))(t)
	answered := 0
	for i := range 40 {
		key := strings.Repeat("k", i+1)
		addr := try.To(selector.PickServer(key))(t)
		op := adding(key, 1, slot(1))
		op.Deadline = time.Now().Add(5 * time.Millisecond)
		if addr.String() == other {
			op.Deadline = time.Now().Add(patience)
			require.NoError(t, s.Do(context.Background(), op))
			require.NoError(t, s.Forget(context.Background(), forgetting(key)))
			answered++
		} else {
			require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
		}
	}
	require.Greater(t, answered, 5)
	require.Less(t, answered, 35)
}

// A server that trickles does not hold a connection for longer than IOTimeout.
func TestATricklingServer(t *testing.T) {
	server := servertest.Serve(t, func(conn net.Conn) {
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			return
		}
		_, err := fmt.Fprint(conn, "NF\r\n")
		for i := 10; err == nil; i++ {
			_, err = fmt.Fprintf(conn, "VALUE k|1m%d 0 1\r\n7\r\n", i)
			time.Sleep(10 * time.Millisecond)
		}
	})
	s := newStore(t, memcache.Config{IOTimeout: 200 * time.Millisecond}, server)
	op := readingToo(adding("k", 1))
	op.Deadline = time.Now().Add(10 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
	idle(t, s)
}

// A server stands still while callers wait. None of their hits stays, however
// long the standstill and whatever IOTimeout, and a second later all room is
// free.
func TestAStandstillLeavesNothingBehind(t *testing.T) {
	for _, row := range []struct {
		pause time.Duration
		max   int64 // 10 more than the hits before: with those, the buckets exist, and all additions are made
		taken int
	}{{350 * time.Millisecond, 10, 0}, {2 * time.Second, 10, 0}, {2 * time.Second, 15, 5}, {10 * time.Second, 10, 0}} {
		t.Run(fmt.Sprint(row.pause, " after ", row.taken), func(t *testing.T) {
			if row.pause > 2*time.Second {
				long.Only(t, "10 s of real time; shorter standstills are tried")
			}
			t.Parallel()
			server := servertest.StartMemcached(t)
			s := newStore(t, memcache.Config{IOTimeout: memcache.DefaultIOTimeout}, server.Addr)
			c, patient := newCounter(t, s, counter.Config{Patience: 250 * time.Millisecond, Now: time.Now}), newCounter(t, s, counter.Config{Now: time.Now})
			key, limits := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, counter.Limits{{Max: row.max, Per: time.Hour}}
			var admitted atomic.Int64
			take := func(c *counter.Counter) (counter.Verdict, error) {
				v, err := c.Take(context.Background(), key, 1, limits)
				if v.Allowed {
					admitted.Add(1)
				}
				return v, err
			}
			for range row.taken {
				take(patient)
			}
			require.EqualValues(t, row.taken, admitted.Swap(0))
			add(t, s, "connected", 1, 1)
			server.Pause()
			var wg sync.WaitGroup
			began := time.Now()
			for range 12 {
				wg.Go(func() {
					for time.Since(began) < row.pause {
						take(c)
					}
				})
			}
			time.Sleep(row.pause - time.Since(began))
			require.Zero(t, admitted.Load())
			server.Resume()
			resumed := time.Now()
			for admitted.Load() < 10 && time.Since(resumed) < patience {
				take(c)
			}
			wg.Wait()
			require.EqualValues(t, 10, admitted.Load())
			idle(t, s)
			require.False(t, try.To(take(patient))(t).Allowed)
			st := s.Stats()
			require.Positive(t, st.LateAdditions)
			require.Equal(t, st.LateAdditions, st.TakenBack)
			require.Zero(t, st.TakingBackFailed)
			require.Zero(t, st.Unanswered)
		})
	}
}

// A taking back is made to its end whatever happens to its call, is sent once,
// and is counted if it fails.
func TestTakingsBackAreOwed(t *testing.T) {
	release := make(chan struct{})
	server := newFake(t, false, func(line string) string {
		switch {
		case strings.HasPrefix(line, "decr k|1m1 "):
			<-release
			return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
		case strings.HasPrefix(line, "get "):
			return "END\r\n"
		}
		return "1\r\n"
	})
	s := newStore(t, memcache.Config{MaxInFlight: 1}, server.addr)
	read(t, s, "connected", time.Minute, 1, 1)
	server.asked()
	op := readingToo(adding("k", -1, slot(1), slot(2), slot(3)))
	op.Deadline = time.Now().Add(300 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
	require.Zero(t, s.Stats().TakingBackFailed, "it is under way")
	close(release)
	idle(t, s)
	require.Equal(t, []string{"decr k|1m1 1", "decr k|1m2 1", "decr k|1m3 1"}, server.asked()[:3])
	require.EqualValues(t, 1, s.Stats().TakingBackFailed)

	late := adding("k", -1, slot(1), slot(2))
	late.Deadline = time.Now()
	require.ErrorIs(t, s.Do(context.Background(), late), os.ErrDeadlineExceeded)
	require.EqualValues(t, 3, s.Stats().TakingBackFailed)
	require.Empty(t, server.asked())
}

// Calls that race for the last room below 2^53 are admitted or find the bucket
// full; none finds the store failing, and no hit is lost.
func TestRacersNearMaxCount(t *testing.T) {
	addr := servertest.Memcached(t)
	s := newStore(t, memcache.Config{}, addr)
	const places, racers = 3, 40
	const start int64 = backend.MaxCount - places*(backend.MaxCount/8)
	require.EqualValues(t, start, add(t, s, "k", start, 1))
	var admitted, full atomic.Int64
	crowd(racers, func(int) {
		for range 20 {
			op := adding("k", backend.MaxCount/8, slot(1))
			op.Read = []backend.Span{{Width: time.Minute, First: 1, Counts: make([]int64, 1)}}
			switch err := s.Do(context.Background(), op); {
			case err == nil:
				admitted.Add(1)
			case errors.Is(err, backend.ErrMaxCount):
				full.Add(1)
			default:
				t.Error(err)
			}
		}
	})
	idle(t, s)
	require.LessOrEqual(t, admitted.Load(), int64(places))
	require.EqualValues(t, racers*20, admitted.Load()+full.Load())
	require.Equal(t, []int64{start + admitted.Load()*(backend.MaxCount/8)}, read(t, s, "k", time.Minute, 1, 1))
	require.Zero(t, s.Stats().TakingBackFailed)
}
