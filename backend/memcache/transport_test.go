package memcache_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// A proxy repeats an answer, leaves one out, or adds an END, to calls that share a
// connection: no call gets a wrong number, and the first that would have is an error.
func TestAnswersInDisorder(t *testing.T) {
	const calls = 3
	const seven, none = "VALUE %s 0 1\r\n7\r\nEND\r\n", "END\r\n"
	for name, row := range map[string]struct {
		first, second string // answers, before the trick
		trick         func(answer string) string
	}{
		"repeated": {none, seven, func(a string) string { return a + a }},
		"left out": {seven, none, func(string) string { return "" }},
		"inserted": {seven, seven, func(a string) string { return none + a }},
	} {
		for _, adds := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", adds ", adds), func(t *testing.T) {
				asked := make(chan struct{}, calls)
				addr := servertest.Serve(t, func(conn net.Conn) {
					var answers string
					in := bufio.NewReader(conn)
					for gets := 0; ; {
						line, err := in.ReadString('\n')
						if err != nil {
							return
						}
						line = strings.TrimSpace(line)
						if line == "ma |abacus D0" {
							fmt.Fprint(conn, "NF\r\n")
							continue
						} else if bucket, ok := strings.CutPrefix(line, "get "); !ok {
							answers += metaAnswer(line, 1)
						} else {
							answer := row.first
							if gets > 0 {
								answer = row.second
							}
							if answer == seven {
								answer = fmt.Sprintf(seven, bucket)
							}
							if gets == 0 {
								answer = row.trick(answer)
							}
							answers += answer
							gets++
							asked <- struct{}{}
						}
						if gets == calls && in.Buffered() == 0 {
							fmt.Fprint(conn, answers)
							answers = ""
						}
					}
				})
				s := newStore(t, memcache.Config{Conns: 1, IOTimeout: time.Second}, addr)
				results, numbers := make([]error, calls), make([]int64, calls)
				var all sync.WaitGroup
				for i := range calls {
					all.Go(func() {
						op := adding("k", 1)
						if adds {
							op.Add = []backend.Slot{slot(int64(i))}
						}
						op.Read = []backend.Span{{Width: time.Minute, First: int64(i), Counts: make([]int64, 1)}}
						results[i] = s.Do(context.Background(), op)
						numbers[i] = op.Read[0].Counts[0]
					})
					<-asked
				}
				all.Wait()
				failed := 0
				for i, err := range results {
					want := int64(0)
					if i == 0 && row.first == seven || i > 0 && row.second == seven {
						want = 7
					}
					if err != nil {
						failed++
					} else if numbers[i] != want {
						t.Errorf("call %d: %d, want %d or an error", i, numbers[i], want)
					}
				}
				require.Positive(t, failed)
			})
		}
	}
}

// A taking back that has to wait for a connection is made though its call has
// returned.
func TestATakingBackOutlivesItsCall(t *testing.T) {
	release := make(chan struct{})
	server := newFake(t, true, func(line string) string { return metaAnswer(line, 4) })
	s := newStore(t, memcache.Config{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		<-release
		return new(net.Dialer).DialContext(ctx, network, address)
	}}, server.addr)
	op := adding("k", -1, slot(1))
	op.Deadline = time.Now().Add(20 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
	require.Zero(t, s.Stats().TakingBackFailed, "it is under way")
	close(release)
	require.Equal(t, "ma k|1m1 v MD D1", tag.ReplaceAllString(server.next(t), ""))
	idle(t, s)
	require.Zero(t, s.Stats().TakingBackFailed)
}

// A server that does not know ma, or hangs up when asked, is served without meta
// commands.
func TestServersWithoutMetaCommands(t *testing.T) {
	for name, answer := range map[string]string{"does not know it": "ERROR\r\n", "a proxy that refuses": "CLIENT_ERROR bad command\r\n", "hangs up": ""} {
		t.Run(name, func(t *testing.T) {
			addr := servertest.Memcached(t)
			old := relay(t, addr, map[string]string{"ma": answer})
			s := newStore(t, memcache.Config{}, old)
			for want := range int64(3) {
				op := readingToo(adding("k", 1, slot(20)))
				require.NoError(t, s.Do(context.Background(), op))
				require.Equal(t, want+1, op.Add[0].Count)
				require.False(t, op.Ordered)
			}
			require.EqualValues(t, 2, add(t, s, "k", -1, 20))
			require.EqualValues(t, 2, read(t, s, "k", time.Minute, 20, 1)[0])
		})
	}
}

// A server that has hung up when asked for meta commands is asked again a second later.
func TestTheDialectIsAskedForAgain(t *testing.T) {
	t.Parallel()
	addr := servertest.Memcached(t)
	var upgraded atomic.Bool
	old := relay(t, addr, map[string]string{"ma": ""})
	s := newStore(t, memcache.Config{}, servertest.Serve(t, func(conn net.Conn) {
		if upgraded.Load() {
			join(conn, addr)
		} else {
			join(conn, old)
		}
	}))
	ordered := func() bool {
		op := readingToo(adding("k", 1, slot(20)))
		require.NoError(t, s.Do(context.Background(), op))
		return op.Ordered
	}
	require.False(t, ordered())
	upgraded.Store(true)
	require.False(t, ordered())
	require.Eventually(t, ordered, patience, 10*time.Millisecond)
	require.True(t, ordered())
	idle(t, s)
}

// Ordered is told where it is certain, and where not, is not.
func TestOrdered(t *testing.T) {
	addr := servertest.Memcached(t)
	for _, row := range []struct {
		name string
		cfg  memcache.Config
		n    int64
		read int
		want bool
	}{
		{"direct", memcache.Config{}, 1, 50, true},
		{"several multi-gets", memcache.Config{}, 1, 3000, true},
		{"several requests", memcache.Config{}, 1, 5000, true},
		{"a taking back", memcache.Config{}, -1, 50, false},
		{"through a proxy", memcache.Config{Proxied: true}, 1, 50, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStore(t, row.cfg, addr)
			op := adding("k", row.n, slot(1))
			op.Read = []backend.Span{{Width: time.Minute, First: 1, Counts: make([]int64, row.read)}}
			op.Ordered = true
			require.NoError(t, s.Do(context.Background(), op))
			require.Equal(t, row.want, op.Ordered)
			if row.want {
				require.Equal(t, op.Add[0].Count, op.Read[0].Counts[0])
			}
			op.Deadline = time.Now()
			require.Error(t, s.Do(context.Background(), op))
			require.False(t, op.Ordered, "filled in by a call that fails")
		})
	}
}

// Requests beyond the buffers of a connection, of many callers at once.
func TestLargeRequests(t *testing.T) {
	s := newStore(t, memcache.Config{}, servertest.Memcached(t))
	crowd(16, func(i int) {
		key := fmt.Sprintf("%0200d", i)
		for range long.Rounds(4, 10) {
			op := adding(key, 1)
			for index := range int64(50) {
				op.Add = append(op.Add, slot(index))
			}
			op.Read = []backend.Span{{Width: time.Minute, Counts: make([]int64, 4000)}}
			if err := s.Do(context.Background(), op); err != nil {
				t.Error(err)
				return
			}
			for index, n := range op.Read[0].Counts {
				if index < 50 && n != op.Add[index].Count || index >= 50 && n != 0 {
					t.Errorf("bucket %d was read as %d", index, n)
					return
				}
			}
		}
	})
}

// Calls end at random, by their contexts and by their deadlines, on a connection that all
// share: each caller returns at its end, and the others are answered. Each addition is
// either confirmed to its caller or taken back.
func TestCallersThatHangUp(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Memcached(t), 2*time.Millisecond)
	s := newStore(t, memcache.Config{Conns: 1}, proxy.Addr)
	add(t, s, "connected", 1, 1)
	var confirmed [4]atomic.Int64
	crowd(24, func(i int) {
		for range 40 {
			ctx, cancel := context.WithCancel(context.Background())
			op := readingToo(adding("k", 3, slot(0), slot(1), slot(2), slot(3)))
			switch i % 3 {
			case 1:
				time.AfterFunc(rand.N(7*time.Millisecond), cancel)
			case 2:
				op.Deadline = time.Now().Add(rand.N(7 * time.Millisecond))
			}
			err := s.Do(ctx, op)
			cancel()
			for k, slot := range op.Add {
				if slot.Count > 0 {
					confirmed[k].Add(3)
				}
			}
			if i%3 == 0 && err != nil {
				t.Error(err)
			}
		}
	})
	idle(t, s)
	for k, got := range read(t, s, "k", time.Minute, 0, 4) {
		require.Equal(t, confirmed[k].Load(), got)
	}
	st := s.Stats()
	require.Positive(t, st.LateAdditions)
	require.Equal(t, st.LateAdditions, st.TakenBack)
	require.LessOrEqual(t, proxy.Conns(), 160, "640 calls that may have no answer do not cost a connection each")
}

// fullConn is a connection whose buffers are full while full is true.
type fullConn struct {
	*net.TCPConn
	full  *atomic.Bool
	until time.Time
}

func (c *fullConn) SetWriteDeadline(until time.Time) error {
	c.until = until
	return c.TCPConn.SetWriteDeadline(until)
}

func (c *fullConn) Write(b []byte) (int, error) {
	for c.full.Load() {
		if !time.Now().Before(c.until) {
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(time.Millisecond)
	}
	return c.TCPConn.Write(b)
}

// A caller whose request the server does not take returns when its context ends,
// long before its deadline. The request is sent when there is room again.
func TestAContextThatEndsDuringAWrite(t *testing.T) {
	var full atomic.Bool
	s := newStore(t, memcache.Config{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &fullConn{TCPConn: conn.(*net.TCPConn), full: &full}, nil
	}}, servertest.Memcached(t))
	add(t, s, "connected", 1, 1)
	full.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	op := adding("k", 1, slot(1))
	op.Deadline = time.Now().Add(patience)
	require.ErrorIs(t, s.Do(ctx, op), context.DeadlineExceeded)
	require.Greater(t, time.Until(op.Deadline), patience/2)
	full.Store(false)
	idle(t, s)
	require.EqualValues(t, 1, s.Stats().TakenBack)
}

// A connection that leads nowhere is replaced at once, and listened on.
func TestAConnectionThatLeadsNowhere(t *testing.T) {
	addr := servertest.Memcached(t)
	proxy := servertest.NewProxy(t, addr, 0)
	var direct atomic.Bool
	s := newStore(t, memcache.Config{Conns: 1, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if direct.Load() {
			address = addr
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}, proxy.Addr)
	require.EqualValues(t, 1, add(t, s, "k", 1, 1))
	proxy.Pause()
	direct.Store(true)
	op := adding("k", 1, slot(1))
	op.Deadline = time.Now().Add(300 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
	require.EqualValues(t, 2, add(t, s, "k", 1, 1))
	require.Eventually(t, func() bool { return s.Stats().InFlight == 0 }, patience, time.Millisecond)
	require.Equal(t, 1, s.Stats().Listening)
	proxy.Resume()
	idle(t, s)
	require.EqualValues(t, 2, read(t, s, "k", time.Minute, 1, 1)[0], "the late addition was taken back")
	require.EqualValues(t, 1, s.Stats().TakenBack)
}

// tlsRelay passes connections over TLS on to the memcached at addr. cut closes all.
func tlsRelay(t *testing.T, addr string) (dial func(ctx context.Context, network, address string) (net.Conn, error), relay string, cut func()) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	conf := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: server.TLS.Certificates}
	conf.RootCAs.AddCert(server.Certificate())
	var mu sync.Mutex
	var conns []net.Conn
	relay = servertest.Serve(t, func(conn net.Conn) {
		over := tls.Server(conn, conf)
		mu.Lock()
		conns = append(conns, over)
		mu.Unlock()
		join(over, addr)
	})
	return (&tls.Dialer{Config: conf}).DialContext, relay, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			conn.Close()
		}
		conns = nil
	}
}

// An idle connection that the server has closed is not used, with meta commands and
// without.
func TestIdleTLSConnectionsThatDied(t *testing.T) {
	memcached := servertest.Memcached(t)
	old := relay(t, memcached, noMeta)
	for name, addr := range map[string]string{"meta commands": memcached, "without": old} {
		t.Run(name, func(t *testing.T) {
			dial, relay, cut := tlsRelay(t, addr)
			s := newStore(t, memcache.Config{DialContext: dial}, relay)
			for round := range 20 {
				op := adding(name[:4], 1, slot(1))
				require.NoError(t, s.Do(context.Background(), op), "round %d", round)
				require.EqualValues(t, round+1, op.Add[0].Count)
				cut()
			}
		})
	}
}

func TestTLS(t *testing.T) {
	dial, relay, _ := tlsRelay(t, servertest.Memcached(t))
	s := newStore(t, memcache.Config{DialContext: dial}, relay)
	var sum atomic.Int64
	crowd(8, func(caller int) {
		for range 300 {
			if caller == 0 { // a write that is cut ends a connection with TLS
				op := readingToo(adding("hurried", 1, slot(20)))
				op.Deadline = time.Now().Add(20 * time.Microsecond)
				s.Do(context.Background(), op)
				time.Sleep(time.Millisecond)
				continue
			}
			op := readingToo(adding("k", 1, slot(20)))
			op.Deadline = time.Now().Add(patience)
			assert.NoError(t, s.Do(context.Background(), op))
			sum.Add(1)
		}
	})
	require.Equal(t, sum.Load(), read(t, s, "k", time.Minute, 20, 1)[0])
}
