package memcache_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// Callers on a shared connection that get in each other's way.

// The leader of the answers writes a request that is larger than the buffers of the
// connection: its own answers must be read, or the server takes no more.
func TestTheNextLeaderIsStillWriting(t *testing.T) {
	asked := make(chan struct{}, 1)
	goOn := make(chan struct{})
	addr := servertest.Serve(t, func(conn net.Conn) {
		conn.(*net.TCPConn).SetReadBuffer(32 << 10)
		conn.(*net.TCPConn).SetWriteBuffer(32 << 10)
		in := bufio.NewReaderSize(conn, 64<<10)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "get a|") {
				asked <- struct{}{}
				<-goOn
				fmt.Fprint(conn, "END\r\n")
			} else if names, ok := strings.CutPrefix(line, "get "); ok {
				var b strings.Builder
				for _, n := range strings.Fields(names) {
					fmt.Fprintf(&b, "VALUE %s 0 1\r\n7\r\n", n)
				}
				if _, err := fmt.Fprint(conn, b.String()+"END\r\n"); err != nil {
					return
				}
			} else if _, err := fmt.Fprint(conn, metaAnswer(line, 1)); err != nil {
				return
			}
		}
	})
	s := newStore(t, memcache.Config{Conns: 1, IOTimeout: patience, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			c.(*net.TCPConn).SetReadBuffer(32 << 10)
			c.(*net.TCPConn).SetWriteBuffer(32 << 10)
		}
		return c, err
	}}, addr)
	reading := func(key string, n int) error {
		return s.Do(context.Background(), &backend.Request{Key: key, Read: []backend.Span{{Width: time.Minute, Counts: make([]int64, n)}}})
	}
	key := "b" + fmt.Sprintf("%0190d", 1)
	require.NoError(t, reading(key, 4000), "alone")
	first := make(chan error)
	go func() { first <- reading("a", 1) }()
	<-asked
	time.AfterFunc(50*time.Millisecond, func() { close(goOn) })
	err := reading(key, 4000)
	require.NoError(t, <-first)
	require.NoError(t, err)
}

// The reader of late answers has begun to listen for a read: a taking back that comes
// meanwhile is listened for as long as any addition.
func TestATakingBackIsListenedFor(t *testing.T) {
	const ioTimeout = time.Second
	release := make(chan struct{})
	server := newFake(t, true, func(line string) string {
		if strings.HasPrefix(line, "get slow|") {
			<-release
		}
		return metaAnswer(line, 4)
	})
	s := newStore(t, memcache.Config{Conns: 1, IOTimeout: ioTimeout}, server.addr)
	add(t, s, "connected", 1, 1)
	op := &backend.Request{Key: "slow", Read: []backend.Span{{Width: time.Minute, Counts: make([]int64, 3)}}}
	op.Deadline = time.Now().Add(10 * time.Millisecond)
	require.Error(t, s.Do(context.Background(), op))
	back := adding("k", -1, slot(1))
	back.Deadline = time.Now().Add(30 * time.Millisecond)
	require.Error(t, s.Do(context.Background(), back))
	time.Sleep(ioTimeout + 100*time.Millisecond)
	close(release)
	idle(t, s)
	require.Zero(t, s.Stats().TakingBackFailed)
}

// An addition beyond MaxCount is undone with the only token there is.
func TestATakingBackNeedsNoSecondToken(t *testing.T) {
	s := newStore(t, memcache.Config{MaxInFlight: 1, IOTimeout: 5 * time.Second}, servertest.Memcached(t))
	require.EqualValues(t, backend.MaxCount, add(t, s, "k", backend.MaxCount, 1))
	require.ErrorIs(t, s.Do(context.Background(), adding("k", 5, slot(1))), backend.ErrMaxCount)
	require.Zero(t, s.Stats().TakingBackFailed)
}

// A caller that gets its token after Close neither dials nor waits.
func TestCloseBeforeATokenIsFree(t *testing.T) {
	release, first := make(chan struct{}), make(chan struct{})
	var probes atomic.Int64
	server := newFake(t, true, func(line string) string {
		if strings.HasPrefix(line, "ma first") {
			<-first
		}
		if strings.HasPrefix(line, "ma held") {
			<-release
		}
		return metaAnswer(line, 4)
	})
	s := newStore(t, memcache.Config{MaxInFlight: 2, IOTimeout: 2 * time.Second, DialContext: counting(&probes)}, server.addr)
	s.Do(context.Background(), adding("connected", 1, slot(1)))
	go s.Do(context.Background(), adding("first", 1, slot(1)))
	require.Contains(t, server.next(t), "ma connected")
	require.Contains(t, server.next(t), "ma first")
	go s.Do(context.Background(), adding("held", 1, slot(2)))
	for s.Stats().InFlight < 2 {
		time.Sleep(time.Millisecond)
	}
	waited := make(chan error)
	go func() { waited <- s.Do(context.Background(), adding("k", 1, slot(3))) }()
	time.Sleep(50 * time.Millisecond)
	before := probes.Load()
	require.NoError(t, s.Close())
	close(first) // frees a token
	require.Error(t, <-waited)
	require.Zero(t, probes.Load()-before, "dials after Close")
	close(release)
}
