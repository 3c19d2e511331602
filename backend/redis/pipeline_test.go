package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// sendings counts what a client sends.
type sendings struct{ commands, pipelines atomic.Int64 }

func (s *sendings) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (s *sendings) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		s.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (s *sendings) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		s.pipelines.Add(1)
		return next(ctx, cmds)
	}
}

// onClient makes a store on a client with a Dialer.
func onClient(t testing.TB, options *goredis.Options, cfg redis.Config) (redis.Store, *goredis.Client) {
	t.Helper()
	dialer := redis.NewDialer(nil)
	options.Dialer, options.ContextTimeoutEnabled, options.DialerRetries = dialer.DialContext, true, 1
	client := goredis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, errors.Join(client.Close(), dialer.Close())) })
	cfg.Dialer = dialer
	s, err := redis.New(client, cfg)
	require.NoError(t, err)
	return s, client
}

// warm brings n connections into the pool of a client. A new connection begins with a
// greeting, so calls reach a server that stands still on connections that are there.
func warm(t testing.TB, client *goredis.Client, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := client.Do(ctx, "blpop", "nothing", "0.2").Err(); !errors.Is(err, goredis.Nil) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, client.PoolStats().IdleConns, uint32(n/2))
}

func TestOneCallerMakesNoPipeline(t *testing.T) {
	s, client := onClient(t, &goredis.Options{Addr: servertest.Redis(t)}, redis.Config{IOTimeout: patience})
	c := newCounter(t, s, counter.Config{})
	everyCall(t, c)
	var sent sendings
	client.AddHook(&sent)
	const calls = 100
	for i := range calls {
		require.EqualValues(t, calls-1-i, take(t, c, signup, 1, "100/d").Remaining)
	}
	require.EqualValues(t, calls, sent.commands.Load())
	require.Zero(t, sent.pipelines.Load())
}

// Callers at the same time share round trips: the server reads less often than it is
// called.
func TestManyCallersShareRoundTrips(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	take(t, c, signup, 1, "1000000/d")
	reads := func() int {
		n, err := strconv.Atoi(client.InfoMap(ctx, "stats").Item("Stats", "total_reads_processed"))
		require.NoError(t, err)
		return n
	}
	const callers, calls = 64, 50
	before := reads()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range calls {
				if _, err := c.Take(ctx, name(i), 1, counter.MustLimits("1000000/d")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	read := reads() - before
	t.Logf("%d calls, %d reads of the server", callers*calls, read)
	require.Less(t, read, callers*calls/2)
	for i := range callers {
		require.EqualValues(t, calls, count(t, c, name(i)))
	}
}

const stuckCalls = 4

// stuck makes a store wait for a paused server, so that all further calls go in
// pipelines. The calls are answered after the pause.
func stuck(t *testing.T, c *counter.Counter, calls *sync.WaitGroup) {
	t.Helper()
	for i := range stuckCalls {
		calls.Go(func() {
			if err := c.Add(ctx, counter.Key{Event: "stuck", Feature: fmt.Sprint(i)}, 1); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond) // until the calls are written
}

// Callers with different deadlines are in a pipeline to a server that stands still. Each
// returns at its own deadline. When the server goes on, the patient callers get their
// answers, and the hits of all others are gone: those of a pipeline that was answered,
// and those of a pipeline that nobody waited for any more.
func TestDeadlinesInAPipeline(t *testing.T) {
	const callers = 60
	server := servertest.StartRedis(t)
	near := newCounter(t, open(t, "redis://"+server.Addr), counter.Config{})
	for what, c := range map[string]struct {
		patient int // one of so many callers waits for as long as it takes
		anyTime bool
		options goredis.Options
	}{
		"some are patient":              {patient: 3},
		"some are patient, at any time": {patient: 3, anyTime: true},
		"nobody is patient":             {patient: callers + 1},
		"nobody is patient, at any time": {
			patient: callers + 1, anyTime: true,
			options: goredis.Options{WriteBufferSize: 5000}, // less than the calls have
		},
	} {
		t.Run(what, func(t *testing.T) {
			options := c.options
			options.Addr, options.PoolSize = server.Addr, callers
			s, client := onClient(t, &options, redis.Config{IOTimeout: patience, AnyTime: c.anyTime})
			counted := newCounter(t, s, counter.Config{})
			key := func(i int) counter.Key { return counter.Key{Event: "deadlines", Feature: fmt.Sprint(what, i)} }
			for i := range callers {
				take(t, counted, key(i), 1, "10/d")
			}
			warm(t, client, callers)

			var calls, patients sync.WaitGroup
			var admitted [callers]bool
			server.Pause()
			defer patients.Wait()
			defer server.Resume()
			stuck(t, counted, &patients)
			var sent sendings
			client.AddHook(&sent)
			start := make(chan struct{})
			for i := range callers {
				if i%c.patient == c.patient-1 {
					patients.Go(func() {
						<-start
						_, err := counted.Take(ctx, key(i), 1, counter.MustLimits("10/d"))
						admitted[i] = assert.NoError(t, err)
					})
					continue
				}
				calls.Go(func() {
					<-start
					wait := time.Duration(150+5*i) * time.Millisecond
					began := time.Now()
					hurried, cancel := context.WithTimeout(ctx, wait)
					defer cancel()
					_, err := counted.Take(hurried, key(i), 1, counter.MustLimits("10/d"))
					if waited := time.Since(began); err == nil || waited < wait || waited > wait+patience/2 {
						t.Errorf("answered after %v, the caller has %v: %v", waited, wait, err)
					}
				})
			}
			close(start)
			calls.Wait()
			require.Zero(t, sent.commands.Load())
			require.Less(t, sent.pipelines.Load(), int64(callers/2))
			server.Resume()
			patients.Wait()
			failed := int64(callers - callers/c.patient)
			takenBack, tooLate := failed, int64(0)
			if !c.anyTime {
				takenBack, tooLate = 0, failed
			}
			if !assert.Eventually(t, func() bool {
				st := s.Stats()
				return st.TakenBack == takenBack && st.TooLate == tooLate
			}, patience, time.Millisecond) {
				t.Fatalf("%d calls have failed: %+v", failed, s.Stats())
			}
			require.Zero(t, s.Stats().NotTaken)
			require.Equal(t, takenBack, s.Stats().LateAnswers)
			for i := range callers {
				want := int64(1)
				if admitted[i] {
					want++
				}
				require.Equal(t, want, count(t, near, key(i)), "of caller %d", i)
			}
		})
	}
}

// A call whose caller has gone is not sent, neither from the queue nor in a pipeline
// that has waited for a connection.
func TestACallThatWaitsIsCancelled(t *testing.T) {
	const callers = 40
	server := servertest.StartRedis(t)
	client := raw(t, server.Addr)
	for _, connections := range []int{2, 4, 100} {
		t.Run(fmt.Sprint(connections, " connections"), func(t *testing.T) {
			s, pool := onClient(t, &goredis.Options{Addr: server.Addr, PoolSize: connections}, redis.Config{IOTimeout: patience})
			c := newCounter(t, s, counter.Config{})
			take(t, c, signup, 1, "1000/d")
			warm(t, pool, connections)
			before := calls(t, client, "fcall")

			var waiting, others sync.WaitGroup
			server.Pause()
			defer others.Wait()
			defer server.Resume()
			stuck(t, c, &others)
			going, cancel := context.WithCancel(ctx)
			key := func(i int) counter.Key {
				return counter.Key{Event: "cancelled", Feature: fmt.Sprint(connections, ":", i)}
			}
			for i := range callers {
				waiting.Go(func() {
					_, err := c.Take(going, key(i), 1, counter.MustLimits("1000/d"))
					if !errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrStore) {
						t.Error(err)
					}
				})
			}
			time.Sleep(20 * time.Millisecond)
			began := time.Now()
			cancel()
			waiting.Wait()
			require.Less(t, time.Since(began), patience/2)
			server.Resume()
			others.Wait()
			if connections == 2 { // both are in use
				require.Equal(t, stuckCalls, calls(t, client, "fcall")-before)
				require.Zero(t, s.Stats().LateAnswers)
			}
			for i := range callers {
				require.Eventually(t, func() bool { return count(t, c, key(i)) == 0 }, patience, time.Millisecond)
			}
			require.Zero(t, s.Stats().NotTaken)
		})
	}
}

// Each call of a pipeline that finds no library, or no script, is sent again, and counts
// once.
func TestAPipelineToAFreshServer(t *testing.T) {
	const callers, rounds = 64, 5
	addr := servertest.Redis(t)
	client := raw(t, addr)
	for what, url := range map[string]string{"functions": "redis://" + addr, "scripts": "redis://" + scriptsUser(t, addr) + "@" + addr} {
		t.Run(what, func(t *testing.T) {
			c := newCounter(t, open(t, url), counter.Config{})
			key := func(i int) counter.Key { return counter.Key{Event: "fresh", Feature: fmt.Sprint(what, i)} }
			for round := range rounds {
				require.NoError(t, client.FunctionFlush(ctx).Err())
				require.NoError(t, client.ScriptFlush(ctx).Err())
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						if _, err := c.Take(ctx, key(i), 1, counter.MustLimits("1000000/d")); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				for i := range callers {
					require.EqualValues(t, round+1, count(t, c, key(i)))
				}
			}
		})
	}
}

// The connection is lost with the answers to pipelines. All callers get an error, and no
// call is sent again.
func TestAPipelineIsNotSentTwice(t *testing.T) {
	const callers = 40
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, 0)
	near := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	s, client := onClient(t, &goredis.Options{
		Addr: proxy.Addr, PoolSize: callers, MaxRetries: 5, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
	}, redis.Config{IOTimeout: patience})
	c := newCounter(t, s, counter.Config{})
	take(t, c, signup, 1, "1000/d")
	warm(t, client, callers)
	proxy.DropReplies(true)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			if _, err := c.Take(ctx, name(i), 1, counter.MustLimits("10/d")); !errors.Is(err, backend.ErrStore) {
				t.Error(err)
			}
		})
	}
	for i := range callers {
		require.Eventually(t, func() bool { return count(t, near, name(i)) == 1 }, patience, time.Millisecond)
	}
	proxy.DropReplies(false)
	proxy.Cut()
	wg.Wait()
	for i := range callers {
		require.EqualValues(t, 1, count(t, near, name(i)))
	}
}

// Close ends calls that wait for a server that stands still.
func TestCloseWhileCallsWait(t *testing.T) {
	server := servertest.StartRedis(t)
	s, err := redis.Open("redis://"+server.Addr+"/0?pool_size=3", redis.Config{IOTimeout: patience})
	require.NoError(t, err)
	c := newCounter(t, s, counter.Config{})
	take(t, c, signup, 1, "1000/d")
	server.Pause()
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if _, err := c.Take(ctx, name(i), 1, counter.MustLimits("1000/d")); err == nil {
				t.Error("no error from a server that is stopped")
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	began := time.Now()
	require.NoError(t, s.Close())
	wg.Wait()
	require.Less(t, time.Since(began), patience/2)
	require.Error(t, c.Add(ctx, signup, 1))
	server.Resume()
}
