package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// sendings counts what a client sends, and calls after behind each command and pipeline.
type sendings struct {
	commands, pipelines atomic.Int64
	after               func()
}

func (s *sendings) end() {
	if s.after != nil {
		s.after()
	}
}

func (s *sendings) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (s *sendings) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		s.commands.Add(1)
		defer s.end()
		return next(ctx, cmd)
	}
}

func (s *sendings) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		s.pipelines.Add(1)
		defer s.end()
		return next(ctx, cmds)
	}
}

func TestOneCallerMakesNoPipeline(t *testing.T) {
	s, client := onClient(t, "redis://"+servertest.Redis(t), redis.Config{})
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
// called. And there are never more connections than the pool has.
func TestManyCallersShareRoundTrips(t *testing.T) {
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, 0)
	client, c := raw(t, addr), newCounter(t, open(t, "redis://"+proxy.Addr+"?pool_size=16"), counter.Config{})
	take(t, c, signup, 1, "1000000/d")
	reads := func() int {
		return try.To(strconv.Atoi(client.InfoMap(ctx, "stats").Item("Stats", "total_reads_processed")))(t)
	}
	const callers, calls = 64, 50
	before := reads()
	crowd(callers, func(i int) {
		for range calls {
			if v, err := c.Take(ctx, name(i), 1, counter.MustLimits("1000000/d")); err != nil || !v.Allowed {
				t.Error(v.Allowed, err)
			}
		}
	})
	require.Less(t, reads()-before, callers*calls/2)
	require.LessOrEqual(t, proxy.Conns(), 16)
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
			assert.NoError(t, c.Add(ctx, counter.Key{Event: "stuck", Feature: fmt.Sprint(i)}, 1))
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
		buffer  int // of the client; 0: more than the calls have
	}{
		"some are patient":               {patient: 3},
		"some are patient, at any time":  {patient: 3, anyTime: true},
		"nobody is patient":              {patient: callers + 1},
		"nobody is patient, at any time": {patient: callers + 1, anyTime: true, buffer: 5000},
	} {
		t.Run(what, func(t *testing.T) {
			s, client := onClient(t, "redis://"+server.Addr+"?pool_size=60", redis.Config{AnyTime: c.anyTime},
				func(o *goredis.Options) { o.WriteBufferSize = c.buffer })
			caller := newCounter(t, s, counter.Config{})
			key := func(i int) counter.Key { return counter.Key{Event: "deadlines", Feature: fmt.Sprint(what, i)} }
			for i := range callers {
				take(t, caller, key(i), 1, "10/d")
			}
			warmed(t, caller, client, callers)

			var calls, patients sync.WaitGroup
			var admitted [callers]bool
			server.Pause()
			defer patients.Wait()
			defer server.Resume()
			stuck(t, caller, &patients)
			var sent sendings
			client.AddHook(&sent)
			start := make(chan struct{})
			for i := range callers {
				if i%c.patient == c.patient-1 {
					patients.Go(func() {
						<-start
						_, err := caller.Take(ctx, key(i), 1, counter.MustLimits("10/d"))
						admitted[i] = assert.NoError(t, err)
					})
					continue
				}
				calls.Go(func() {
					<-start
					wait := time.Duration(1000+5*i) * time.Millisecond
					began := time.Now()
					hurried, cancel := context.WithTimeout(ctx, wait)
					defer cancel()
					_, err := caller.Take(hurried, key(i), 1, counter.MustLimits("10/d"))
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
			want := redis.Stats{TooLate: failed}
			if c.anyTime {
				want = redis.Stats{LateAnswers: failed, TakenBack: failed}
			}
			require.Eventually(t, func() bool { return s.Stats() == want }, patience, time.Millisecond, "%d calls have failed", failed)
			for i := range callers {
				hits := int64(1)
				if admitted[i] {
					hits++
				}
				require.Equal(t, hits, count(t, near, key(i)), "of caller %d", i)
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
			s, pool := onClient(t, fmt.Sprintf("redis://%s?pool_size=%d", server.Addr, connections), redis.Config{})
			c := newCounter(t, s, counter.Config{})
			warmed(t, c, pool, connections)
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
				call := c.Take
				if i%2 == 0 {
					call = c.Peek
				}
				waiting.Go(func() {
					_, err := call(going, key(i), 1, counter.MustLimits("1000/d"))
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
				counted(t, c, key(i), 0)
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
	for what, url := range logins(t, addr) {
		t.Run(what, func(t *testing.T) {
			c := newCounter(t, open(t, url), counter.Config{})
			key := func(i int) counter.Key { return counter.Key{Event: "fresh", Feature: fmt.Sprint(what, i)} }
			for round := range rounds {
				require.NoError(t, client.FunctionFlush(ctx).Err())
				require.NoError(t, client.ScriptFlush(ctx).Err())
				crowd(callers, func(i int) {
					if _, err := c.Take(ctx, key(i), 1, counter.MustLimits("1000000/d")); err != nil {
						t.Error(err)
					}
				})
				for i := range callers {
					require.EqualValues(t, round+1, count(t, c, key(i)))
				}
			}
		})
	}
}

// Close ends calls that wait for a server that stands still.
func TestCloseWhileCallsWait(t *testing.T) {
	server := servertest.StartRedis(t)
	s := try.To(redis.Open("redis://"+server.Addr+"/0?pool_size=3", redis.Config{IOTimeout: patience}))(t)
	c := newCounter(t, s, counter.Config{})
	take(t, c, signup, 1, "1000/d")
	server.Pause()
	defer server.Resume()
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
}

// Callers share pipelines on a network that changes lengths in the answers: no more calls
// are reported as admitted than there is room for.
func TestDamagedLengthsInPipelines(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Redis(t), 0)
	s := open(t, "redis://"+proxy.Addr)
	const keys, most = 8, 2
	for round := range long.Rounds(10, 100) {
		c := newCounter(t, s, counter.Config{Prefix: fmt.Sprint("r", round), Patience: 300 * time.Millisecond})
		proxy.Damage(servertest.Lies, rand.Uint64())
		var admitted [keys]atomic.Int64
		crowd(48, func(int) {
			for range 4 {
				n := rand.IntN(keys)
				asks := []counter.Ask{{Key: name(n), N: 1, Limits: counter.MustLimits(fmt.Sprint(most, "/h"))}}
				if rand.IntN(2) == 0 {
					asks = append(asks, counter.Ask{Key: counter.Key{Event: "other", Feature: fmt.Sprint(n)}, N: 1, Limits: counter.MustLimits("1000/h")})
				}
				v, err := c.TakeAll(ctx, asks...)
				if err == nil && v.Allowed {
					admitted[n].Add(1)
				}
			}
		})
		proxy.Damage(servertest.Whole, 0)
		for n := range admitted {
			require.LessOrEqual(t, admitted[n].Load(), int64(most), "round %d, key %d", round, n)
		}
	}
}
