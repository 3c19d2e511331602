package classic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// waiter is a limiter that waits.
type waiter interface {
	classic.Measured
	Wait(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error)
	Reserve(ctx context.Context, key counter.Key, n int64) (counter.Verdict, time.Duration, error)
}

// queue is a queue from which max a second leave.
func queue(t *testing.T, max, length int64, s *classic.Store) waiter {
	return try.To(classic.NewLeakyQueue(counter.Limit{Max: max, Per: time.Second}, length, s))(t)
}

// shaper is a bucket of burst tokens that gains max a second.
func shaper(t *testing.T, max, burst, length int64, s *classic.Store) waiter {
	return try.To(classic.NewTokenShaper(counter.Limit{Max: max, Per: time.Second}, burst, length, s))(t)
}

// caller is a caller of Wait.
type caller struct {
	at      time.Duration // since the start
	n       int64         // 0: one
	within  time.Duration // of its deadline; 0: none
	hangsUp time.Duration // after at; 0: never
}

func many(n int) []caller { return make([]caller, n) }

// play has callers wait, one after the other, and tells of each how long, and what if
// not admitted. Callers leave no goroutine and no timer behind: the bubble of the test
// ends with them.
func play(t *testing.T, l waiter, callers ...caller) string {
	story := make([]string, len(callers))
	var all sync.WaitGroup
	began := time.Now()
	for i, c := range callers {
		time.Sleep(time.Until(began.Add(c.at)))
		ctx, cancel := context.WithCancel(ctx)
		if c.within > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.within)
		}
		if c.hangsUp > 0 {
			time.AfterFunc(c.hangsUp, cancel)
		}
		all.Go(func() {
			defer cancel()
			called := time.Now()
			v, err := l.Wait(ctx, signup, max(1, c.n))
			story[i] = time.Since(called).String()
			switch {
			case err != nil:
				require.ErrorContains(t, err, "classic: "+l.Name()+`: event "signup": `)
				require.NotErrorIs(t, err, counter.ErrStore)
				require.Equal(t, counter.Verdict{}, v)
				if errors.Is(err, context.DeadlineExceeded) {
					story[i] += " too late"
				} else {
					require.ErrorIs(t, err, context.Canceled)
					story[i] += " hung up"
				}
			case v.RetryAfter == counter.Never:
				story[i] += " never"
			case !v.Allowed:
				story[i] += fmt.Sprintf(" %d left, retry %s, reset %s", v.Remaining, v.RetryAfter, v.ResetAfter)
			}
		})
		synctest.Wait()
	}
	all.Wait()
	return strings.Join(story, "; ")
}

// Order, spacing and bound; who is denied is told when to come, and is then the last to
// wait. The last slot is given back, and a slot before others stays empty. Who would
// wait beyond a deadline is told at once, and takes no slot.
func TestCallersWait(t *testing.T) {
	const (
		half  = 500 * time.Millisecond
		third = 333_334 * time.Microsecond
	)
	leaves := func(who ...int) (all []caller) { // 0 to 3 wait from the start, some hang up, and 4 comes
		all = append(many(4), caller{at: half + time.Millisecond*9})
		for i, c := range who {
			all[c].hangsUp = half + time.Duration(i)*time.Millisecond
		}
		return all
	}
	oneASecond := func(s *classic.Store) waiter { return queue(t, 1, 9, s) }
	for _, row := range []struct {
		name    string
		new     func(*classic.Store) waiter
		callers []caller
		want    string
	}{
		{"a queue, order and bound", func(s *classic.Store) waiter { return queue(t, 4, 5, s) }, many(8),
			"0s; 250ms; 500ms; 750ms; 1s; 1.25s; 0s 0 left, retry 250ms, reset 1.5s; 0s 0 left, retry 250ms, reset 1.5s"},
		{"a third of a second is not whole", func(s *classic.Store) waiter { return queue(t, 3, 2, s) },
			append(many(4), caller{at: third}, caller{at: third, n: 4}),
			"0s; 333.334ms; 666.667ms; 0s 0 left, retry 333.334ms, reset 1s; 666.666ms; 0s never"},
		{"nobody hangs up", oneASecond, leaves(), "0s; 1s; 2s; 3s; 3.491s"},
		{"the last", oneASecond, leaves(3), "0s; 1s; 2s; 500ms hung up; 2.491s"},
		{"not the last", oneASecond, leaves(2), "0s; 1s; 500ms hung up; 3s; 3.491s"},
		{"two from the end", oneASecond, leaves(3, 2), "0s; 1s; 501ms hung up; 500ms hung up; 1.491s"},
		{"two, the last but one first", oneASecond, leaves(2, 3), "0s; 1s; 500ms hung up; 501ms hung up; 2.491s"},
		{"all", oneASecond, leaves(3, 2, 1), "0s; 502ms hung up; 501ms hung up; 500ms hung up; 491ms"},
		{"deadlines", oneASecond, []caller{{}, {within: 900 * time.Millisecond}, {within: time.Second},
			{within: time.Second + time.Microsecond}, {within: 1500 * time.Millisecond}},
			"0s; 0s too late; 0s too late; 1s; 0s too late"},
		{"a full queue is full, whatever the deadline", func(s *classic.Store) waiter { return queue(t, 1, 1, s) },
			append(many(2), caller{within: half}), "0s; 1s; 0s 0 left, retry 1s, reset 2s"},
		{"a shaper: two tokens, three who wait, and again after a pause", func(s *classic.Store) waiter { return shaper(t, 4, 2, 3, s) },
			append(many(6), slices.Repeat([]caller{{at: 1250 * time.Millisecond}}, 6)...),
			strings.TrimSuffix(strings.Repeat("0s; 0s; 250ms; 500ms; 750ms; 0s 0 left, retry 250ms, reset 1.25s; ", 2), "; ")},
		{"a large request is not overtaken", func(s *classic.Store) waiter { return shaper(t, 1, 3, 9, s) },
			[]caller{{n: 2}, {n: 3}, {}, {n: 4}}, "0s; 2s; 3s; 0s never"},
		{"thirds of a shaper", func(s *classic.Store) waiter { return shaper(t, 3, 3, 2, s) }, append(many(6), caller{at: third}),
			"0s; 0s; 0s; 333.334ms; 666.667ms; 0s 0 left, retry 333.334ms, reset 1.666667s; 666.666ms"},
		{"tokens of the last come back", func(s *classic.Store) waiter { return shaper(t, 1, 1, 9, s) },
			[]caller{{}, {within: time.Second}, {hangsUp: half}, {at: half + time.Millisecond}}, "0s; 0s too late; 500ms hung up; 499ms"},
		{"and of others do not", func(s *classic.Store) waiter { return shaper(t, 1, 1, 9, s) },
			[]caller{{}, {hangsUp: half}, {}, {at: half + time.Millisecond}}, "0s; 500ms hung up; 2s; 2.499s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, row.want, play(t, row.new(memory(t, classic.Config{})), row.callers...))
			})
		})
	}
}

// Take does not wait, and does not overtake those who do.
func TestTakeBehindWaiters(t *testing.T) {
	c := clockAt(start)
	store := memory(t, classic.Config{Now: c.now})
	for _, l := range []waiter{queue(t, 1, 9, store), shaper(t, 1, 1, 9, store)} {
		for want := range 3 {
			v, wait, err := l.Reserve(ctx, signup, 1)
			require.NoError(t, err)
			require.True(t, v.Allowed)
			require.Equal(t, time.Duration(want)*time.Second, wait)
		}
		v := take(t, l, signup, 1)
		require.False(t, v.Allowed)
		require.Equal(t, 3*time.Second, v.RetryAfter)
	}
}

// On Redis the same schedule as in memory, for the callers of two processes.
func TestReserveOnRedis(t *testing.T) {
	addr := servertest.Redis(t)
	r, c := dice(t), clockAt(start)
	cfg := classic.Config{Now: c.now, Grace: grace}
	for _, make := range []func(*classic.Store) waiter{
		func(s *classic.Store) waiter { return queue(t, 7, 5, s) }, func(s *classic.Store) waiter { return shaper(t, 7, 3, 5, s) },
	} {
		here, there := make(memory(t, cfg)), []waiter{make(onRedis(t, addr, cfg)), make(onRedis(t, addr, cfg))}
		denied := 0
		for i := range 100 {
			n := 1 + r.Int64N(3)
			v, wait, err := here.Reserve(ctx, signup, n)
			require.NoError(t, err)
			other, later, err := there[i%2].Reserve(ctx, signup, n)
			require.NoError(t, err)
			require.Equal(t, v, other)
			require.Equal(t, wait, later)
			if !v.Allowed {
				denied++
			}
			c.add(time.Duration(r.Int64N(int64(400 * time.Millisecond))))
		}
		require.Positive(t, denied)
	}
}

// On Redis, in real time, the last slot is given back, and another is not. Slots are an
// hour apart.
func TestSlotsComeBackOnRedis(t *testing.T) {
	slow := try.To(classic.NewLeakyQueue(counter.Limit{Max: 1, Per: time.Hour}, 3, onRedis(t, servertest.Redis(t), classic.Config{})))(t)
	require.True(t, take(t, slow, signup, 1).Allowed)
	reset := func() time.Duration { return take(t, slow, signup, 1).ResetAfter.Round(time.Minute) }
	var cancels []context.CancelFunc
	done := make(chan error)
	for i := range 3 {
		ctx, cancel := context.WithCancel(ctx)
		cancels = append(cancels, cancel)
		go func() {
			_, err := slow.Wait(ctx, signup, 1)
			done <- err
		}()
		require.Eventually(t, func() bool { return reset() == time.Duration(2+i)*time.Hour }, patience, time.Millisecond)
	}
	require.False(t, try.To(slow.Wait(ctx, signup, 1))(t).Allowed, "the queue is full")
	for _, row := range []struct {
		caller int
		want   time.Duration
	}{{1, 4 * time.Hour}, {2, 3 * time.Hour}, {0, 3 * time.Hour}} {
		cancels[row.caller]()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Equal(t, row.want, reset())
	}
}

// The server's time to answer is part of the wait.
func TestQueueOnAFarRedis(t *testing.T) {
	addr := servertest.Redis(t)
	proxy := servertest.NewProxy(t, addr, 150*time.Millisecond)
	on := func(addr string) waiter {
		q := try.To(classic.NewLeakyQueue(counter.Limit{Max: 1, Per: 700 * time.Millisecond}, 9, onRedis(t, addr, classic.Config{})))(t)
		return q
	}
	near, far := on(addr), on(proxy.Addr)
	take(t, near, name(1), 1) // brings the script
	take(t, far, name(2), 1)  // connects
	// A machine that stands still is late in a round, a queue that waits too long in each.
	const rounds = 5
	for round := 1; ; round++ {
		require.True(t, take(t, near, name(2+round), 1).Allowed)
		began := time.Now()
		require.True(t, try.To(far.Wait(ctx, name(2+round), 1))(t).Allowed)
		spent := time.Since(began)
		require.Greater(t, spent, 500*time.Millisecond)
		if !long.Asked() || spent < 950*time.Millisecond || round == rounds {
			long.Less(t, spent, 950*time.Millisecond, "0.7 s, of which the trip is 0.3")
			return
		}
	}
}
