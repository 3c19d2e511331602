package limiter_test

import (
	"context"
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
	"github.com/abacus-go/abacus/limiter"
)

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
		s.add.Store(int64(20 * time.Millisecond))
		s.broken.Store(false)
		before := s.added.Load()
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
