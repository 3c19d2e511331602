package memcache_test

import (
	"bufio"
	"context"
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

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// Requests that came after an addition hold every token while the server is silent.
// The undo of the addition is made nevertheless, after its call has returned.
func TestAnUndoPassesTheGate(t *testing.T) {
	for _, meta := range []bool{true, false} {
		t.Run(fmt.Sprint("meta ", meta), func(t *testing.T) {
			const inFlight = 2
			release := make(chan struct{})
			server := newFake(t, meta, func(line string) string {
				if strings.HasPrefix(line, "ma held|") || strings.HasPrefix(line, "incr held|") {
					<-release
				}
				if strings.HasPrefix(line, "add ") {
					return "NOT_STORED\r\n"
				}
				if !meta {
					return "4\r\n"
				}
				return metaAnswer(line, 4)
			})
			s := newStore(t, memcache.Config{MaxInFlight: inFlight}, server.addr)
			var held sync.WaitGroup
			for i := range inFlight {
				held.Go(func() { s.Do(context.Background(), adding("held", 1, slot(int64(i)))) })
			}
			require.Eventually(t, func() bool { return s.Stats().InFlight == inFlight }, patience, time.Millisecond)
			undo := adding("k", -1, slot(1), slot(2))
			undo.Deadline = time.Now().Add(20 * time.Millisecond)
			err := s.Do(context.Background(), undo)
			require.Zero(t, s.Stats().TakingBackFailed, "it is under way: %v", err)
			close(release)
			held.Wait()
			idle(t, s)
			var undone int
			for _, line := range server.asked() {
				if strings.HasPrefix(line, "decr k|") || strings.HasPrefix(line, "ma k|") {
					undone++
				}
			}
			require.Equal(t, 2, undone)
			require.Zero(t, s.Stats().TakingBackFailed)
		})
	}
}

// An undo that goes on after its call has returned waits for its answer a minute at
// most, and after Close for IOTimeout: nothing of a closed store stays.
func TestCloseEndsUndos(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	var asked atomic.Int64
	server := newFake(t, false, func(string) string {
		if asked.Add(1) > 1 {
			<-release
		}
		return "SERVER_ERROR out of memory in decr\r\n"
	})
	before := runtime.NumGoroutine()
	s := newStore(t, memcache.Config{IOTimeout: 50 * time.Millisecond}, server.addr)
	require.Error(t, s.Do(context.Background(), adding("k", -1, slot(1))))
	require.Eventually(t, func() bool { return asked.Load() == 2 }, patience, time.Millisecond)
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return s.Stats().TakingBackFailed == 1 }, patience, time.Millisecond)
	idle(t, s)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, patience, time.Millisecond) // one of the server, and one is Eventually's own
}

// Each connection falls silent after its first answer, and callers have little time:
// connection after connection is replaced. No addition is given up for want of
// a listener, and none stays.
func TestManyConnectionsFallSilent(t *testing.T) {
	old, _ := oldMemcached(t)
	for name, addr := range map[string]string{"meta": servertest.Memcached(t), "classic": old} {
		t.Run(name, func(t *testing.T) { connectionsFallSilent(t, addr) })
	}
}

func connectionsFallSilent(t *testing.T, addr string) {
	release := make(chan struct{})
	relay := servertest.Serve(t, func(conn net.Conn) {
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			defer conn.Close()
			for answers, in := 0, bufio.NewScanner(server); in.Scan(); answers++ {
				if answers > 0 {
					<-release
				}
				if _, err := fmt.Fprintf(conn, "%s\r\n", in.Text()); err != nil {
					return
				}
			}
		}()
		server.(*net.TCPConn).ReadFrom(conn)
	})
	var dials atomic.Int64
	s := newStore(t, memcache.Config{DialContext: counting(&dials)}, relay)
	for last, same := int64(0), 0; same < 3 && last < 16; last = dials.Load() {
		op := adding("k", 1, slot(1))
		op.Deadline = time.Now().Add(70 * time.Millisecond)
		require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
		same++
		if dials.Load() > last {
			same = 0
		}
	}
	close(release)
	idle(t, s)
	require.Zero(t, read(t, s, "k", time.Minute, 1, 1)[0])
	st := s.Stats()
	require.Zero(t, st.Unanswered)
	require.Positive(t, st.LateAdditions)
	require.Equal(t, st.LateAdditions, st.TakenBack)
}

// A server without room refuses many undos again and again. Each undo is one of the undos
// under way, however often it is asked for, and all are made at last.
func TestRefusedUndosCrowdOutNone(t *testing.T) {
	const number, refusals = 9000, 3
	var tries [refusals + 1]atomic.Int64 // lines of each try
	release := make(chan struct{})
	addr := servertest.Serve(t, func(conn net.Conn) {
		asked := map[string]int{}
		for in := bufio.NewScanner(conn); in.Scan(); {
			word := strings.Fields(in.Text()) // ma NAME v MD D1 O<tag>
			answer := "NF\r\n"
			if len(word) == 6 {
				answer = "NF " + word[5] + "\r\n"
			}
			if strings.HasPrefix(word[1], "k|") {
				try := asked[word[1]]
				asked[word[1]]++
				if tries[try].Add(1) == 1 { // the others of this try are sent meanwhile
					if try == 0 {
						<-release
					}
					time.Sleep(200 * time.Millisecond)
				}
				if try < refusals {
					answer = "SERVER_ERROR out of memory in decr\r\n"
				}
			}
			if _, err := conn.Write([]byte(answer)); err != nil {
				return
			}
		}
	})
	s := newStore(t, memcache.Config{Conns: 1}, addr)
	require.NoError(t, s.Do(context.Background(), adding("connected", -1, slot(1))))
	undo := adding("k", -1)
	for i := range int64(number) {
		undo.Add = append(undo.Add, slot(i))
	}
	undo.Deadline = time.Now().Add(100 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), undo), os.ErrDeadlineExceeded)
	close(release)
	idle(t, s)
	require.Zero(t, s.Stats().TakingBackFailed)
	require.EqualValues(t, number, tries[refusals].Load())
}
