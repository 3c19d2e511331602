package promise_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// stack returns the functions of this module in which a Take is now, the innermost first,
// from the first call of another module on: of a client of the store, or a connection.
func stack() (own []string) {
	text := make([]byte, 1<<18)
	all := string(text[:runtime.Stack(text, true)])
	for line := range strings.Lines(all) {
		if strings.HasPrefix(line, "\t") || strings.TrimSpace(line) == "" {
			continue
		}
		own = append(own, line[:max(0, strings.LastIndexByte(line, '('))])
		switch function := own[len(own)-1]; {
		case strings.HasSuffix(function, "counter.(*Counter).Take"):
			return own
		case !strings.HasPrefix(function, "github.com/abacus-go/abacus/"), strings.Contains(function, "promise_test."):
			own = nil
		}
	}
	return nil
}

// watch keeps the deepest stack that it has seen.
type watch struct{ deepest atomic.Pointer[[]string] }

func (w *watch) look() {
	if own, was := stack(), w.deepest.Load(); was == nil || len(own) > len(*was) {
		w.deepest.Store(&own)
	}
}

// watched looks whenever a client writes.
type watched struct {
	net.Conn
	*watch
}

func (w watched) Write(b []byte) (int, error) {
	w.look()
	return w.Conn.Write(b)
}

func (w *watch) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return watched{c, w}, err
}

// The way of an admitted Take from Counter.Take to the store is short enough to keep in mind.
func TestTakeIsInFewFunctions(t *testing.T) {
	key, limits := counter.Key{Event: "signup", Feature: "user:1"}, counter.MustLimits("1000000000/m, 1000000000/h")
	onRedis := func(layout redis.Layout) func(*watch) backend.Store {
		return func(w *watch) backend.Store {
			client := goredis.NewClient(&goredis.Options{Addr: servertest.Redis(t), Dialer: w.dial, ContextTimeoutEnabled: true})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return try.To(redis.New(client, redis.Config{Layout: layout}))(t)
		}
	}
	for name, open := range map[string]func(*watch) backend.Store{
		"redis sums":  onRedis(redis.Sums),
		"redis plain": onRedis(redis.Plain),
		"memcached": func(w *watch) backend.Store {
			s := try.To(memcache.New(memcache.Config{DialContext: w.dial}, servertest.Memcached(t)))(t)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		},
		"memory": func(*watch) backend.Store { return memory.New(memory.Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := &watch{}
			counts := try.To(counter.New(open(w), counter.Config{}))(t)
			take := func() {
				v, err := counts.Take(context.Background(), key, 1, limits)
				if err != nil || !v.Allowed {
					t.Errorf("%v, %v", v, err)
				}
			}
			take() // connects, and loads the scripts
			w.deepest.Store(nil)
			if take(); w.deepest.Load() == nil { // nothing is written: look at some Takes from outside
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					for {
						select {
						case <-stop:
							return
						default:
							take()
						}
					}
				}()
				// On a busy machine many looks may see no Take.
				for looks, began := 0, time.Now(); looks < 100 || len(*w.deepest.Load()) == 0 && time.Since(began) < time.Minute; looks++ {
					time.Sleep(100 * time.Microsecond)
					w.look()
				}
				close(stop)
				<-stopped
			}
			own := *w.deepest.Load()
			require.NotEmpty(t, own, "no Take was seen")
			require.LessOrEqual(t, len(own), 8, strings.Join(own, "\n"))
		})
	}
}
