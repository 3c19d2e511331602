package redis_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// A subscription, for instance to a sentinel, is written to and read by two
// goroutines at once. The race detector finds fields that a connection writes then.
func TestASubscriptionByADialer(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: servertest.Redis(t), Dialer: redis.NewDialer(nil).DialContext})
	defer client.Close()
	subscription := client.Subscribe(ctx, "news")
	defer subscription.Close()
	const pings = 100
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for range pings {
			assert.NoError(t, subscription.Ping(ctx))
		}
	})
	for pongs := 0; pongs < pings; {
		m := try.To(subscription.ReceiveTimeout(ctx, patience))(t)
		if _, is := m.(*goredis.Pong); is {
			pongs++
		}
	}
}

// The connection is lost in the pause, so no answer will be heard: the script comes
// too late, and counts nothing.
func TestPauseAndCut(t *testing.T) {
	server := servertest.StartRedis(t)
	proxy := servertest.NewProxy(t, server.Addr, 0)
	far := newCounter(t, open(t, "redis://"+proxy.Addr), counter.Config{Patience: 50 * time.Millisecond})
	near := newCounter(t, open(t, "redis://"+server.Addr), counter.Config{})
	require.Eventually(t, func() bool {
		_, err := far.Take(ctx, name(0), 1, counter.MustLimits("1000/d"))
		return err == nil
	}, patience, time.Millisecond)
	server.Pause()
	crowd(12, func(int) {
		if _, err := far.Take(ctx, signup, 1, counter.MustLimits("10/h")); err == nil {
			t.Error("no error from a server that is stopped")
		}
	})
	proxy.Cut()
	server.Resume()
	for range 10 {
		require.True(t, take(t, near, signup, 1, "10/h").Allowed)
	}
	require.EqualValues(t, 10, count(t, near, signup))
}

// An idle connection that the server has closed is not used: without syscall.Conn
// the client would notice by an error of a call that counts, which is not repeated.
func TestIdleConnectionsThatDied(t *testing.T) {
	addr := servertest.Redis(t)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	client := raw(t, addr)
	for i := range 20 {
		require.EqualValues(t, 99-i, take(t, c, signup, 1, "100/d").Remaining)
		require.NoError(t, client.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
		time.Sleep(2 * time.Millisecond) // until the client's machine knows
	}
}

// A server that refuses is dialled once in a while, and is found, empty, as soon as the
// server is back, though the client's pool has seen more failures than the pool is large.
func TestAServerThatRefuses(t *testing.T) {
	server := servertest.StartRedis(t)
	s := open(t, "redis://"+server.Addr+"/0?pool_size=4")
	c := newCounter(t, s, counter.Config{})
	take(t, c, signup, 3, "10/d")
	// A busy machine may be late in a round; a client that waits out a time of its own is
	// late in each.
	const rounds = 5
	for round := 1; ; round++ {
		server.Kill()
		began := time.Now()
		for range 100 {
			_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
			require.ErrorIs(t, err, backend.ErrStore)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		refused := time.Since(began)
		server.Restart()
		began = time.Now()
		var v counter.Verdict
		require.Eventually(t, func() bool {
			var err error
			v, err = c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
			return err == nil
		}, patience, time.Millisecond)
		require.EqualValues(t, 9, v.Remaining)
		back := time.Since(began)
		if long.Asked() && round < rounds && (refused >= 5*time.Second || back >= 500*time.Millisecond) {
			continue
		}
		long.Less(t, refused, 5*time.Second)
		long.Less(t, back, 500*time.Millisecond)
		return
	}
}

// A step whose answer comes after the deadline is taken back. The answer does not
// tell which of the soft keys had no room: if all had, all hits go; otherwise the hits
// of the other keys go, and no soft key loses hits that another caller added.
func TestALateStepWithSoftKeys(t *testing.T) {
	const limit = 10
	server := servertest.StartRedis(t)
	store, _ := onClient(t, "redis://"+server.Addr, redis.Config{AnyTime: true})
	hasty, near := store.(sums), open(t, "redis://"+server.Addr)
	ladder := mustLadder(t, "1s:1m, 1m:1d") // two roots a key
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

	type key struct {
		soft             bool
		before, n, after int64 // hits of another caller, of the step, and of both after the step's answer
	}
	const hard, soft = false, true
	for what, c := range map[string]struct {
		keys []key
		late int64
	}{
		"every key has room":            {[]key{{hard, 3, 2, 3}, {soft, 4, 3, 4}, {hard, 0, 1, 0}, {soft, 0, 1, 0}}, 1},
		"a soft key has none":           {[]key{{hard, 3, 2, 3}, {soft, 10, 3, 10}, {hard, 0, 4, 0}}, 1},
		"the soft keys come first":      {[]key{{soft, 9, 2, 9}, {soft, 10, 1, 10}, {hard, 1, 1, 1}}, 1},
		"one of two soft keys has none": {[]key{{soft, 8, 2, 10}, {hard, 3, 2, 3}, {soft, 9, 2, 9}}, 1},
		"soft keys alone":               {[]key{{soft, 9, 2, 9}, {soft, 5, 1, 6}}, 1},
		"a hard key has none":           {[]key{{hard, 9, 2, 9}, {soft, 5, 1, 5}}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			step := func(n func(key) int64, deadline time.Time, peek bool) *backend.TakeRequest {
				r := &backend.TakeRequest{Now: now, Deadline: deadline, Peek: peek}
				for i, k := range c.keys {
					windows := []backend.Window{
						{Max: limit, Reach: 30 * time.Second},
						{Max: limit, Reach: 12 * time.Hour, Finest: 1},
					}
					if k.soft && !peek { // the full root keeps the other from being added to
						windows = windows[i%2 : i%2+1]
					}
					r.Keys = append(r.Keys, backend.TakeKey{
						Key: fmt.Appendf(nil, "ab:%s:%d", strings.ReplaceAll(what, " ", "_"), i), N: n(k), Soft: k.soft, Windows: windows,
						Ladder: ladder, TTLs: []time.Duration{61 * time.Second, 24*time.Hour + time.Minute},
					})
				}
				return r
			}
			nothing := func(key) int64 { return 0 }
			before := step(func(k key) int64 { return k.before }, time.Time{}, false)
			require.NoError(t, near.Take(ctx, before))
			require.True(t, before.Allowed)

			late := hasty.Stats()
			// The deadline of a step may pass before a busy machine has sent the step: then
			// no answer is awaited, and the next step has a later deadline.
			for timeout, sent := 50*time.Millisecond, 0; sent == 0; timeout *= 2 {
				require.Less(t, timeout, patience, "the step was not sent")
				require.NoError(t, hasty.Take(ctx, step(nothing, time.Time{}, true))) // makes the connection
				server.Pause()
				err := hasty.Take(ctx, step(func(k key) int64 { return k.n }, time.Now().Add(timeout), false))
				sent = hasty.Stats().Draining
				server.Resume()
				require.Error(t, err)
				if sent > 0 {
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}
			}
			require.Eventually(t, func() bool { return hasty.Stats().Draining == 0 }, patience, time.Millisecond)
			require.Equal(t, late.LateAnswers+c.late, hasty.Stats().LateAnswers)
			require.Equal(t, late.TakenBack+c.late, hasty.Stats().TakenBack)
			after := step(nothing, time.Time{}, true)
			require.NoError(t, near.Take(ctx, after))
			for i, k := range after.Keys {
				require.Equal(t, []int64{c.keys[i].after, c.keys[i].after}, []int64{k.Windows[0].Count, k.Windows[1].Count}, "the two roots of key %d", i)
			}
		})
	}
}

// A caller that stands still between its label and its step, with all patience, gets
// another label: the hits of the first label's window may have expired meanwhile.
func TestAStandstillBehindALabel(t *testing.T) {
	t.Parallel()
	const stands = 7 * time.Second
	ladder := mustLadder(t, "50ms:1s")
	var standstill time.Duration
	c := newCounter(t, open(t, "redis://"+servertest.Redis(t)), counter.Config{Ladder: ladder, Patience: time.Minute, Now: func() time.Time {
		now := time.Now()
		time.Sleep(standstill)
		standstill = 0
		return now
	}})
	first := take(t, c, signup, 2, "2/s")
	require.True(t, first.Allowed)
	time.Sleep(time.Until(first.At().Add(500 * time.Millisecond)))
	stale := c.Stats().StaleLabels
	standstill = stands
	second := take(t, c, signup, 2, "2/s")
	require.True(t, second.Allowed)
	require.Greater(t, second.At().Sub(first.At()), stands)
	require.EqualValues(t, 1, c.Stats().StaleLabels-stale)
}

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
	return servertest.Serve(t, func(client net.Conn) {
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		go func() {
			io.Copy(server, client)
			server.Close()
		}()
		for buf := make([]byte, 1<<16); ; {
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
	})
}

// stick makes as many calls as round trips may be under way, which h holds up.
func (h *halves) stick(t *testing.T, c, near *counter.Counter, stuck *sync.WaitGroup) {
	h.on.Store(true)
	for i := range 2 {
		key := counter.Key{Event: "stuck", Feature: fmt.Sprint(i)}
		stuck.Go(func() { c.Take(ctx, key, 1, counter.MustLimits("10/d")) })
		counted(t, near, key, 1)
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
			s, client := onClient(t, "redis://"+h.between(t, addr)+"?pool_size=32", redis.Config{})
			c := newCounter(t, s, counter.Config{})
			warmed(t, c, client, callers)
			var stuck sync.WaitGroup
			h.stick(t, c, near, &stuck)
			all := func(from, to int) (n int64) {
				for i := from; i < to; i++ {
					n += count(t, near, name(i))
				}
				return n
			}
			var answered atomic.Int64
			called := 0
			for h.halved.Load() == 0 { // on a busy machine the calls may come one by one
				require.Less(t, called, 20*callers, "no answer was halved")
				wait := 400 * time.Millisecond
				if cut { // the connection ends, whatever time the calls have
					wait = 10 * patience
				}
				hurried, cancel := context.WithTimeout(ctx, wait)
				first, ended := called, make(chan struct{})
				called += callers
				go func() {
					defer close(ended)
					crowd(callers, func(i int) {
						if _, err := c.Take(hurried, name(first+i), 1, counter.MustLimits("10/d")); err == nil {
							answered.Add(1)
						}
					})
				}()
				if cut {
					require.Eventually(t, func() bool { return h.halved.Load() > 0 || all(first, called) == callers }, patience, time.Millisecond)
					if h.halved.Load() > 0 {
						require.Eventually(t, func() bool { return answered.Load() > 0 }, patience, time.Millisecond, "nobody got the answer that came")
					}
					cancel()
				}
				<-ended
				cancel()
			}
			h.on.Store(false)
			stuck.Wait()
			if !cut {
				require.Eventually(t, func() bool { return all(0, called) == answered.Load() }, patience, 20*time.Millisecond, "hits of calls that failed stay: %+v", s.Stats())
			}
		})
	}
}

// Between an addition and its undo the programs are flushed, or the memory becomes full,
// or both: the undo is sent as text, on the connection of a lone call and for a call in a
// pipeline.
func TestAFlushBeforeAnUndo(t *testing.T) {
	t.Parallel()
	for _, login := range []string{"functions", "scripts"} {
		for _, change := range []string{"flush", "full", "flush and full"} {
			t.Run(login+", "+change, func(t *testing.T) { changeBeforeAnUndo(t, login, change) })
		}
	}
}

func changeBeforeAnUndo(t *testing.T, login, change string) {
	const callers = 12
	addr := servertest.Redis(t)
	h, server, near := new(halves), raw(t, addr), newCounter(t, open(t, "redis://"+addr), counter.Config{})
	url := strings.ReplaceAll(logins(t, addr)[login], addr, h.between(t, addr))
	s, client := onClient(t, url+"?pool_size=24", redis.Config{})
	c, limits := newCounter(t, s, counter.Config{}), counter.MustLimits("10/d")
	warmed(t, c, client, callers)
	release := func() {
		if change != "full" {
			require.NoError(t, server.FunctionFlush(ctx).Err())
			require.NoError(t, server.ScriptFlush(ctx).Err())
		}
		if change != "flush" {
			require.NoError(t, server.ConfigSet(ctx, "maxmemory", "1").Err())
		}
		h.on.Store(false)
		require.Eventually(t, func() bool {
			st := s.Stats()
			return st.LateAnswers > 0 && st.LateAnswers == st.TakenBack+st.NotTaken && st.Draining == 0
		}, patience, time.Millisecond)
		require.Zero(t, s.Stats().NotTaken)
		require.NoError(t, server.ConfigSet(ctx, "maxmemory", "0").Err())
	}

	h.on.Store(true)
	last := 0
	for ; last == 0 || count(t, near, name(last)) == 0; last++ { // a slow server would not count a late call
		hurried, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := c.Take(hurried, name(last+1), 1, limits)
		cancel()
		require.Error(t, err)
	}
	release()
	require.Zero(t, count(t, near, name(last)))

	var stuck, all sync.WaitGroup
	h.stick(t, c, near, &stuck)
	hurried, cancel := context.WithCancel(ctx)
	for i := range callers {
		all.Go(func() {
			if _, err := c.Take(hurried, name(100+i), 1, limits); err == nil {
				t.Error("an answer")
			}
		})
	}
	for i := range callers {
		counted(t, near, name(100+i), 1)
	}
	cancel()
	all.Wait()
	release()
	stuck.Wait()
	require.Eventually(t, func() bool { return s.Stats().TakenBack >= callers+1 }, patience, time.Millisecond)
	for i := range callers {
		require.Zero(t, count(t, near, name(100+i)), "caller %d", i)
	}
}
