package counter_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

var (
	user   = counter.Key{Event: "signup", Feature: "user:7"}
	tenant = counter.Key{Event: "signup", Feature: "tenant:7"}
)

// onAll runs f on all paths, and on a store with an atomic step for each key alone.
func onAll(t *testing.T, f func(t *testing.T, store backend.Store)) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) { f(t, path.store()) })
	}
	t.Run("steps", func(t *testing.T) { f(t, apart{memory.New(memory.Config{})}) })
}

// A key that is charged with enforced keys counts when they admit, whatever its own
// limits say.
func TestAskCharge(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		clock := newClock(noon)
		c := newCounter(t, store, clock.config())
		asks := []counter.Ask{
			{Key: user, N: 3, Limits: limits("5/h, 90/d"), Charge: true},
			{Key: signup, N: 1, Limits: limits("3/d")},
		}
		take := func(allowed bool) (v counter.Verdict, charged counter.State) {
			t.Helper()
			v, err := c.TakeAll(ctx, asks...)
			require.NoError(t, err)
			require.Equal(t, allowed, v.Allowed)
			require.Equal(t, signup, v.Key, "a charged key does not bind")
			states := v.All()
			require.Len(t, states, 3)
			require.Equal(t, []int{0, 0, 1}, []int{states[0].Ask, states[1].Ask, states[2].Ask})
			require.Zero(t, states[1].RetryAfter)
			return v, states[0]
		}
		_, within := take(true)
		require.Zero(t, within.RetryAfter)
		require.Equal(t, int64(2), within.Remaining)
		clock.forward(10 * time.Minute)
		over, state := take(true)
		require.InDelta(t, 50*time.Minute, state.RetryAfter, float64(2*time.Second), "until the limit is not over")
		require.Zero(t, state.Remaining)
		require.Zero(t, over.RetryAfter)
		requireCount(t, c, user, 2*time.Hour, 6)
		take(true)

		// A look reports whether these hits have room, and counts nothing.
		asks[1].Limits = limits("9/d")
		looked, err := c.PeekAll(ctx, asks...)
		require.NoError(t, err)
		require.True(t, looked.Allowed)
		require.InDelta(t, time.Hour, looked.All()[0].RetryAfter, float64(2*time.Second))
		require.Zero(t, looked.RetryAfter)
		asks[1].Limits = limits("3/d")

		// Denied by another key, nothing is charged; what was charged is refunded.
		asks[0].N = 6
		for range 2 {
			_, state = take(false)
			require.Zero(t, state.RetryAfter)
			requireCount(t, c, user, 2*time.Hour, 9)
		}
		require.NoError(t, c.Refund(ctx, &over))
		requireCount(t, c, user, 2*time.Hour, 6)
		requireCount(t, c, signup, 2*time.Hour, 2)

		// Alone, and of no hits.
		v, err := c.TakeAll(ctx, counter.Ask{Key: tenant, N: 7, Limits: limits("5/h"), Charge: true})
		require.NoError(t, err)
		require.True(t, v.Allowed)
		require.Zero(t, v.Limit, "no limit binds")
		require.Positive(t, v.All()[0].RetryAfter)
		requireCount(t, c, tenant, time.Hour, 7)
		v, err = c.TakeAll(ctx, counter.Ask{Key: tenant, Limits: limits("5/h"), Charge: true}, counter.Ask{Key: signup, N: 1, Limits: limits("3/d")})
		require.NoError(t, err)
		require.True(t, v.Allowed)
		require.Positive(t, v.All()[0].RetryAfter)
		requireCount(t, c, tenant, time.Hour, 7)

		_, err = c.TakeAll(ctx, asks[0], counter.Ask{Key: user, N: 1, Limits: limits("5/h")})
		require.EqualError(t, err, `counter: event "signup": a key is asked for both with and without Ask.Charge or Ask.Shared, want one of them`)
		_, err = c.TakeAll(ctx, asks[0], counter.Ask{Key: user, N: counter.MaxCount, Limits: limits("5/h"), Charge: true})
		require.Error(t, err)
		_, err = c.TakeAll(ctx, counter.Ask{Key: user, N: counter.MaxCount, Limits: limits("5/h"), Charge: true}, counter.Ask{Key: tenant, N: 1, Limits: limits("9/h")})
		require.ErrorIs(t, err, backend.ErrMaxCount)
		requireCount(t, c, tenant, time.Hour, 7)
	})
}

// A denied call has not touched the keys that it would have charged: no one else sees
// the hits for a moment.
func TestAskChargeComesLast(t *testing.T) {
	store := &noting{Atomic: memory.New(memory.Config{})}
	for name, s := range map[string]backend.Store{"ticket": struct{ backend.Store }{store}, "steps": apart{store}} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, s, counter.Config{Prefix: name})
			first := counter.Key{Event: "a", Feature: "first by name"}
			require.True(t, take(t, c, signup, 1, limits("1/d")).Allowed)
			for i := range 3 {
				v, err := c.TakeAll(ctx, counter.Ask{Key: first, N: 1, Limits: limits("1/d"), Charge: true}, counter.Ask{Key: signup, N: 1, Limits: limits("1/d")},
					counter.Ask{Key: user, N: int64(i + 1), Limits: limits("9/d")})
				require.NoError(t, err)
				require.False(t, v.Allowed)
			}
			for _, key := range store.added {
				require.NotContains(t, key, "first")
			}
		})
	}
}

// A shared soft key denies no one, and its counts are there once its limits are enforced.
func TestSharedSoftKeys(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		c := newCounter(t, store, newClock(noon).config())
		shadow := counter.Ask{Key: signup, N: 1, Limits: limits("2/d"), Soft: true, Shared: true}
		var kept counter.Verdict
		for i := range 4 {
			v, err := c.TakeAll(ctx, shadow)
			require.NoError(t, err)
			require.True(t, v.Allowed)
			require.Equal(t, i >= 2, v.All()[0].RetryAfter > 0)
			require.True(t, v.All()[0].Soft)
			if i == 0 {
				kept = v
			}
		}
		requireCount(t, c, signup, time.Hour, 2)
		require.False(t, take(t, c, signup, 1, limits("2/d")).Allowed)
		require.NoError(t, c.Refund(ctx, &kept))
		require.True(t, take(t, c, signup, 1, limits("2/d")).Allowed)

		_, err := c.TakeAll(ctx, shadow, counter.Ask{Key: signup, N: 1, Limits: limits("5/d")})
		require.ErrorContains(t, err, "both with and without Ask.Charge or Ask.Shared")
		_, err = c.TakeAll(ctx, shadow, counter.Ask{Key: signup, N: 1, Limits: limits("5/d"), Soft: true})
		require.NoError(t, err, "the other soft key is counted apart")
	})
}

// A State names its Ask: of a key that is given twice, the first.
func TestStateAsk(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		c := newCounter(t, store, newClock(noon).config())
		v, err := c.TakeAll(ctx, counter.Ask{Key: user, N: 1, Limits: limits("5/h")}, counter.Ask{Key: signup, N: 1, Limits: limits("6/h")},
			counter.Ask{Key: user, N: 1, Limits: limits("7/h")}, counter.Ask{Key: tenant, N: 1, Limits: limits("8/h, 9/d"), Soft: true})
		require.NoError(t, err)
		asks := map[int64]int{}
		for _, s := range v.All() {
			asks[s.Limit.Max] = s.Ask
		}
		require.Equal(t, map[int64]int{5: 0, 7: 0, 6: 1, 8: 3, 9: 3}, asks)
	})
}

// A Charge below zero gives back the newest hits, as many as there are.
func TestCredit(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		clock := newClock(noon)
		c := newCounter(t, store, clock.config())
		all := limits("9/m, 20/h, 30/d")
		credit := func(n int64) counter.Verdict {
			t.Helper()
			v, err := c.Charge(ctx, signup, -n, all)
			require.NoError(t, err)
			require.Zero(t, v.At())
			return v
		}
		require.True(t, credit(3).Allowed, "nothing to give back")
		for range 5 { // 4 hits at 12:00:30, 4 at 12:50:30, and so on
			require.NoError(t, c.Add(ctx, signup, 3))
			clock.forward(time.Second)
			require.NoError(t, c.Add(ctx, signup, 1))
			clock.forward(50*time.Minute - time.Second)
		}
		clock.forward(20*time.Second - 50*time.Minute)
		counts := func(m, h, d int64) {
			t.Helper()
			requireCount(t, c, signup, time.Minute, m)
			requireCount(t, c, signup, 90*time.Minute, h)
			requireCount(t, c, signup, 10*time.Hour, d)
		}
		counts(4, 8, 20)
		credit(2)
		counts(2, 6, 18)
		require.Equal(t, int64(16), credit(4).All()[2].Remaining)
		counts(0, 2, 14)
		v := credit(100)
		require.Equal(t, int64(9), v.Remaining)
		counts(0, 0, 0)
		require.True(t, take(t, c, signup, 9, all).Allowed)

		// Over until enough is given back; several keys, one twice, and one soft.
		require.NoError(t, c.Add(ctx, signup, 3))
		require.NoError(t, c.Add(ctx, user, 3))
		v, err := c.ChargeAll(ctx, counter.Ask{Key: signup, N: -1, Limits: all}, counter.Ask{Key: user, N: -1, Limits: all},
			counter.Ask{Key: signup, N: -1, Limits: limits("11/h")}, counter.Ask{Key: tenant, N: 0, Limits: all})
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Equal(t, limits("9/m")[0], v.Limit)
		requireCount(t, c, signup, time.Hour, 10)
		requireCount(t, c, user, time.Hour, 2)
		require.True(t, credit(1).Allowed)

		_, err = c.ChargeAll(ctx, counter.Ask{Key: signup, N: -1, Limits: all}, counter.Ask{Key: user, N: 1, Limits: all})
		require.EqualError(t, err, `counter: n is 1, want 0 or below, as of the first key of the Charge, event "signup"`)
		_, err = c.TakeAll(ctx, counter.Ask{Key: signup, N: -1, Limits: all})
		require.ErrorContains(t, err, "n is -1")
		requireCount(t, c, signup, time.Hour, 9)
	})
}

// Hits that are older than the finer tiers are kept are given back in the coarser, and
// hits on a former ladder in both.
func TestCreditByAge(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		clock := newClock(noon)
		short, err := tiers.Parse("1s:1m, 1m:1h, 1h:1d")
		require.NoError(t, err)
		cfg := clock.config()
		cfg.Former = &counter.Config{Ladder: short}
		c := newCounter(t, store, cfg)
		former, err := c.With(short, nil)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, c.Add(ctx, signup, 5))
			clock.forward(40 * time.Minute)
		}
		for _, n := range []int64{4, 6} {
			_, err = c.Charge(ctx, signup, -n, limits("99/d"))
			require.NoError(t, err)
		}
		requireCount(t, c, signup, 12*time.Hour, 5)
		count, err := former.Count(ctx, signup, 12*time.Hour)
		require.NoError(t, err)
		require.Equal(t, int64(5), count.High)
	})
}

// Calls that charge a key with an enforced key cannot deny each other for the key
// that is charged: a crowd of them looks no more than calls of the enforced key alone.
func TestAskChargeInACrowd(t *testing.T) {
	const racers, places, rounds = 40, 7, 50
	clock := newClock(noon)
	cfg := clock.config()
	cfg.Patience = 20 * time.Second
	c := newCounter(t, newPlainStore(), cfg)
	for range rounds {
		clock.forward(24 * time.Hour)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range racers {
			wg.Go(func() {
				v, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("7/h")}, counter.Ask{Key: user, N: 1, Limits: limits("1/h"), Charge: true})
				if err == nil && v.Allowed {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(places), admitted.Load())
		requireCount(t, c, user, time.Hour, places)
	}
	require.Zero(t, c.Stats().LooksAgain)
}

// A credit gives back no hits from before the windows of its limits.
func TestCreditEndsWithTheWindow(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		clock := newClock(noon)
		c := newCounter(t, store, clock.config())
		require.NoError(t, c.Add(ctx, signup, 5))
		clock.forward(10 * time.Minute)
		_, err := c.Charge(ctx, signup, -3, limits("5/m"))
		require.NoError(t, err)
		requireCount(t, c, signup, time.Hour, 5)
		require.NoError(t, c.Add(ctx, signup, 2))
		_, err = c.Charge(ctx, signup, -3, limits("5/m"))
		require.NoError(t, err)
		requireCount(t, c, signup, time.Hour, 5)
		_, err = c.ChargeAll(ctx, counter.Ask{Key: signup, N: -3, Limits: limits("5/h")}, counter.Ask{Key: signup, N: -1, Limits: limits("5/m"), Charge: true})
		require.NoError(t, err, "all keys of a Charge are charged")
		requireCount(t, c, signup, time.Hour, 1)
	})
}

// A former ladder that is too short for the limits gives back what it has.
func TestCreditOnAShortFormerLadder(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		clock := newClock(noon)
		short, err := tiers.Parse("1s:1m, 1m:1h")
		require.NoError(t, err)
		cfg := clock.config()
		cfg.Former = &counter.Config{Ladder: short}
		c := newCounter(t, store, cfg)
		require.NoError(t, c.Add(ctx, signup, 5))
		clock.forward(10 * time.Minute)
		_, err = c.Charge(ctx, signup, -3, limits("9/d"))
		require.NoError(t, err)
		former, err := c.With(short, nil)
		require.NoError(t, err)
		requireCount(t, former, signup, time.Hour, 2)
	})
}

// A credit ends with its context, however many buckets are left.
func TestCreditEndsWithItsContext(t *testing.T) {
	store := newPlainStore()
	ctx, cancel := context.WithCancel(ctx)
	changes := 0
	c := newCounter(t, backend.FromDo(func(ctx context.Context, r *backend.Request) error {
		if r.N < 0 {
			if changes++; changes == 3 {
				cancel()
			}
		}
		return store.Do(ctx, r)
	}), counter.Config{})
	for i := range 50 {
		require.NoError(t, c.AddAt(ctx, signup, 1, time.Now().Add(-time.Duration(i)*time.Second)))
	}
	_, err := c.Charge(ctx, signup, -50, limits("50/h"))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, changes)
}

// A charged key whose Held alone are above Max hides no other limit that is over.
func TestChargeWithHeldAboveMax(t *testing.T) {
	onAll(t, func(t *testing.T, store backend.Store) {
		c := newCounter(t, store, newClock(noon).config())
		held := counter.Ask{Key: user, N: 1, Limits: limits("5/h"), Held: []int64{9}, Charge: true}
		other := counter.Ask{Key: tenant, N: 7, Limits: limits("5/h"), Charge: true}
		v, err := c.TakeAll(ctx, held, other, counter.Ask{Key: signup, N: 1, Limits: limits("5/h")})
		require.NoError(t, err)
		states := v.All()
		require.Equal(t, counter.Never, states[0].RetryAfter)
		require.Positive(t, states[0].ResetAfter, "a hit is counted")
		require.InDelta(t, time.Hour, states[1].RetryAfter, float64(2*time.Second))
		require.Zero(t, states[1].Remaining)
		require.Positive(t, states[1].ResetAfter)

		v, err = c.ChargeAll(ctx, other, held)
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Equal(t, user, v.Key)
		require.Equal(t, counter.Never, v.RetryAfter)
		require.InDelta(t, time.Hour, v.All()[0].RetryAfter, float64(2*time.Second))
	})
}

// A denied call that would have charged a key is remembered as any other.
func TestAskChargeIsRemembered(t *testing.T) {
	store := newPlainStore()
	var trips atomic.Int64
	c := newCounter(t, backend.FromDo(func(ctx context.Context, r *backend.Request) error {
		trips.Add(1)
		return store.Do(ctx, r)
	}), newClock(noon).config())
	for i := range 6 {
		v, err := c.TakeAll(ctx, counter.Ask{Key: user, N: 1, Limits: limits("5/h"), Charge: true}, counter.Ask{Key: signup, N: 1, Limits: limits("1/d")})
		require.NoError(t, err)
		require.Equal(t, i == 0, v.Allowed)
		if i < 3 {
			trips.Store(0)
		}
	}
	require.Zero(t, trips.Load())
}
