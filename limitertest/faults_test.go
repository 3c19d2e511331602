package limitertest_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// shapes are stores in memory with the optional interfaces that stores over a
// network have.
var shapes = map[string]func() backend.Store{
	"local":          func() backend.Store { return memory.New(memory.Config{}) },
	"atomic":         func() backend.Store { return struct{ backend.Atomic }{memory.New(memory.Config{})} },
	"by ticket":      func() backend.Store { return struct{ backend.Store }{memory.New(memory.Config{})} },
	"of Do alone":    func() backend.Store { return backend.FromDo(memory.New(memory.Config{}).Do) },
	"atomic, around": func() backend.Store { return backend.Wrap(memory.New(memory.Config{}), through) },
}

// Without a fault a store is as good as before, and looks like a store over a
// network.
func TestFaultsThatAreNotSet(t *testing.T) {
	t.Run("suite", func(t *testing.T) { // which strips the optional interfaces too
		backendtest.Run(t, func(testing.TB) backend.Store { return new(limitertest.Faults).Wrap(memory.New(memory.Config{})) })
	})
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			store, wrapped := shape(), new(limitertest.Faults).Wrap(shape())
			require.Equal(t, is[backend.Atomic](store), is[backend.Atomic](wrapped))
			require.False(t, is[backend.Local](wrapped))
			c, err := counter.New(wrapped, counter.Config{})
			require.NoError(t, err)
			require.Equal(t, counter.DefaultSkew, c.Config().Skew)
			if err = c.Check(ctx); name == "of Do alone" {
				require.ErrorIs(t, err, counter.ErrCondition)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func is[I backend.Store](store backend.Store) bool { _, is := backend.As[I](store); return is }

func through(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
	return do(ctx)
}

// Each fault has its outcome under each policy, and its count in the end.
func TestFaults(t *testing.T) {
	const wait = limiter.DefaultDecideWithin
	for _, row := range []struct {
		name    string
		fault   limitertest.Fault
		takes   time.Duration
		err     error // in Degraded; nil: the store decides
		counted int64
	}{
		{"none", limitertest.Fault{}, 0, nil, 1},
		{"down", limitertest.Fault{Err: errDown}, 0, errDown, 0},
		{"slow", limitertest.Fault{Delay: 50 * time.Millisecond}, 50 * time.Millisecond, nil, 1},
		{"slowly down", limitertest.Fault{Delay: time.Millisecond, Err: errDown}, time.Millisecond, errDown, 0},
		{"late", limitertest.Fault{Delay: time.Hour}, wait, counter.ErrStore, 0},
		{"late, for the library", limitertest.Fault{Delay: time.Hour, Err: errDown}, wait, counter.ErrStore, 0},
		{"lost", limitertest.Fault{Lost: true, Calls: 1}, 0, counter.ErrStore, 1},
		{"lost, with an error", limitertest.Fault{Lost: true, Err: errDown, Calls: 1}, 0, errDown, 1},
		{"late and lost", limitertest.Fault{Lost: true, Delay: time.Hour}, wait, counter.ErrStore, 0},
	} {
		for shape, newStore := range shapes {
			for _, policy := range []limiter.OnFailure{limiter.FailClosed, limiter.FailOpen, limiter.FailLocal} {
				synctest.Test(t, func(t *testing.T) {
					name := row.name + ", " + shape + ", " + policy.String()
					var faults limitertest.Faults
					lim, _ := limitertest.NewOn(t, faults.Wrap(newStore()), limiter.Config{Rules: []limiter.Rule{by("ip", "5/h", policy)}})
					faults.Set(row.fault)
					began := time.Now()
					v := allow(t, lim, home)
					if took := time.Since(began); took != row.takes { // by ticket a Take may be two calls
						require.True(t, row.err == nil && strings.Contains("by ticket, of Do alone", shape) && took == 2*row.takes, "%s: took %s", name, took)
					}
					if row.err == nil {
						require.Equal(t, limiter.OutcomeAdmitted, v.Outcome(), name)
						require.NoError(t, v.Degraded, name)
					} else {
						require.Equal(t, map[limiter.OnFailure]limiter.Outcome{
							limiter.FailClosed: limiter.OutcomeFailedClosed, limiter.FailOpen: limiter.OutcomeFailedOpen, limiter.FailLocal: limiter.OutcomeLocalAdmitted,
						}[policy], v.Outcome(), name)
						require.ErrorIs(t, v.Degraded, row.err, name)
						require.ErrorIs(t, v.Degraded, counter.ErrStore, name)
					}

					faults.Set(limitertest.Fault{})
					time.Sleep(time.Minute) // a local hit is carried to the store
					want := row.counted
					if row.err != nil && policy == limiter.FailLocal {
						want++
					}
					require.Equal(t, 5-want, left(t, lim), name)
				})
			}
		}
	}
}

// left is the number of sign-ups that the limits leave.
func left(t testing.TB, lim *limiter.Limiter) int64 {
	v := try.To(lim.Peek(ctx, "signup", 1, home))(t)
	require.NoError(t, v.Degraded)
	require.True(t, v.Allowed)
	return v.Remaining + 1
}

// A fault of some calls happens to so many, and a context ends a Delay.
func TestFaultsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults limitertest.Faults
		lim, _ := limitertest.NewOn(t, faults.Wrap(memory.New(memory.Config{})), limiter.Config{Rules: []limiter.Rule{by("ip", "5/h", limiter.FailOpen)}})
		faults.Set(limitertest.Fault{Err: errDown, Calls: 2})
		for i, want := range []limiter.Outcome{limiter.OutcomeFailedOpen, limiter.OutcomeFailedOpen, limiter.OutcomeAdmitted, limiter.OutcomeAdmitted} {
			require.Equal(t, want, allow(t, lim, home).Outcome(), "call %d", i)
		}
		faults.Set(limitertest.Fault{Delay: time.Second / 2})
		gone, cancel := context.WithTimeout(ctx, time.Second/10)
		defer cancel()
		began := time.Now()
		_, err := lim.Allow(gone, "signup", home)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, counter.ErrStore)
		require.Equal(t, time.Second/10, time.Since(began))

		store := faults.Wrap(memory.New(memory.Config{}))
		faults.Set(limitertest.Fault{Delay: time.Hour})
		err = store.Do(ctx, &backend.Request{Deadline: time.Now().Add(time.Minute)})
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.EqualError(t, err, "limitertest: no answer in time, after a Delay of 1h0m0s: i/o timeout")
		require.Equal(t, time.Second/10+time.Minute, time.Since(began))
		faults.Set(limitertest.Fault{})
		synctest.Wait()
		require.EqualValues(t, 3, left(t, lim), "late hits are not counted")
	})
}

// Forget, Count and Check fail as well.
func TestAllCallsFail(t *testing.T) {
	for name, shape := range shapes {
		var faults limitertest.Faults
		c := try.To(counter.New(faults.Wrap(shape()), counter.Config{}))(t)
		key, limits := counter.Key{Event: "signup", Feature: "ip:192.0.2.1"}, counter.MustLimits("5/h")
		v, err := c.Take(ctx, key, 1, limits)
		require.NoError(t, err, name)
		faults.Set(limitertest.Fault{Err: errDown})
		for call, try := range map[string]func() error{
			"add":    func() error { return c.Add(ctx, key, 1) },
			"peek":   func() error { _, err := c.Peek(ctx, key, 1, limits); return err },
			"count":  func() error { _, err := c.Count(ctx, key, time.Hour); return err },
			"forget": func() error { return c.Forget(ctx, key) },
			"check":  func() error { return c.Check(ctx) },
			"refund": func() error { return c.Refund(ctx, &v) },
		} {
			require.ErrorIs(t, try(), errDown, "%s, %s", call, name)
		}
		faults.Set(limitertest.Fault{})
		require.NoError(t, c.Forget(ctx, key))
		require.Zero(t, try.To(c.Count(ctx, key, time.Hour))(t).High)
	}
}
