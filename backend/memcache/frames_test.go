package memcache_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// framed notes the functions of package memcache from Do to each write.
type framed struct {
	*net.TCPConn
	own *atomic.Pointer[[]string]
}

func (f framed) Write(b []byte) (int, error) {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var own []string
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "backend/memcache.") {
			own = append(own, frame.Function[strings.LastIndexByte(frame.Function, '/')+1:])
		}
		if strings.HasSuffix(frame.Function, "(*Store).Do") {
			f.own.Store(&own)
		}
		if !more {
			return f.TCPConn.Write(b)
		}
	}
}

// From Do, a reader goes through few functions to the wire.
func TestFramesToTheWire(t *testing.T) {
	var own atomic.Pointer[[]string]
	s := newStore(t, memcache.Config{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return framed{conn.(*net.TCPConn), &own}, nil
	}}, servertest.Memcached(t))
	require.NoError(t, s.Do(context.Background(), readingToo(adding("k", 1, slot(1)))))
	require.NotNil(t, own.Load(), "a lone caller writes by itself")
	require.LessOrEqual(t, len(*own.Load()), 5, "%q", *own.Load())
}
