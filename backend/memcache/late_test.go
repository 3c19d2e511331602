package memcache_test

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/servertest"
)

// readingToo lets op read as well.
func readingToo(op *counter.Op) *counter.Op {
	op.Read = []counter.Span{{Width: time.Minute, First: 10, Counts: make([]int64, 50)}}
	return op
}

func idle(t testing.TB, s *memcache.Store) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Stats().InFlight == 0 }, patience, time.Millisecond)
}

func TestNothingIsSentTooLate(t *testing.T) {
	server := newFake(t, script())
	s := newStore(t, memcache.Config{}, server.addr)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Do(gone, adding("k", 1, slot(1))), context.Canceled)
	past := adding("k", 1, slot(1))
	past.Deadline = time.Now()
	err := s.Do(context.Background(), past)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.EqualError(t, err, "memcache: i/o timeout before the call")
	past.Add[0].Count = 7
	require.ErrorIs(t, s.Do(gone, past), context.Canceled, "the caller's own end is told first")
	require.Zero(t, past.Add[0].Count)
	idle(t, s)
	require.Empty(t, server.asked())
}

// A server that does not answer: calls return by their deadline, whether it is
// the op's, the context's or the store's; what they leave behind is bounded and
// ends by itself.
func TestASilentServer(t *testing.T) {
	t.Parallel()
	const inFlight = 10
	server := servertest.StartMemcached(t)
	silence(t, server)
	defer server.Resume()
	s := newStore(t, memcache.Config{Timeout: 2 * time.Second, MaxInFlight: inFlight}, server.Addr)
	call := func(ctx context.Context, deadline time.Duration) (time.Duration, error) {
		op := readingToo(adding("k", 1, slot(1), slot(2), slot(3)))
		began := time.Now()
		if deadline > 0 {
			op.Deadline = began.Add(deadline)
		}
		err := s.Do(ctx, op)
		return time.Since(began), err
	}
	spent, err := call(context.Background(), 30*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.EqualError(t, err, "memcache: "+server.Addr+": i/o timeout, without an answer")
	require.GreaterOrEqual(t, spent, 30*time.Millisecond)
	require.Less(t, spent, 500*time.Millisecond)

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	spent, err = call(ctx, patience)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, spent, 500*time.Millisecond)

	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { call(context.Background(), 20*time.Millisecond) })
	}
	wg.Wait()
	_, err = call(context.Background(), 20*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.ErrorContains(t, err, "the most requests, 10, were under way")
	require.Equal(t, inFlight, s.Stats().InFlight)
	require.GreaterOrEqual(t, s.Stats().Refused, int64(90))
	idle(t, s) // before the server answers again

	spent, err = call(context.Background(), 0)
	require.Error(t, err)
	require.Less(t, spent, patience/2, "the store's own timeout is two seconds")
}

// What calls leave behind while a server is silent is bounded in goroutines too:
// one for each request, and one more for each multi-get.
func TestGoroutinesAreBounded(t *testing.T) {
	const inFlight = 10
	server := servertest.StartMemcached(t)
	silence(t, server)
	defer server.Resume()
	s := newStore(t, memcache.Config{Timeout: time.Second, MaxInFlight: inFlight}, server.Addr)
	before, most := runtime.NumGoroutine(), 0
	for range 100 {
		op := readingToo(adding("k", 1, slot(1), slot(2), slot(3)))
		op.Deadline = time.Now().Add(3 * time.Millisecond)
		require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
		most = max(most, runtime.NumGoroutine())
	}
	require.LessOrEqual(t, most, before+2*inFlight)
	idle(t, s)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, patience, time.Millisecond) // one is Eventually's own
}

// A server that hangs does not stop calls to the others.
func TestOneServerOfTwoIsSilent(t *testing.T) {
	server, other := servertest.StartMemcached(t), servertest.Memcached(t)
	s := newStore(t, memcache.Config{MaxInFlight: 2}, server.Addr, other)
	silence(t, server)
	defer server.Resume()
	selector, err := memcache.NewSelector(server.Addr, other)
	require.NoError(t, err)
	answered := 0
	for i := range 40 {
		key := strings.Repeat("k", i+1)
		addr, err := selector.PickServer(key)
		require.NoError(t, err)
		op := adding(key, 1, slot(1))
		op.Deadline = time.Now().Add(5 * time.Millisecond)
		if addr.String() == other {
			op.Deadline = time.Now().Add(patience)
			require.NoError(t, s.Do(context.Background(), op))
			answered++
		} else {
			require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
		}
	}
	require.Greater(t, answered, 5)
	require.Less(t, answered, 35)
}

// Who trickles an answer does not hold a connection for longer than Timeout.
func TestATricklingServer(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	server := trickle(t, stop)
	s := newStore(t, memcache.Config{Timeout: 200 * time.Millisecond}, server)
	op := readingToo(adding("k", 1))
	op.Deadline = time.Now().Add(10 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
	idle(t, s)
}

// An addition whose answer comes after Do has returned is taken back, once.
func TestALateAnswerIsTakenBack(t *testing.T) {
	release := make(chan struct{})
	server := newFake(t, func(line string) string {
		switch {
		case strings.HasPrefix(line, "add k|1m1 "):
			<-release
			return "STORED\r\n"
		case strings.HasPrefix(line, "add k|1m2 "):
			return "STORED\r\n"
		case strings.HasPrefix(line, "add k|1m3 "):
			<-release
			return "NOT_STORED\r\n"
		}
		return "0\r\n"
	})
	s := newStore(t, memcache.Config{}, server.addr)
	op := adding("k", 4, slot(1), slot(2), slot(3))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for range 3 {
			<-server.lines
		}
		cancel()
	}()
	require.ErrorIs(t, s.Do(ctx, op), context.Canceled)
	confirmed := op.Add[1].Count
	require.Equal(t, []int64{0, 0}, []int64{op.Add[0].Count, op.Add[2].Count})
	close(release)
	asked := []string{server.next(t)}
	if confirmed == 0 { // its answer was still on the way
		asked = append(asked, server.next(t))
	}
	idle(t, s)
	require.Contains(t, asked, "decr k|1m1 4")
	require.Equal(t, confirmed == 0, len(asked) > 1 && (asked[0] == "decr k|1m2 4" || asked[1] == "decr k|1m2 4"))
	require.Empty(t, server.asked(), "once, and nothing more for what was not added")
	require.EqualValues(t, len(asked), s.Stats().LateAdditions)
	require.EqualValues(t, len(asked), s.Stats().TakenBack)
	require.Zero(t, op.Add[0].Count, "the op is the caller's")
}

// What was not sent yet when Do returns, or when a part has failed, is not sent.
func TestPartsThatHaveNotBegun(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		cancel bool
		asked  []string
	}{
		"Do has returned":   {"STORED", true, []string{"decr k|1m1 4"}},
		"a part has failed": {"SERVER_ERROR out of memory storing object", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			server := newFake(t, func(line string) string {
				if strings.HasPrefix(line, "add") {
					<-release
					return row.answer + "\r\n"
				}
				return "0\r\n"
			})
			s := newStore(t, memcache.Config{MaxInFlight: 1}, server.addr)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				<-server.lines
				if row.cancel {
					cancel()
				} else {
					close(release)
				}
			}()
			require.Error(t, s.Do(ctx, readingToo(adding("k", 4, slot(1), slot(2), slot(3)))))
			if row.cancel {
				close(release)
			}
			idle(t, s)
			require.Equal(t, row.asked, server.asked())
		})
	}
}

// Deadlines that fall on answers: each addition is either confirmed to the
// caller or taken back, so the buckets end at what was confirmed.
func TestEachAdditionIsConfirmedOrTakenBack(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Memcached(t), time.Millisecond)
	s := newStore(t, memcache.Config{}, proxy.Addr)
	var confirmed [4]atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 40 {
				op := readingToo(adding("k", 3, slot(0), slot(1), slot(2), slot(3)))
				op.Deadline = time.Now().Add(rand.N(5 * time.Millisecond))
				s.Do(context.Background(), op)
				for i, slot := range op.Add {
					if slot.Count > 0 {
						confirmed[i].Add(3)
					}
				}
			}
		})
	}
	wg.Wait()
	idle(t, s)
	for i, got := range read(t, s, "k", time.Minute, 0, 4) {
		require.Equal(t, confirmed[i].Load(), got)
	}
	st := s.Stats()
	require.Positive(t, st.LateAdditions)
	require.Equal(t, st.LateAdditions, st.TakenBack)
}

// The answers of real additions come when everybody has gone.
func TestAPauseLeavesNothingBehind(t *testing.T) {
	server := servertest.StartMemcached(t)
	s := newStore(t, memcache.Config{}, server.Addr)
	require.EqualValues(t, 1, add(t, s, "k", 1, 1))
	silence(t, server)
	want := make([]int64, 10)
	want[1] = 1
	for i := range int64(10) {
		op := readingToo(adding("k", 1, slot(i)))
		op.Deadline = time.Now().Add(5 * time.Millisecond)
		require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
		require.Zero(t, op.Add[0].Count)
	}
	server.Resume()
	idle(t, s)
	require.Equal(t, want, read(t, s, "k", time.Minute, 0, 10))
	st := s.Stats()
	require.Positive(t, st.LateAdditions)
	require.Equal(t, st.LateAdditions, st.TakenBack)
}
