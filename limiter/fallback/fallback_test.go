package fallback_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// remoteStore is a store on another machine, which answers after a while, or fails.
type remoteStore struct {
	backend.Atomic
	after atomic.Int64 // a time.Duration
	fails atomic.Bool
	asked atomic.Int64
}

func (s *remoteStore) answer() error {
	s.asked.Add(1)
	time.Sleep(time.Duration(s.after.Load()))
	if s.fails.Load() {
		return errors.New("broken")
	}
	return nil
}

func (s *remoteStore) Take(ctx context.Context, r *backend.TakeRequest) error {
	if err := s.answer(); err != nil {
		return err
	}
	return s.Atomic.Take(ctx, r)
}

func (s *remoteStore) Do(ctx context.Context, r *backend.Request) error {
	if err := s.answer(); err != nil {
		return err
	}
	return s.Atomic.Do(ctx, r)
}

var (
	key    = counter.Key{Event: "signup", Feature: "user:7"}
	limits = counter.MustLimits("4/h")
)

// newFallback returns a Fallback around store, which may admit half of each limit in
// this process, and the rule for takes.
func newFallback(t *testing.T, store backend.Store, maxInFlight int) (*fallback.Fallback, *fallback.Rule) {
	c := try.To(counter.New(store, counter.Config{Patience: time.Minute}))(t)
	here := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + time.Second}))(t)
	f := fallback.New(c, fallback.Config{Within: time.Second, MaxInFlight: maxInFlight, Local: here, Share: 0.5})
	return f, f.Ladder(c, here).Rule(limits)
}

func take(t *testing.T, f *fallback.Fallback, policy fallback.Policy, rule *fallback.Rule) (counter.Verdict, fallback.Origin) {
	c := &fallback.Call{Policy: policy}
	if rule != nil {
		c.Rules = []*fallback.Rule{rule}
	}
	var v counter.Verdict
	require.True(t, f.Begin())
	defer f.End()
	o := try.To(f.Take(t.Context(), c, []counter.Ask{{Key: key, N: 1, Limits: limits}}, &v))(t)
	return v, o
}

// Each policy decides for a store that fails, and local hits are in the store soon
// after the failure.
func TestPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &remoteStore{Atomic: memory.New(memory.Config{})}
		store.fails.Store(true)
		f, rule := newFallback(t, store, 0)
		v, o := take(t, f, fallback.Closed, nil)
		require.False(t, v.Allowed)
		require.ErrorIs(t, o.Degraded, counter.ErrStore)
		require.InDelta(t, time.Second, v.RetryAfter, float64(time.Second/2))
		v, o = take(t, f, fallback.Open, nil)
		require.True(t, v.Allowed)
		require.ErrorIs(t, o.Degraded, counter.ErrStore)
		for i := range 3 { // half of 4
			v, o = take(t, f, fallback.Local, rule)
			require.Equal(t, []any{i < 2, true}, []any{v.Allowed, o.Local})
		}
		store.fails.Store(false)
		time.Sleep(10 * time.Second)
		v, o = take(t, f, fallback.Local, rule)
		require.True(t, v.Allowed)
		require.NoError(t, o.Degraded)
		require.EqualValues(t, 1, v.Remaining)
		require.NoError(t, f.Close(t.Context()))
		require.Equal(t, []any{false, int64(2)}, []any{f.Begin(), f.Stats().Carried})
		require.Zero(t, fallback.Keys(f))
	})
}

// A key of which there is nothing to know is forgotten: after its hits were carried,
// given back before, while or after they were carried, or forgotten.
func TestKeysAreForgotten(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, f *fallback.Fallback, store *remoteStore, refund func()){
		"carried":         func(t *testing.T, f *fallback.Fallback, store *remoteStore, refund func()) { store.fails.Store(false) },
		"refunded before": func(t *testing.T, f *fallback.Fallback, store *remoteStore, refund func()) { refund() },
		"refunded afterwards": func(t *testing.T, f *fallback.Fallback, store *remoteStore, refund func()) {
			store.fails.Store(false)
			time.Sleep(10 * time.Second)
			refund()
		},
		"refunded meanwhile": func(t *testing.T, f *fallback.Fallback, store *remoteStore, refund func()) {
			synctest.Wait() // nobody is about to ask
			before := store.asked.Load()
			store.after.Store(int64(time.Second))
			store.fails.Store(false)
			for store.asked.Load() == before {
				time.Sleep(time.Millisecond)
			}
			refund()
		},
		"forgotten": func(t *testing.T, f *fallback.Fallback, store *remoteStore, refund func()) {
			require.NoError(t, f.Forget(t.Context(), key))
			require.Zero(t, f.Stats().Pending)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &remoteStore{Atomic: memory.New(memory.Config{})}
				store.fails.Store(true)
				f, rule := newFallback(t, store, 0)
				v, o := take(t, f, fallback.Local, rule)
				require.True(t, v.Allowed)
				require.Positive(t, fallback.Keys(f))
				end(t, f, store, func() { require.NoError(t, f.Refund(t.Context(), &v, o)) })
				time.Sleep(10 * time.Second)
				require.Zero(t, f.Stats().Pending)
				require.Zero(t, fallback.Keys(f))
				store.after.Store(0)
				store.fails.Store(false)
				v, _ = take(t, f, fallback.Closed, nil)
				require.EqualValues(t, map[bool]int64{true: 2, false: 3}[name == "carried"], v.Remaining, "the store has no hit that was given back")
				require.NoError(t, f.Close(t.Context()))
			})
		})
	}
}

// Callers that are told to come back in the same moment do not come back together.
func TestAfterFailure(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		after := fallback.AfterFailure()
		least, most = min(least, after), max(most, after)
	}
	require.GreaterOrEqual(t, least, 500*time.Millisecond)
	require.Less(t, most, 1500*time.Millisecond)
	require.Greater(t, most-least, 900*time.Millisecond)
}

// panickingStore is a store with a mistake.
type panickingStore struct{ backend.Atomic }

func (panickingStore) Take(context.Context, *backend.TakeRequest) error { panic("a mistake") }

// A panic of the store, which a server may recover, leaves neither a key nor a call in
// flight.
func TestPanic(t *testing.T) {
	c := try.To(counter.New(panickingStore{memory.New(memory.Config{})}, counter.Config{}))(t)
	here := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(t)
	f := fallback.New(c, fallback.Config{MaxInFlight: 1, Local: here, Share: 1})
	for range 3 {
		require.PanicsWithValue(t, "a mistake", func() { take(t, f, fallback.Local, f.Ladder(c, here).Rule(limits)) })
		require.Zero(t, fallback.Keys(f))
	}
	require.NoError(t, f.Close(t.Context()))
}

// A caller is answered in time, the late hit is undone, and a call without a place in
// flight is decided like one whose store has failed.
func TestLateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &remoteStore{Atomic: memory.New(memory.Config{})}
		store.after.Store(int64(10 * time.Second))
		f, _ := newFallback(t, store, 1)
		began := time.Now()
		v, o := take(t, f, fallback.Closed, nil)
		require.False(t, v.Allowed)
		require.ErrorContains(t, o.Degraded, "no answer within Config.DecideWithin of 1s")
		require.Equal(t, time.Second, time.Since(began))
		_, o = take(t, f, fallback.Closed, nil)
		require.ErrorContains(t, o.Degraded, "1 calls were under way, as many as Config.MaxInFlight")
		require.Equal(t, 2*time.Second, time.Since(began))
		store.after.Store(0)
		time.Sleep(20 * time.Second)
		v, o = take(t, f, fallback.Closed, nil)
		require.True(t, v.Allowed)
		require.NoError(t, o.Degraded)
		require.EqualValues(t, 3, v.Remaining)
		require.EqualValues(t, 1, f.Stats().Shed)
	})
}
