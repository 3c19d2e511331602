package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// Thirty workers wait under 5/300ms: all are admitted, in the order of their
// calls but for the five of a window, never more than five in a window, and
// nobody polls. TestWaitScripts judges the time.
func TestWaitOnEveryStore(t *testing.T) {
	const workers, most, per = 30, 5, 300 * time.Millisecond
	onStores(t, func(t *testing.T, on backend.Store, _ stored) {
		t.Parallel()
		var trips atomic.Int64
		store := backend.Wrap(on, func(ctx context.Context, trip *backend.Trip, do func(context.Context) error) error {
			trips.Add(1)
			return do(ctx)
		})
		c := newCounter(t, store, counter.Config{Ladder: tiers.For(per), Patience: patience})
		lim := newLimiter(t, c, limiter.Config{DecideWithin: patience, Rules: []limiter.Rule{
			{Event: "mail", Kind: "user", Limits: counter.Limits{{Max: most, Per: per}}},
		}})
		var all sync.WaitGroup
		var done atomic.Int64
		verdicts := make([]limiter.Verdict, workers)
		for i := range workers {
			all.Go(func() {
				v, err := lim.Wait(ctx, "mail", user("7"))
				if err != nil || !v.Allowed {
					t.Error(i, v, err)
				}
				verdicts[i] = v
				done.Add(1)
			})
			require.Eventually(t, func() bool { return lim.Stats().Waiting+done.Load() == int64(i)+1 }, patience, 100*time.Microsecond)
		}
		all.Wait()
		require.Zero(t, lim.Stats().Waiting)
		require.Zero(t, limiter.WaitQueues(lim))

		order := make([]int, workers)
		var log oracle.Log
		for i := range order {
			order[i] = i
			log.Add(verdicts[i].At(), 1)
		}
		require.LessOrEqual(t, log.Worst(per), int64(most))
		slices.SortStableFunc(order, func(i, j int) int { return verdicts[i].At().Compare(verdicts[j].At()) })
		for rank, i := range order {
			require.Less(t, max(rank-i, i-rank), most, "%v", order)
		}
		require.LessOrEqual(t, trips.Load(), int64(2*workers*3), "a denial on memcached takes up to three trips")

	})
}

// waitCall is a call of a random script, and its end.
type waitCall struct {
	user     string
	n        int64
	starts   time.Duration
	lasts    time.Duration // of the context; zero: without end
	canceled bool          // the context is canceled then, else it has a deadline
	refunds  time.Duration // after an admission; zero: never

	ended time.Duration
	v     limiter.Verdict
	at    time.Time // the label
	err   error
}

// Random scripts in virtual time, on a store in the process and on a store at
// the end of a slow wire: windows are never over, the order of the calls holds, a
// call that gives up gives up in time and takes nothing, no call waits longer
// than it must, nobody polls and nothing is left.
func TestWaitScripts(t *testing.T) {
	r := random(t)
	for round := range long.Rounds(60, 300) {
		limits := counter.MustLimits([]string{"3/2s, 900/h", "3/5s, 7/m, 900/h", "5/3s, 900/h", "20/m, 900/h"}[r.IntN(4)])
		wire := time.Duration(r.IntN(2)*r.IntN(30)) * time.Millisecond
		withRefunds := r.IntN(3) == 0
		calls := make([]waitCall, 5+r.IntN(60))
		span := int64(time.Duration(r.IntN(30)+1) * time.Second)
		for i := range calls {
			c := &calls[i]
			*c = waitCall{user: fmt.Sprint(r.IntN(2)), n: 1 + r.Int64N(3), starts: time.Duration(r.Int64N(span))}
			if r.IntN(3) == 0 {
				c.lasts, c.canceled = time.Duration(1+r.Int64N(2*span)), r.IntN(2) == 0
			}
			if withRefunds && r.IntN(4) == 0 {
				c.refunds = time.Duration(1 + r.Int64N(int64(3*time.Second)))
			}
		}
		slices.SortFunc(calls, func(a, b waitCall) int { return int(a.starts - b.starts) })
		synctest.Test(t, func(t *testing.T) { runWaitScript(t, round, limits, wire, calls) })
	}
}

func runWaitScript(t *testing.T, round int, limits counter.Limits, wire time.Duration, calls []waitCall) {
	local := newCountingStore()
	var store backend.Store = local
	if wire > 0 {
		far := newFarStore(wire)
		far.deaf = true // so that hits of a call that was left are given back
		store = far
	}
	c := newCounter(t, store, counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{{Event: "signup", Kind: "user", Limits: limits}}})
	began := time.Now()
	refunds := false
	var all sync.WaitGroup
	for i := range calls {
		call := &calls[i]
		refunds = refunds || call.refunds > 0
		all.Go(func() {
			time.Sleep(call.starts)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			switch {
			case call.canceled:
				time.AfterFunc(call.lasts, cancel)
			case call.lasts > 0:
				ctx, cancel = context.WithTimeout(ctx, call.lasts)
				defer cancel()
			}
			call.v, call.err = lim.WaitN(ctx, "signup", call.n, user(call.user))
			call.ended, call.at = time.Since(began), call.v.At()
			if call.v.Allowed && call.refunds > 0 {
				time.Sleep(call.refunds)
				assert.NoError(t, lim.Refund(context.WithoutCancel(ctx), &call.v))
				call.v.Allowed = false
			}
		})
	}
	all.Wait()
	require.Zero(t, lim.Stats().Waiting)
	require.Zero(t, limiter.WaitQueues(lim))
	steps, _ := local.asked()
	if wire == 0 && !refunds {
		require.LessOrEqual(t, steps, 2*len(calls), "round %d: somebody polls", round)
	}
	time.Sleep(5 * time.Second) // late hits are given back
	for _, name := range []string{"0", "1"} {
		var log oracle.Log
		var last, left, first time.Duration // of the calls before: the last label, the latest end, the first start of a queue without a gap
		var gaveUp time.Duration            // the last end of a context
		for i := range calls {
			call := &calls[i]
			if call.user != name {
				continue
			}
			what := fmt.Sprintf("round %d, %s, wire %s, call %d: %+v", round, limits, wire, i, *call)
			if call.starts >= left {
				first = call.starts
			}
			begins := max(call.starts, left)
			left = max(left, call.ended)
			ends := call.starts + call.lasts
			switch {
			case call.err == nil:
				label := call.at.Sub(began)
				// Of calls that ask side by side a Counter sends eight at once.
				require.GreaterOrEqual(t, label+8*wire, last, "overtaken: %s", what)
				last = max(last, label)
				judge := oracle.Judge{Ladder: c.Config().Ladder, Skew: c.Config().Skew}
				slack := c.Config().Skew + (label-first)*3/100 + 3*wire + time.Millisecond
				if wire > 0 && gaveUp > 0 && label < gaveUp+5*time.Second {
					slack += 1100 * time.Millisecond // a hit was counted, and given back
				}
				if earlier := label - slack; earlier > begins && !refunds {
					require.False(t, judge.Allowed(&log, began.Add(earlier), call.n, limits), "too late: %s", what)
				}
				if call.refunds == 0 {
					log.Add(call.at, call.n)
				}
			case errors.Is(call.err, limiter.ErrWaitTooLong):
				require.False(t, call.canceled || call.lasts == 0, what)
				require.ErrorIs(t, call.err, context.DeadlineExceeded)
				require.LessOrEqual(t, call.ended, ends, what)
				require.Positive(t, call.v.RetryAfter, what)
			case call.canceled:
				require.ErrorIs(t, call.err, context.Canceled, what)
				require.Equal(t, ends, call.ended, what)
				gaveUp = max(gaveUp, ends)
			default:
				require.ErrorIs(t, call.err, context.DeadlineExceeded, what)
				require.Equal(t, ends, call.ended, what)
				gaveUp = max(gaveUp, ends)
			}
		}
		for _, limit := range limits {
			require.LessOrEqual(t, log.Worst(limit.Per), limit.Max, "round %d, %s", round, limits)
		}
		require.Equal(t, log.Total(), counted(t, c, "user:"+name), "round %d: a call without admission has taken something", round)
	}
}

// fill uses up all limits of a call.
func fill(t testing.TB, lim *limiter.Limiter, features ...feature.Feature) {
	t.Helper()
	for allow(t, lim, features...).Allowed {
	}
}

// A wait that would last beyond the deadline fails at once, at the front of the
// queue and behind, and takes nothing.
func TestWaitDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountingStore()
		c := newCounter(t, store, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "2/h")}})
		fill(t, lim, user("7"))
		retryAfter := allow(t, lim, user("7")).RetryAfter
		within := func(d time.Duration) (limiter.Verdict, error) {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			began := time.Now()
			v, err := lim.Wait(ctx, "signup", user("7"))
			if err != nil {
				require.Zero(t, time.Since(began))
				require.NoError(t, ctx.Err())
				require.ErrorIs(t, err, limiter.ErrWaitTooLong)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.EqualError(t, err, `limiter: event "signup": the turn would come too late: context deadline exceeded`)
				require.Equal(t, []any{false, "2/h"}, []any{v.Allowed, v.Limit.String()})
				require.Equal(t, limiter.OutcomeOverLimit, v.Outcome())
			}
			return v, err
		}
		v, err := within(retryAfter - time.Nanosecond)
		require.Error(t, err)
		require.GreaterOrEqual(t, v.RetryAfter, retryAfter)

		first := make(chan time.Time)
		go func() {
			v := try.To(lim.Wait(ctx, "signup", user("7")))(t)
			first <- v.At()
		}()
		synctest.Wait()
		store.asked()
		require.Error(t, try.Err(within(retryAfter-time.Nanosecond)), "behind the first")
		steps, _ := store.asked()
		require.Zero(t, steps, "the first has asked already")
		require.LessOrEqual(t, time.Until(<-first), time.Duration(0))
		require.EqualValues(t, 1, counted(t, c, "user:7"))
	})

	// A deadline within the jitter leaves time to ask.
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			lim := onMemory(t, by("user", "2/h"))
			fill(t, lim, user("7"))
			soon, cancel := context.WithTimeout(ctx, allow(t, lim, user("7")).RetryAfter+time.Millisecond)
			defer cancel()
			try.To(lim.Wait(soon, "signup", user("7")))(t)
		})
	}

	// A call that came behind a call under way learns from its answer.
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(t, farCounter(t, newFarStore(100*time.Millisecond)), limiter.Config{Rules: []limiter.Rule{by("user", "1/h")}})
		fill(t, lim, user("7"))
		time.Sleep(2 * time.Second) // nothing is remembered
		forever, cancel := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() {
			require.ErrorIs(t, try.Err(lim.Wait(forever, "signup", user("7"))), context.Canceled)
		})
		synctest.Wait()
		soon, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		began := time.Now()
		require.ErrorIs(t, try.Err(lim.Wait(soon, "signup", user("7"))), limiter.ErrWaitTooLong)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		cancel()
		all.Wait()
	})
}

// Calls that no wait will admit, and calls that need none, neither wait nor queue,
// whoever is waiting.
func TestWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountingStore()
		lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{
			by("user", "2/h, 5/d"), {Event: "login", Kind: "user", Limits: counter.MustLimits("9/h"), IfMissing: limiter.MissingSkip},
		}})
		fill(t, lim, user("7"))
		over, cancel := context.WithCancel(ctx)
		defer cancel()
		waited := make(chan limiter.Verdict)
		go func() {
			v, _ := lim.Wait(over, "signup", user("7"))
			waited <- v
		}()
		synctest.Wait()
		store.asked()
		began := time.Now()
		for want, features := range map[string][]feature.Feature{
			`limiter: event "signup": n is 3, want at most 2 under 2/h by "user": no wait will do`: {user("7")},
			`limiter: event "signup": no feature of kind "user": no wait will do`:                  nil,
		} {
			v, err := lim.WaitN(ctx, "signup", 3, features...)
			require.EqualError(t, err, want)
			require.ErrorIs(t, err, limiter.ErrNever)
			require.Equal(t, []any{false, counter.Never}, []any{v.Allowed, v.RetryAfter})
		}
		require.Equal(t, limiter.OutcomeSkipped, try.To(lim.Wait(ctx, "login"))(t).Outcome())
		require.Zero(t, time.Since(began))
		steps, _ := store.asked()
		require.Zero(t, steps)
		time.Sleep(30 * time.Minute)
		cancel()
		v := <-waited
		require.InDelta(t, 30*time.Minute, v.RetryAfter, float64(3*time.Minute), "what is left of the wait")
	})
}

// waiters are calls of Wait on a Limiter, begun one after the other.
type waiters struct {
	lim   *limiter.Limiter
	all   sync.WaitGroup
	mu    sync.Mutex
	ended []string // in order, each with its error
}

// wait begins a call that goes by this name.
func (w *waiters) wait(ctx context.Context, name string, n int64, features ...feature.Feature) {
	w.all.Go(func() {
		_, err := w.lim.WaitN(ctx, "signup", n, features...)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case err == nil:
		case errors.Is(err, limiter.ErrQueueFull):
			name += " full"
		case errors.Is(err, limiter.ErrClosed):
			name += " closed"
		case errors.Is(err, context.Canceled):
			name += " canceled"
		default:
			name += " " + err.Error()
		}
		w.ended = append(w.ended, name)
	})
	synctest.Wait()
}

// now are the calls that have ended.
func (w *waiters) now() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ended)
}

// A queue is full for its own keys only, in any order of the features, and has a
// place again when a call leaves.
func TestWaitQueueIsBounded(t *testing.T) {
	require.EqualError(t, try.Err(limiter.New(newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("user", "1/h")}, MaxWaiting: -1})), "limiter: Config.MaxWaiting is -1, want 1 or more, or 0 for 10000")
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("user", "1/h")}, MaxWaiting: 2})
		fill(t, lim, user("7"), user("8"))
		w := waiters{lim: lim}
		leaves, cancel := context.WithCancel(ctx)
		w.wait(ctx, "a", 1, user("7"), user("8"))
		w.wait(leaves, "b", 1, user("8"), user("7"))
		w.wait(ctx, "c", 1, user("7"), user("8"))
		w.wait(ctx, "d", 1, user("7"))
		w.wait(ctx, "e", 1, user("9"))
		require.Equal(t, []string{"c full", "e"}, w.now())
		require.EqualValues(t, 3, lim.Stats().Waiting)
		require.Equal(t, 2, limiter.WaitQueues(lim))
		cancel()
		w.now()
		w.wait(ctx, "f", 1, user("8"), user("7"))
		w.wait(ctx, "g", 1, user("8"), user("7"))
		require.Equal(t, []string{"c full", "e", "b canceled", "g full"}, w.now())
		began := time.Now()
		require.NoError(t, lim.Close(ctx))
		require.NoError(t, lim.Close(ctx))
		w.all.Wait()
		require.Zero(t, time.Since(began), "nobody sleeps on")
		require.ElementsMatch(t, []string{"a closed", "d closed", "f closed"}, w.ended[4:])
		require.ErrorIs(t, try.Err(lim.Wait(ctx, "signup", user("9"))), limiter.ErrClosed)
		require.Zero(t, limiter.WaitQueues(lim))
	})
}

// A call that is denied returns to its place, though the queue is full by then.
func TestWaitQueueIsFullOfLaterCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(t, newFarStore(20*time.Millisecond), counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "1/h")}, MaxWaiting: 1})
		fill(t, lim, user("7"))
		time.Sleep(2 * time.Second) // the denial is no longer remembered
		w := waiters{lim: lim}
		for _, name := range []string{"a", "b", "c"} { // a asks, b waits
			w.wait(ctx, name, 1, user("7"))
		}
		w.all.Wait()
		require.Equal(t, []string{"c full", "a", "b"}, w.now())
	})
}

// A denial under the limits of one call says nothing of a call under other limits:
// when the first leaves, the next asks at once.
func TestWaitUnderTheLimitsOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := by("user", "1/h")
		rule.Plans = []counter.Limits{counter.MustLimits("5/h")}
		lim := onMemory(t, rule)
		free, pro := user("7"), limiter.Under(user("7"), rule.Plans[0])
		fill(t, lim, free)
		w := waiters{lim: lim}
		leaves, cancel := context.WithCancel(ctx)
		defer cancel()
		soon, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		w.wait(leaves, "a", 1, free)
		w.wait(ctx, "b", 1, pro)
		w.wait(ctx, "c", 1, free)
		require.Empty(t, w.now())
		began := time.Now()
		cancel()
		synctest.Wait()
		w.wait(soon, "d", 1, pro)
		early := w.now()
		slices.Sort(early) // a leaves and b comes in at one instant
		require.Equal(t, []string{"a canceled", "b", `d limiter: event "signup": the turn would come too late: context deadline exceeded`}, early)
		w.all.Wait()
		require.GreaterOrEqual(t, time.Since(began), time.Hour, "c has waited by its own limits")
	})
}

// A call of many hits is not overtaken by a call of few. When the first leaves,
// the next asks at once if it has fewer hits, and else keeps the time.
func TestWaitOrderOfWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountingStore()
		lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("user", "4/h")}})
		for range 2 {
			require.True(t, allow(t, lim, user("7")).Allowed)
			time.Sleep(time.Minute)
		}
		w := waiters{lim: lim}
		leaves, cancel := context.WithCancel(ctx)
		leavesToo, cancelToo := context.WithCancel(ctx)
		store.asked()
		w.wait(leaves, "four", 4, user("7"))
		w.wait(leavesToo, "four more", 4, user("7"))
		w.wait(ctx, "one", 1, user("7"))
		w.wait(ctx, "another one", 1, user("7"))
		w.wait(ctx, "three", 3, user("7"))
		cancel()
		synctest.Wait()
		steps, _ := store.asked()
		require.Equal(t, 1, steps, "four, and four more has the same time")
		cancelToo()
		require.Equal(t, []string{"four canceled", "four more canceled", "one", "another one"}, w.now())
		w.all.Wait()
		require.Equal(t, "three", w.ended[4])
	})
}

// Where there is room, calls ask side by side: a hundred calls on a slow link
// last a few round trips, and so they do when a FailOpen rule lets them through.
func TestWaitSideBySide(t *testing.T) {
	for _, row := range []struct {
		name string
		slow time.Duration
		want limiter.Outcome
		most time.Duration
	}{
		{"a slow link", 20 * time.Millisecond, limiter.OutcomeAdmitted, 300 * time.Millisecond},
		{"a store that hangs", time.Hour, limiter.OutcomeFailedOpen, 2 * limiter.DefaultDecideWithin},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := newLimiter(t, newCounter(t, newFarStore(row.slow), counter.Config{}), limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailOpen, by("user", "100/h"))}})
			began := time.Now()
			got := together(100, func(int) limiter.Verdict { return try.To(lim.Wait(ctx, "signup", user("7")))(t) })
			require.Equal(t, map[limiter.Outcome]int{row.want: 100}, got, row.name)
			require.LessOrEqual(t, time.Since(began), row.most, row.name)
		})
	}
}

// While the store fails, one call of the queue asks, about once a second, and when
// the store is back all calls are admitted. A deadline ends the wait.
func TestWaitWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flakyStore{Store: memory.New(memory.Config{})}
		var asked atomic.Int64
		c := newCounter(t, backend.Wrap(store, func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
			asked.Add(1)
			return do(ctx)
		}), counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "20/h")}})
		store.broken.Store(true)
		const fails = 10 * time.Minute
		time.AfterFunc(fails, func() { store.broken.Store(false) })
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				v := try.To(lim.Wait(ctx, "signup", user("7")))(t)
				took := time.Since(began)
				require.True(t, v.Outcome() == limiter.OutcomeAdmitted && took >= fails && took <= fails+2*time.Second, "%s: %s", took, v)
			})
		}
		synctest.Wait()
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		v, err := lim.Wait(soon, "signup", user("7"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, v.Degraded, errBroken)
		require.Equal(t, limiter.OutcomeFailedClosed, v.Outcome())
		require.GreaterOrEqual(t, time.Since(began), time.Minute-1600*time.Millisecond)
		all.Wait()
		require.LessOrEqual(t, asked.Load(), int64(fails/(500*time.Millisecond))+20)
		require.GreaterOrEqual(t, asked.Load(), int64(fails/(1600*time.Millisecond)))
	})
}

// A refund has the first call of the queue ask at once, also if its question was
// under way when the hit was given back.
func TestWaitForARefund(t *testing.T) {
	for _, wire := range []time.Duration{0, 50 * time.Millisecond} {
		for _, after := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				var store backend.Store = memory.New(memory.Config{})
				if wire > 0 {
					store = newFarStore(wire)
				}
				lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("user", "1/h"), by("ip", "1/h")}})
				home, ada := ip("192.0.2.1"), user("7")
				v := allow(t, lim, home, ada)
				go func() {
					time.Sleep(after)
					require.NoError(t, lim.Refund(ctx, &v))
				}()
				began := time.Now()
				try.To(lim.Wait(ctx, "signup", ada, home))(t)
				took := time.Since(began)
				require.GreaterOrEqual(t, took, after)
				require.LessOrEqual(t, took, after+1100*time.Millisecond+5*wire)
				if wire == 0 || after == time.Minute {
					require.LessOrEqual(t, took, after+5*wire, "at once")
				}
			})
		}
	}
}

// Whatever frees a key of a waiting call lets the call ask at once.
func TestWaitIsWoken(t *testing.T) {
	home, ada := ip("192.0.2.1"), user("7")
	for name, free := range map[string]func(lim *limiter.Limiter) error{
		"a credit":           func(lim *limiter.Limiter) error { _, err := lim.Charge(ctx, "signup", -1, home, ada); return err },
		"a Forget of a part": func(lim *limiter.Limiter) error { return lim.Forget(ctx, "signup", ada) },
		"an Erase of a part": func(lim *limiter.Limiter) error { return lim.Erase(ctx, ada) },
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := onMemory(t, by("user", "1/h"), by("ip", "9/h"))
			allow(t, lim, home, ada)
			w, began := waiters{lim: lim}, time.Now()
			w.wait(ctx, name, 1, home, ada)
			time.Sleep(time.Minute)
			require.NoError(t, free(lim))
			require.Equal(t, []string{name}, w.now())
			w.all.Wait()
			require.Equal(t, time.Minute, time.Since(began))
		})
	}
}

// A call of Wait is one decision, with the time that it has waited.
func TestWaitIsObservedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []limiter.Decision
		lim := newLimiter(t, newCounter(t, newFarStore(10*time.Millisecond), counter.Config{}), limiter.Config{
			Rules:      []limiter.Rule{by("user", "1/h")},
			MaxWaiting: 1,
			Observe:    func(d limiter.Decision) { mu.Lock(); defer mu.Unlock(); told = append(told, d) },
		})
		var all sync.WaitGroup
		try.To(lim.Wait(ctx, "signup", user("7")))(t)
		all.Go(func() { _, _ = lim.Wait(ctx, "signup", user("7")) })
		time.Sleep(time.Minute)
		require.ErrorIs(t, try.Err(lim.Wait(ctx, "signup", user("7"))), limiter.ErrQueueFull)
		require.ErrorIs(t, try.Err(lim.Wait(ctx, "signup")), limiter.ErrNever)
		require.Error(t, try.Err(lim.Wait(ctx, "signup", feature.Email("x"))))
		all.Wait()
		const wire = 10 * time.Millisecond
		once := counter.Limit{Max: 1, Per: time.Hour}
		require.Len(t, told, 4)
		waited := told[3].Waited
		require.Greater(t, waited, time.Hour)
		require.Zero(t, told[2].Latency.Round(time.Millisecond))
		told[2].Latency = 0
		require.Equal(t, []limiter.Decision{
			{Event: "signup", Kind: "user", Limit: once, Outcome: limiter.OutcomeAdmitted, N: 1, Latency: wire},
			{Event: "signup", Kind: "user", Limit: once, Outcome: limiter.OutcomeOverLimit, N: 1, Key: limiter.HiddenKey(key("user:7"))},
			{Event: "signup", Kind: "user", Outcome: limiter.OutcomeMissing, N: 1},
			{Event: "signup", Kind: "user", Limit: once, Outcome: limiter.OutcomeAdmitted, N: 1, Latency: wire, Waited: waited},
		}, told)
	})
}

// A limit whose Per is the longest hold, and a Refund at the end, bound what runs
// at once: by Wait in a process, and by Allow again and again in two. The peak is
// measured here, and nothing stays counted.
func TestAtMostFourAtOnce(t *testing.T) {
	const callers, runs, most = 24, 3, 4
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		t.Parallel()
		for processes := 1; processes <= 2; processes++ {
			var lims []*limiter.Limiter
			var c *counter.Counter
			for range processes {
				c = newCounter(t, store, counter.Config{Patience: patience})
				lims = append(lims, newLimiter(t, c, limiter.Config{DecideWithin: patience, Rules: []limiter.Rule{by("user", "4/h")}}))
			}
			var running, peak, done atomic.Int64
			var all sync.WaitGroup
			for i := range callers {
				lim := lims[i%processes]
				ask := lim.Wait
				if processes > 1 {
					ask = lim.Allow
				}
				all.Go(func() {
					for range runs {
						v, err := ask(ctx, "signup", user("7"))
						for err == nil && !v.Allowed {
							<-time.After(10 * time.Millisecond)
							v, err = ask(ctx, "signup", user("7"))
						}
						if err != nil {
							t.Error(err)
							return
						}
						now := running.Add(1)
						for before := peak.Load(); now > before && !peak.CompareAndSwap(before, now); before = peak.Load() {
						}
						<-time.After(time.Millisecond)
						done.Add(1)
						running.Add(-1)
						assert.NoError(t, lim.Refund(ctx, &v))
					}
				})
			}
			all.Wait()
			require.EqualValues(t, callers*runs, done.Load())
			require.LessOrEqual(t, peak.Load(), int64(most))
			require.Zero(t, counted(t, c, "user:7"))
		}
	})
}
