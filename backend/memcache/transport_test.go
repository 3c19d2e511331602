package memcache_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

var tag = regexp.MustCompile(` O\d+`)

// untagged are the lines received so far, without the tags of additions.
func (f *fake) untagged() (lines []string) {
	for _, line := range f.asked() {
		lines = append(lines, tag.ReplaceAllString(line, ""))
	}
	return lines
}

// The answers to an addition.
func TestAnswersToAnAddition(t *testing.T) {
	const ma, back = "ma k|1m1 v N3662 J5 D5", "ma k|1m1 v MD D5"
	value := func(count uint64) func(string) string {
		return func(line string) string { return metaAnswer(line, count) }
	}
	text := func(answer string) func(string) string {
		return func(line string) string {
			return strings.ReplaceAll(answer, "TAG", line[strings.LastIndexByte(line, 'O'):])
		}
	}
	for name, row := range map[string]struct {
		answers []func(string) string
		asked   []string
		count   int64
		err     string
		open    bool // the connection is used again
	}{
		"new":                  {[]func(string) string{value(5)}, []string{ma}, 5, "", true},
		"there":                {[]func(string) string{value(12)}, []string{ma}, 12, "", true},
		"with a space":         {[]func(string) string{text("VA 3 TAG\r\n12 \r\n")}, []string{ma}, 12, "", true},
		"wrapped":              {[]func(string) string{value(4)}, []string{ma}, 0, "ma bucket 1m1: held a number of 2^63 or more, want a count of at most 9007199254740991", true},
		"huge":                 {[]func(string) string{value(1 << 63)}, []string{ma}, 0, "ma bucket 1m1: held a number of 2^63 or more", true},
		"beyond MaxCount":      {[]func(string) string{value(9007199254740992), value(9007199254740987)}, []string{ma, back}, 0, "ma bucket 1m1: would hold 9007199254740992: the count would exceed 2^53-1", true},
		"no number":            {[]func(string) string{text("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n")}, []string{ma}, 0, "ma bucket 1m1: CLIENT_ERROR cannot increment", true},
		"no room":              {[]func(string) string{text("SERVER_ERROR out of memory\r\n")}, []string{ma}, 0, "ma bucket 1m1: SERVER_ERROR out of memory", true},
		"not there":            {[]func(string) string{text("NF TAG\r\n")}, []string{ma}, 0, "ma: unexpected answer", false},
		"no tag":               {[]func(string) string{text("VA 2\r\n12\r\n")}, []string{ma}, 0, "ma: unexpected answer \"VA 2\"", false},
		"another's tag":        {[]func(string) string{text("VA 2 TAG0\r\n12\r\n")}, []string{ma}, 0, "ma: unexpected answer \"VA 2 O", false},
		"more than the tag":    {[]func(string) string{text("VA 2 TAG t5\r\n12\r\n")}, []string{ma}, 0, "ma: unexpected answer", false},
		"nonsense":             {[]func(string) string{text("VA 8 TAG\r\n5 apples\r\n")}, []string{ma}, 0, `ma bucket 1m1: answered "5 apples", want a number`, true},
		"longer than it says":  {[]func(string) string{text("VA 1 TAG\r\n12\r\n")}, []string{ma}, 0, "ma: unexpected answer", false},
		"less than nothing":    {[]func(string) string{text("VA -1 TAG\r\n12\r\n")}, []string{ma}, 0, "ma: unexpected answer", false},
		"a megabyte":           {[]func(string) string{text("VA 1048576 TAG\r\n12\r\n")}, []string{ma}, 0, "ma: unexpected answer", false},
		"a line without end":   {[]func(string) string{text("VA 1 " + strings.Repeat("O", 1000))}, []string{ma}, 0, "ma: a line of more than 512 bytes", false},
		"a line of a newline":  {[]func(string) string{text("\n")}, []string{ma}, 0, `ma: unexpected answer ""`, false},
		"an answer like Redis": {[]func(string) string{text("-ERR unknown command\r\n")}, []string{ma}, 0, "-ERR unknown command", false},
		"not known any more":   {[]func(string) string{text("ERROR\r\n")}, []string{ma}, 0, "ma: the server has no meta commands", false},
		"two answers":          {[]func(string) string{text("VA 1 TAG\r\n5\r\nVA 1 TAG\r\n5\r\n")}, []string{ma}, 5, "", false},
		"the end":              {[]func(string) string{text("")}, []string{ma}, 0, "ma: the server closed the connection", false},
	} {
		t.Run(name, func(t *testing.T) {
			var next, conns atomic.Int64
			server := newMetaFake(t, func(line string) string {
				if i := int(next.Add(1)) - 1; i < len(row.answers) {
					return row.answers[i](line)
				}
				return metaAnswer(line, 1)
			})
			s := newStore(t, memcache.Config{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conns.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			}}, server.addr)
			op := addFive(t, s, server.addr, row.err)
			require.Equal(t, row.err == "", op.Ordered)
			require.Equal(t, row.count, op.Add[0].Count)
			require.Equal(t, row.asked, server.untagged())
			idle(t, s)
			if name == "not known any more" {
				return
			}
			require.EqualValues(t, 0, add(t, s, "k", -1, 2)-1)
			require.Equal(t, row.open, conns.Load() == 1)
		})
	}
}

// The answers to a multi-get of the minutes from 10 to 59 and of two seconds.
func TestAnswersToAMultiGet(t *testing.T) {
	const seven = "VALUE k|1m17 0 1\r\n7\r\n"
	for name, row := range map[string]struct{ answer, err string }{
		"nothing":                {"END\r\n", ""},
		"items":                  {seven + "VALUE k|1m59 4 2\r\n10\r\nVALUE k|1s5 0 2\r\n2 \r\nEND\r\n", ""},
		"then an error":          {seven + "SERVER_ERROR out of memory writing get response\r\n", "get: SERVER_ERROR out of memory writing get response"},
		"then a wrong value":     {seven + "VALUE k|1m18 0 1\r\nx\r\nEND\r\n", `get bucket 1m18: holds "x", want a count`},
		"another key's":          {"VALUE j|1m11 0 1\r\n1\r\nEND\r\n", "get: answered with an item that was not asked for"},
		"another tier's":         {"VALUE k|1h11 0 1\r\n1\r\nEND\r\n", "get: answered with an item that was not asked for"},
		"another bucket":         {"VALUE k|1m60 0 1\r\n1\r\nEND\r\n", "get: answered with an item that was not asked for"},
		"a bucket before":        {"VALUE k|1m9 0 1\r\n1\r\nEND\r\n", "get: answered with an item that was not asked for"},
		"written in another way": {"VALUE k|1m011 0 1\r\n1\r\nEND\r\n", "get: answered with an item that was not asked for"},
		"twice":                  {seven + seven + "END\r\n", "get: answered with an item that was not asked for"},
		"in another order":       {"VALUE k|1m18 0 1\r\n7\r\n" + seven + "END\r\n", "get: answered with an item that was not asked for"},
		"too long":               {"VALUE k|1m17 0 1\r\n77\r\nEND\r\n", "get: unexpected answer"},
		"huge":                   {"VALUE k|1m17 0 2000000\r\n", `get: unexpected answer "VALUE ...|1m17 0 2000000"`},
		"longer than it says":    {"VALUE k|1m17 0 1025\r\n" + strings.Repeat("x", 1026) + "\nEND\r\n", "get: unexpected answer \"a value that is longer than it says\""},
		"no size":                {"VALUE k|1m17\r\n", "get: unexpected answer"},
		"no get":                 {"VA 1 O1\r\n1\r\n", "get: unexpected answer"},
		"unknown":                {"ERROR\r\n", "get: unexpected answer"},
		"cut":                    {"VALUE k|1m17 0 1\r\n", `get: unexpected answer "VALUE ...|1m17 0 1"`},
	} {
		t.Run(name, func(t *testing.T) {
			server := newMetaFake(t, func(string) string { return row.answer })
			s := newStore(t, memcache.Config{}, server.addr)
			op := readingToo(adding("k", 1))
			op.Read = append(op.Read, backend.Span{Width: time.Second, First: 5, Counts: []int64{7, 7}})
			err := s.Do(context.Background(), op)
			if row.err != "" {
				require.ErrorContains(t, err, "memcache: "+server.addr+": ")
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			want := make([]int64, 50)
			seconds := []int64{0, 0}
			if name == "items" {
				want[7], want[49], seconds[0] = 7, 10, 2
			}
			require.Equal(t, want, op.Read[0].Counts)
			require.Equal(t, seconds, op.Read[1].Counts)
		})
	}
}

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

// A request is a single write: additions, then a multi-get.
func TestARequestOnTheWire(t *testing.T) {
	server := newMetaFake(t, func(line string) string { return metaAnswer(line, 1) })
	s := newStore(t, memcache.Config{}, server.addr)
	op := adding("k", 1, slot(1), slot(-2))
	op.Read = []backend.Span{{Width: time.Hour, First: -1, Counts: make([]int64, 3)}}
	require.NoError(t, s.Do(context.Background(), op))
	require.True(t, op.Ordered)
	require.Equal(t, []string{"ma k|1m1 v N3662 J1 D1", "ma k|1m-2 v N3662 J1 D1", "get k|1h-1 k|1h0 k|1h1"}, server.untagged(), "and a tagged command that ends the read")
	require.NoError(t, s.Do(context.Background(), adding("k", -3, slot(1))))
	require.Equal(t, []string{"ma k|1m1 v MD D3"}, server.untagged())
}

// An answer that comes after Do has returned is taken back on the same
// connection, once, while other callers get their answers on the connection.
func TestALateAnswerAmongOthers(t *testing.T) {
	release := make(chan struct{})
	server := newMetaFake(t, func(line string) string {
		if strings.HasPrefix(line, "ma late|1m1 v N") {
			<-release
		}
		if strings.HasPrefix(line, "ma late|1m2 v N") {
			return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
		}
		return metaAnswer(line, 3)
	})
	s := newStore(t, memcache.Config{Conns: 1}, server.addr)
	ctx, cancel := context.WithCancel(context.Background())
	late := make(chan error)
	op := adding("late", 3, slot(1), slot(2))
	go func() { late <- s.Do(ctx, op) }()
	require.Contains(t, server.next(t), "ma late|1m1")
	var others sync.WaitGroup
	for i := range 10 {
		others.Go(func() {
			op := adding("k", 1, slot(int64(i)))
			if err := s.Do(context.Background(), op); err != nil || op.Add[0].Count != 3 {
				t.Error(op.Add[0].Count, err)
			}
		})
	}
	require.Eventually(t, func() bool { return s.Stats().InFlight == 11 }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-late, context.Canceled)
	require.Zero(t, op.Add[0].Count)
	close(release)
	others.Wait()
	idle(t, s)
	var backs []string
	for _, line := range server.untagged() {
		if strings.Contains(line, " MD ") {
			backs = append(backs, line)
		}
	}
	require.Equal(t, []string{"ma late|1m1 v MD D3"}, backs)
	st := s.Stats()
	require.Equal(t, []int64{1, 1, 0, 0}, []int64{st.LateAdditions, st.TakenBack, st.TakingBackFailed, st.Unanswered})
}

// The connection is lost before the late answer: the addition is unknown.
func TestALateAnswerThatNeverComes(t *testing.T) {
	release := make(chan struct{})
	server := newMetaFake(t, func(line string) string {
		<-release
		return ""
	})
	s := newStore(t, memcache.Config{}, server.addr)
	op := adding("k", 1, slot(1), slot(2))
	op.Deadline = time.Now().Add(300 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
	require.Equal(t, 1, s.Stats().Listening)
	close(release)
	idle(t, s)
	st := s.Stats()
	require.Equal(t, []int64{0, 0, 0, 2}, []int64{st.LateAdditions, st.TakenBack, st.TakingBackFailed, st.Unanswered})
}

// Close ends the listening, and waits for no late answer.
func TestCloseWhileListening(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	server := newMetaFake(t, func(line string) string {
		<-release
		return metaAnswer(line, 1)
	})
	s := newStore(t, memcache.Config{}, server.addr)
	op := adding("k", 1, slot(1))
	op.Deadline = time.Now().Add(300 * time.Millisecond)
	require.ErrorIs(t, s.Do(context.Background(), op), os.ErrDeadlineExceeded)
	require.NoError(t, s.Close())
	idle(t, s)
	require.EqualValues(t, 1, s.Stats().Unanswered)
}

// A taking back without room is asked again, and has the count of its last
// answer.
func TestATakingBackWithoutRoomByMeta(t *testing.T) {
	const full = "SERVER_ERROR out of memory\r\n"
	for name, row := range map[string]struct {
		full, asked int
		failed      int64
	}{"for a moment": {3, 5, 0}, "for good": {100, 8, 1}} {
		t.Run(name, func(t *testing.T) {
			var left atomic.Int64
			left.Store(int64(row.full))
			server := newMetaFake(t, func(line string) string {
				if strings.Contains(line, " k|1m1 ") && left.Add(-1) >= 0 {
					return full
				}
				return metaAnswer(line, 4)
			})
			s := newStore(t, memcache.Config{}, server.addr)
			add(t, s, "connected", 1, 1)
			server.asked()
			op := adding("k", -1, slot(1), slot(2))
			err := s.Do(context.Background(), op)
			require.Equal(t, row.failed > 0, err != nil)
			require.EqualValues(t, 4, op.Add[1].Count)
			require.Equal(t, row.failed == 0, op.Add[0].Count == 4)
			require.False(t, op.Ordered)
			require.Len(t, server.asked(), row.asked)
			require.Equal(t, row.failed, s.Stats().TakingBackFailed)
		})
	}
}

// A taking back that has to wait for a connection is made though its call has
// returned.
func TestATakingBackOutlivesItsCall(t *testing.T) {
	release := make(chan struct{})
	server := newMetaFake(t, func(line string) string { return metaAnswer(line, 4) })
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
			old := servertest.Serve(t, func(conn net.Conn) { serveOld(t, conn, addr, map[string]string{"ma": answer}) })
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
	relay := servertest.Serve(t, func(conn net.Conn) {
		if upgraded.Load() {
			join(conn, addr)
		} else {
			serveOld(t, conn, addr, nil)
		}
	})
	s := newStore(t, memcache.Config{}, relay)
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
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			key := fmt.Sprintf("%0200d", i)
			for range 10 {
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
	all.Wait()
}

// The contexts of callers end at random, on a connection that all share: each
// caller returns at its end, and the others are answered.
func TestCallersThatHangUp(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Memcached(t), 2*time.Millisecond)
	s := newStore(t, memcache.Config{Conns: 1}, proxy.Addr)
	add(t, s, "connected", 1, 1)
	var confirmed atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for j := range 50 {
				ctx, cancel := context.WithCancel(context.Background())
				if i%2 == 0 {
					time.AfterFunc(time.Duration(j%7)*time.Millisecond, cancel)
				}
				op := readingToo(adding("k", 1, slot(1)))
				err := s.Do(ctx, op)
				if op.Add[0].Count > 0 {
					confirmed.Add(1)
				}
				if i%2 == 1 && err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	idle(t, s)
	require.EqualValues(t, confirmed.Load(), read(t, s, "k", time.Minute, 1, 1)[0])
	st := s.Stats()
	require.Positive(t, st.LateAdditions)
	require.Equal(t, st.LateAdditions, st.TakenBack)
	require.LessOrEqual(t, proxy.Conns(), 60, "250 callers without an answer do not cost a connection each")
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	conf := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}
	parsed, err := x509.ParseCertificate(cert)
	require.NoError(t, err)
	conf.RootCAs.AddCert(parsed)

	listener, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			go join(conn, addr)
		}
	}()
	return (&tls.Dialer{Config: conf}).DialContext, listener.Addr().String(), func() {
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
	old := servertest.Serve(t, func(conn net.Conn) { serveOld(t, conn, memcached, noMeta) })
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
	var all sync.WaitGroup
	var sum atomic.Int64
	for caller := range 8 {
		all.Go(func() {
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
				if err := s.Do(context.Background(), op); err != nil {
					t.Error(err)
				}
				sum.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, sum.Load(), read(t, s, "k", time.Minute, 20, 1)[0])
}
