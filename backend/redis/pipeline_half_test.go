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
// back, or closes the connection if cut. A call is answered in 28 bytes at most, so the
// first half of a long answer has a whole one.
type halves struct {
	on     atomic.Bool
	cut    bool
	halved atomic.Int64 // long answers
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
		if h.on.Load() && n > 60 {
			client.Write(rest[:n/2])
			h.halved.Add(1)
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
	const callers = 32
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
				stuck := counter.Key{Event: "stuck", Feature: fmt.Sprint(i)}
				calls.Go(func() { c.Take(ctx, stuck, 1, counter.MustLimits("10/d")) })
				require.Eventually(t, func() bool { return count(t, near, stuck) == 1 }, patience, time.Millisecond)
			}
			counted := func(from, to int) (n int64) {
				for i := from; i < to; i++ {
					n += count(t, near, name(i))
				}
				return n
			}
			var answered atomic.Int64
			called := 0
			for h.halved.Load() == 0 { // on a busy machine the calls may come one by one
				require.Less(t, called, 20*callers, "no answer was halved")
				hurried, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
				if cut { // the connection ends, whatever time the calls have
					cancel()
					hurried, cancel = context.WithCancel(ctx)
				}
				var all sync.WaitGroup
				for range callers {
					key := name(called)
					called++
					all.Go(func() {
						if _, err := c.Take(hurried, key, 1, counter.MustLimits("10/d")); err == nil {
							answered.Add(1)
						}
					})
				}
				if cut {
					require.Eventually(t, func() bool { return h.halved.Load() > 0 || counted(called-callers, called) == callers }, patience, time.Millisecond)
					if h.halved.Load() > 0 {
						require.Eventually(t, func() bool { return answered.Load() > 0 }, patience, time.Millisecond, "nobody got the answer that came")
					}
					cancel()
				}
				all.Wait()
				cancel()
			}
			h.on.Store(false)
			calls.Wait()
			if !cut {
				require.Eventually(t, func() bool { return counted(0, called) == answered.Load() }, patience, 20*time.Millisecond, "hits of calls that failed stay: %+v", s.Stats())
			}
		})
	}
}
