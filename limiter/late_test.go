package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

// A hit that is counted after its decision: given back to a caller who was
// denied and to a caller who has gone, but kept for a caller who was allowed.
func TestLateAdmissions(t *testing.T) {
	const slow, timeout = 200 * time.Millisecond, 50 * time.Millisecond
	open := onFailure(limiter.FailOpen, by("ip", "5/h"))
	for _, row := range []struct {
		name    string
		rules   []limiter.Rule
		before  int64         // hits already there
		n       int64         //
		peek    bool          //
		leaves  time.Duration // when the caller goes; zero: never
		takes   time.Duration
		want    limiter.Outcome // if the caller stays
		counted int64           // in the end
	}{
		{"closed", []limiter.Rule{by("ip", "5/h"), by("user", "5/h")}, 1, 2, false, 0, timeout, limiter.OutcomeFailedClosed, 1},
		{"open", []limiter.Rule{open, onFailure(limiter.FailOpen, by("user", "5/h"))}, 1, 2, false, 0, timeout, limiter.OutcomeFailedOpen, 3},
		{"one of each", []limiter.Rule{open, by("user", "5/h")}, 1, 2, false, 0, timeout, limiter.OutcomeFailedClosed, 1},
		{"a late denial", []limiter.Rule{by("ip", "5/h")}, 4, 2, false, 0, timeout, limiter.OutcomeFailedClosed, 4},
		{"a late denial, open", []limiter.Rule{open}, 4, 2, false, 0, timeout, limiter.OutcomeFailedOpen, 4},
		{"a late peek", []limiter.Rule{by("ip", "5/h")}, 4, 1, true, 0, timeout, limiter.OutcomeFailedClosed, 4},
		{"a late peek, open", []limiter.Rule{open}, 4, 1, true, 0, timeout, limiter.OutcomeFailedOpen, 4},
		{"a caller who has gone", []limiter.Rule{by("ip", "5/h")}, 1, 2, false, 20 * time.Millisecond, 20 * time.Millisecond, 0, 1},
		{"a caller who has gone, open", []limiter.Rule{open}, 1, 2, false, 20 * time.Millisecond, 20 * time.Millisecond, 0, 1},
		{"a caller who goes later", []limiter.Rule{open}, 1, 2, false, 60 * time.Millisecond, timeout, limiter.OutcomeFailedOpen, 3},
		{"a caller who goes later, closed", []limiter.Rule{by("ip", "5/h")}, 1, 2, false, 60 * time.Millisecond, timeout, limiter.OutcomeFailedClosed, 1},
	} {
		for _, deadline := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := newFarStore(slow)
				store.deaf = true
				c := farCounter(t, store)
				lim := newLimiter(t, c, limiter.Config{Rules: row.rules, DecideWithin: timeout})
				for _, feature := range []string{"ip:192.0.2.1", "user:ada"} {
					require.NoError(t, c.Add(ctx, key(feature), row.before))
				}
				began := time.Now()
				caller, cancel := context.WithCancel(ctx)
				defer cancel()
				gone := context.Canceled
				if row.leaves > 0 && deadline {
					caller, cancel = context.WithTimeout(ctx, row.leaves)
					defer cancel()
					gone = context.DeadlineExceeded
				} else if row.leaves > 0 {
					time.AfterFunc(row.leaves, cancel)
				}
				ask := lim.AllowN
				if row.peek {
					ask = lim.Peek
				}
				v, err := ask(caller, "signup", row.n, ip("192.0.2.1"), user("ada"))
				require.Equal(t, row.takes, time.Since(began), row.name)
				if row.leaves > 0 && row.leaves == row.takes {
					require.ErrorIs(t, err, gone, row.name)
					require.NotErrorIs(t, err, counter.ErrStore, row.name)
					require.ErrorContains(t, err, `limiter: event "signup": `, row.name)
					require.Equal(t, limiter.Verdict{}, v, row.name)
				} else {
					require.NoError(t, err, row.name)
					require.Equal(t, row.want, v.Outcome(), row.name)
				}
				time.Sleep(2 * slow)
				require.NoError(t, lim.Refund(ctx, &v), row.name)
				require.Equal(t, row.counted, counted(t, c, "ip:192.0.2.1"), row.name)
				if len(row.rules) > 1 {
					require.Equal(t, row.counted, counted(t, c, "user:ada"), row.name)
				}
			})
		}
	}
}

// However short the time: a deadline of the limiter is never the caller's
// error.
func TestShortDecideWithin(t *testing.T) {
	for _, timeout := range []time.Duration{1, time.Microsecond, 5 * time.Microsecond, 20 * time.Microsecond} {
		lim := newLimiter(t, farCounter(t, newFarStore(0)), limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}, DecideWithin: timeout})
		ticket.SideBySide(50, func(int) {
			for range 100 {
				if v, err := lim.Allow(ctx, "signup", ip("192.0.2.1")); err != nil || v.Allowed && v.Degraded != nil {
					t.Error(v, err)
					return
				}
			}
		})
	}
}

// foreign is a context of a type that package context does not know, and whose
// caller uses it for something else after the call. With forgets, Err is nil after
// Done was closed, as with fasthttp's once the server has stopped.
type foreign struct {
	done            chan struct{}
	forgets         bool
	ended, returned atomic.Bool
	late            atomic.Int64 // uses after the call
}

func (f *foreign) use() {
	if f.returned.Load() {
		f.late.Add(1)
	}
}

func (f *foreign) Deadline() (time.Time, bool) { f.use(); return time.Time{}, false }
func (f *foreign) Done() <-chan struct{}       { f.use(); return f.done }
func (f *foreign) Value(any) any               { f.use(); return nil }
func (f *foreign) Err() error {
	f.use()
	if f.ended.Load() && !f.forgets {
		return context.Canceled
	}
	return nil
}

func (f *foreign) end() {
	f.ended.Store(true)
	close(f.done)
}

// A context of any type may end at any moment of a call: no goroutine panics, and
// none uses the context after the call.
func TestForeignContexts(t *testing.T) {
	onStores(t, func(t *testing.T, store backend.Store, _ stored) { withForeignContexts(t, store, 2_000) })
	t.Run("far", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // some calls are answered after their callers have gone
			withForeignContexts(t, tracedStore{newFarStore(200 * time.Microsecond)}, 2_000)
		})
	})
}

// tracedStore asks the context of a call for a value when the answer has come, as clients
// that trace calls do.
type tracedStore struct{ backend.Atomic }

func (s tracedStore) Take(ctx context.Context, r *backend.TakeRequest) error {
	defer ctx.Value("span")
	return s.Atomic.Take(ctx, r)
}

func (s tracedStore) Do(ctx context.Context, r *backend.Request) error {
	defer ctx.Value("span")
	return s.Atomic.Do(ctx, r)
}

func withForeignContexts(t *testing.T, store backend.Store, calls int) {
	c := newCounter(t, store, counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "1000/h")}, MaxInFlight: 16, MaxWaiting: calls})
	limits := counter.MustLimits("1000/h")
	ways := []func(ctx context.Context, i int){
		func(ctx context.Context, i int) { _, _ = lim.Allow(ctx, "signup", user(fmt.Sprint(i))) },
		func(ctx context.Context, i int) { _, _ = lim.Allow(ctx, "signup", user(fmt.Sprint(i))) },
		func(ctx context.Context, i int) { _, _ = lim.Peek(ctx, "signup", 1, user(fmt.Sprint(i))) },
		func(ctx context.Context, i int) { _, _ = lim.Wait(ctx, "signup", user(fmt.Sprint(i))) },
		func(ctx context.Context, i int) { _, _ = lim.WaitN(ctx, "signup", 600, user("all")) },
		func(ctx context.Context, i int) { _, _ = c.Take(ctx, key("crowd"), 1, limits) },
		func(ctx context.Context, i int) { _, _ = c.Count(ctx, key("crowd"), time.Hour) },
		func(ctx context.Context, i int) { _ = c.Add(ctx, key(fmt.Sprint(i)), 1) },
		func(ctx context.Context, i int) { _ = c.Forget(ctx, key(fmt.Sprint(i))) },
	}
	var next atomic.Int64
	used := make([]*foreign, calls)
	ticket.SideBySide(24, func(int) {
		for i := int(next.Add(1)) - 1; i < calls; i = int(next.Add(1)) - 1 {
			f := &foreign{done: make(chan struct{}), forgets: i%2 == 0}
			used[i] = f
			ended := make(chan struct{})
			time.AfterFunc(time.Duration(rand.N(8))*50*time.Microsecond, func() { f.end(); close(ended) })
			if i%100 == 0 {
				_ = lim.Check(f)
			} else {
				ways[i%len(ways)](f, i)
			}
			f.returned.Store(true)
			<-ended
		}
	})
	for i, f := range used {
		require.Zero(t, f.late.Load(), "call %d", i)
	}
}

// slowStore is broken, or executes and then answers after a while.
type slowStore struct {
	*memory.Store
	broken         atomic.Bool
	take, add, sub atomic.Int64 // time.Durations; an hour: no answer, and no execution
	added          atomic.Int64 // calls of Do with an addition
}

func (s *slowStore) Take(ctx context.Context, r *backend.TakeRequest) error {
	if s.broken.Load() {
		return errBroken
	}
	err := s.Store.Take(ctx, r)
	time.Sleep(time.Duration(s.take.Load()))
	return err
}

func (s *slowStore) Do(ctx context.Context, r *backend.Request) error {
	if len(r.Add) > 0 {
		s.added.Add(1)
	}
	slow := time.Duration(s.add.Load())
	if r.N < 0 {
		slow = time.Duration(s.sub.Load())
	}
	switch {
	case s.broken.Load():
		return errBroken
	case slow >= time.Hour:
		time.Sleep(time.Until(r.Deadline))
		return context.DeadlineExceeded
	}
	err := s.Store.Do(ctx, r)
	time.Sleep(slow)
	return err
}

// newSlowStore returns a store, and a Limiter that counts locally by these rules.
func newSlowStore(t *testing.T, rules ...limiter.Rule) (*slowStore, *counter.Counter, *limiter.Limiter) {
	s := &slowStore{Store: memory.New(memory.Config{})}
	c := newCounter(t, struct{ backend.Atomic }{s}, counter.Config{})
	return s, c, newLimiter(t, c, limiter.Config{Rules: rules, Local: localCounter(t)})
}

// An answer that comes after hits were admitted locally is judged in the window of
// its own label, of which the local counter must still have all hits.
func TestALateAnswerIsJudgedInItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, lim := newSlowStore(t, onFailure(limiter.FailLocal, by("ip", "3/h")))
		defer lim.Close(over)
		home := ip("192.0.2.1")
		began := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))) }
		var labels []time.Duration
		note := func(v limiter.Verdict) {
			if v.Allowed {
				labels = append(labels, v.At().Sub(began))
			}
		}
		at(900 * time.Millisecond)
		note(allow(t, lim, home))
		note(allow(t, lim, home))
		at(time.Hour + 500*time.Millisecond)
		s.take.Store(int64(950 * time.Millisecond))
		done := make(chan limiter.Verdict)
		go func() { done <- allow(t, lim, home) }()
		synctest.Wait()
		at(time.Hour + 850*time.Millisecond)
		s.broken.Store(true) // a connection lost
		note(allow(t, lim, home))
		s.broken.Store(false)
		note(<-done)
		for i := range labels {
			n := 0
			for j := range labels {
				if d := labels[j] - labels[i]; d >= 0 && d <= time.Hour {
					n++
				}
			}
			require.LessOrEqual(t, n, 3, "%v", labels)
		}
	})
}

// A hit whose carry is under way may be counted twice, and deny: not for an hour.
func TestADenialBesideACarryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, lim := newSlowStore(t, onFailure(limiter.FailLocal, by("ip", "3/h")))
		defer lim.Close(over)
		home := ip("192.0.2.1")
		allow(t, lim, home)
		s.broken.Store(true)
		allow(t, lim, home)
		synctest.Wait() // nobody is about to add
		s.add.Store(int64(20 * time.Millisecond))
		before := s.added.Load()
		s.broken.Store(false)
		for s.added.Load() == before {
			time.Sleep(time.Millisecond)
		}
		v := allow(t, lim, home)
		time.Sleep(time.Second)
		w := allow(t, lim, home)
		require.False(t, v.Allowed)
		require.Less(t, v.RetryAfter, 2*time.Second)
		require.True(t, w.Allowed)
	})
}

// A refund of carried hits gives back all keys side by side, within Patience.
func TestARefundOfCarriedHitsKeepsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rules []limiter.Rule
		var fs []feature.Feature
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			rules = append(rules, onFailure(limiter.FailLocal, by(k, "3/h")))
			fs = append(fs, feature.New(k, "x"))
		}
		s, _, lim := newSlowStore(t, rules...)
		defer lim.Close(over)
		s.broken.Store(true)
		v := allow(t, lim, fs...)
		require.Equal(t, limiter.OutcomeLocalAdmitted, v.Outcome())
		s.broken.Store(false)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 5, lim.Stats().Carried)
		s.sub.Store(int64(time.Hour))
		began := time.Now()
		require.ErrorIs(t, lim.Refund(ctx, &v), counter.ErrStore)
		require.LessOrEqual(t, time.Since(began), counter.DefaultPatience)
	})
}

// A charge is counted, also where hits were admitted locally while it was under way.
func TestALateChargeIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, lim := newSlowStore(t, onFailure(limiter.FailLocal, by("ip", "3/h")))
		defer lim.Close(over)
		home := ip("192.0.2.1")
		s.take.Store(int64(100 * time.Millisecond))
		done := make(chan limiter.Verdict)
		go func() {
			v := charge(t, lim, 3, home)
			done <- v
		}()
		synctest.Wait()
		s.broken.Store(true)
		require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, lim, home).Outcome())
		s.broken.Store(false)
		v := <-done
		require.Equal(t, []any{limiter.OutcomeAdmitted, false}, []any{v.Outcome(), v.At().IsZero()})
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 4, counted(t, c, "ip:192.0.2.1"))
	})
}

// deafStore fails while it is deaf; what it adds is counted all the same.
type deafStore struct {
	flakyStore
	deaf atomic.Bool
}

func (s *deafStore) Take(ctx context.Context, r *backend.TakeRequest) error {
	if s.deaf.Load() {
		return errBroken
	}
	return s.flakyStore.Take(ctx, r)
}

func (s *deafStore) Do(ctx context.Context, r *backend.Request) error {
	if !s.deaf.Load() {
		return s.flakyStore.Do(ctx, r)
	}
	own := *r
	own.Add, own.Read = slices.Clone(r.Add), nil
	_ = s.flakyStore.Do(ctx, &own)
	return errBroken
}

// A carry whose answer was lost is sent again only after the store has answered a
// question: a link that loses all answers for half a minute has a hit counted twice.
func TestACarryWithoutAnAnswerIsNotRepeatedBlindly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deafStore{flakyStore: flakyStore{Store: memory.New(memory.Config{})}}
		c := newCounter(t, struct{ backend.Atomic }{store}, counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{onFailure(limiter.FailLocal, by("ip", "30/h"))}, Local: localCounter(t)})
		store.deaf.Store(true)
		require.Equal(t, limiter.OutcomeLocalAdmitted, allow(t, lim, ip("192.0.2.1")).Outcome())
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 1, lim.Stats().Pending)
		store.deaf.Store(false)
		require.NoError(t, lim.Close(ctx))
		require.EqualValues(t, 2, counted(t, c, "ip:192.0.2.1"))
	})
}
