package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
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
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for range 100 {
					if v, err := lim.Allow(ctx, "signup", ip("192.0.2.1")); err != nil || v.Allowed && v.Degraded != nil {
						t.Error(v, err)
						return
					}
				}
			})
		}
		callers.Wait()
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
	onStores(t, func(t *testing.T, store backend.Store, _ stored) {
		withForeignContexts(t, store, 2_000)
	})
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
	var all sync.WaitGroup
	used := make([]*foreign, calls)
	for range 24 {
		all.Go(func() {
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
	}
	all.Wait()
	for i, f := range used {
		require.Zero(t, f.late.Load(), "call %d", i)
	}
}
