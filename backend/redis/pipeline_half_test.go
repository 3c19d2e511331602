package redis_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// halves passes on the first half of each long answer while on, and holds the rest
// back, or closes the connection if cut.
type halves struct {
	on  atomic.Bool
	cut bool
}

// between listens for connections to addr, until the test ends.
func (h *halves) between(t *testing.T, addr string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				return
			}
			go func() {
				io.Copy(server, client)
				server.Close()
			}()
			go h.answer(client, server)
		}
	}()
	return listener.Addr().String()
}

func (h *halves) answer(client, server net.Conn) {
	defer client.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		rest := buf[:n]
		if h.on.Load() && n > 100 {
			client.Write(rest[:n/2])
			if rest = rest[n/2:]; h.cut {
				return
			}
		}
		for h.on.Load() {
			time.Sleep(time.Millisecond)
		}
		client.Write(rest)
		if err != nil {
			return
		}
	}
}

// Of a pipeline whose answers stop in the middle each answered call has its answer, if
// its caller waits, and otherwise is taken back.
func TestHalfTheAnswersOfAPipeline(t *testing.T) {
	const callers = 20
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprint("cut ", cut), func(t *testing.T) {
			addr := servertest.Redis(t)
			h := &halves{cut: cut}
			near := newCounter(t, open(t, "redis://"+addr), counter.Config{})
			s, client := onClient(t, &goredis.Options{Addr: h.between(t, addr), PoolSize: callers}, redis.Config{IOTimeout: patience})
			c := newCounter(t, s, counter.Config{})
			take(t, c, signup, 1, "1000/d")
			warm(t, client, callers)
			h.on.Store(true)
			var calls sync.WaitGroup
			for i := range 2 { // as many as round trips under way
				calls.Go(func() {
					c.Take(ctx, counter.Key{Event: "stuck", Feature: fmt.Sprint(i)}, 1, counter.MustLimits("10/d"))
				})
			}
			time.Sleep(20 * time.Millisecond)
			var answered atomic.Int64
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					hurried, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
					defer cancel()
					if _, err := c.Take(hurried, name(i), 1, counter.MustLimits("10/d")); err == nil {
						answered.Add(1)
					}
				})
			}
			all.Wait()
			h.on.Store(false)
			calls.Wait()
			if cut {
				require.Positive(t, answered.Load(), "nobody got the answer that came")
				return
			}
			require.Eventually(t, func() bool {
				var left int64
				for i := range callers {
					left += count(t, near, name(i))
				}
				return left == answered.Load()
			}, 5*time.Second, 20*time.Millisecond, "hits of calls that failed stay: %+v", s.Stats())
		})
	}
}
