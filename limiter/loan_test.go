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

// foreign is a context of a type that package context does not know, and whose
// caller uses it for something else after the call. With forgets, Err is nil after
// Done was closed, as with fasthttp's once the server has stopped.
type foreign struct {
	done     chan struct{}
	forgets  bool
	ended    atomic.Bool
	returned atomic.Bool
	late     atomic.Int64 // uses after the call
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
