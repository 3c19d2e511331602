package counter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
)

var user = counter.Key{Event: "signup", Feature: "user:7"}

// Charge counts in any case and reports whether that was over; RetryAfter is the time until
// no limit is over.
func TestCharge(t *testing.T) {
	onAll(t, `
		charge 3 signup 5/h,100/d -> took *signup 5/h 2, signup 100/d 97
		later 10m
		charge 2 signup 5/h,100/d -> took *signup 5/h 0, signup 100/d 95
		over: charge 7 signup 5/h,100/d -> over *signup 5/h 0 in 1h0m1s, signup 100/d 88
		count signup 1h -> 12
		take 1 signup 5/h -> no *signup 5/h 0 in 1h0m1s
		# Hits that were over are given back as others.
		refund over
		refund over
		count signup 1h -> 5
		# Several keys are charged together.
		v: charge 2 user 9/d; 1 signup 5/h -> over user 9/d 7, *signup 5/h 0 in 50m1s
		count user 1h -> 2
		count signup 1h -> 6
		refund v
		count user 1h -> 0
		count signup 1h -> 5
		charge 0 signup 5/h -> error counter: n is 0, want 1 to 9007199254740991, or a Peek, event "e"
	`)
}

// A key that is charged with enforced keys counts when they admit, whatever its own
// limits say.
func TestAskCharge(t *testing.T) {
	onAll(t, `
		let three 3 user 5/h,90/d charged; 1 signup 3/d
		let six 6 user 5/h,90/d charged; 1 signup 3/d
		take three -> took user 5/h 2, user 90/d 87, *signup 3/d 2
		later 10m
		over: take three -> took user 5/h 0 in 50m1s, user 90/d 84, *signup 3/d 1
		count user 2h -> 6
		take three -> took user 5/h 0 in 1h0m1s, user 90/d 81, *signup 3/d 0
		# A look reports whether these hits have room, and counts nothing.
		peek 3 user 5/h,90/d charged; 1 signup 9/d -> yes user 5/h 0 in 1h0m1s, user 90/d 81, *signup 9/d 5
		# Denied by another key, nothing is charged; what was charged is refunded.
		take six -> no user 5/h 0, user 90/d 81, *signup 3/d 0 in 23h50m1s
		take six -> no user 5/h 0, user 90/d 81, *signup 3/d 0 in 23h50m1s
		count user 2h -> 9
		refund over
		count user 2h -> 6
		count signup 2h -> 2
		# Alone, and of no hits.
		take 7 tenant 5/h charged -> took tenant 5/h 0 in 1h0m1s
		count tenant 1h -> 7
		take 0 tenant 5/h charged; 1 signup 3/d -> took tenant 5/h 0 in 1h0m1s, *signup 3/d 0
		count tenant 1h -> 7
		take 6 user 5/h charged; 1 user 5/h -> error both with and without Ask.Charge or Ask.Shared
		take 6 user 5/h charged; 9007199254740991 user 5/h charged -> error counter: n is 9007199254740997, want 1 to 9007199254740991, event "e"
		take 9007199254740991 user 5/h charged; 1 tenant 9/h -> error counter: event "e": the count would exceed 2^53-1
		count tenant 1h -> 7
		# A charged key whose Held alone are above Max hides no other limit that is over.
		take 1 a 5/h held=9 charged; 7 b 5/h charged; 1 c 5/h -> took a 5/h 0 never, b 5/h 0 in 1h0m1s, *c 5/h 4
		charge 7 b 5/h; 1 a 5/h held=9 -> over b 5/h 0 in 1h0m1s, *a 5/h 0 never
		# The Ask of a key that is given twice is the first.
		take 1 x 5/h; 1 y 6/h; 1 x 7/h; 1 z 8/h,9/d soft -> took *x 5/h 3, x 7/h 5, y 6/h 5, z 8/h 7, z 9/d 8
	`)
}

// A Charge below zero gives back the newest hits, as many as there are.
func TestCredit(t *testing.T) {
	onAll(t, `
		charge -3 signup 9/m,20/h,30/d -> yes *signup 9/m 9, signup 20/h 20, signup 30/d 30
		add 3 signup
		later 1s
		add 1 signup
		later 49m59s
		add 3 signup
		later 1s
		add 1 signup
		later 49m59s
		add 3 signup
		later 1s
		add 1 signup
		later 19s
		count signup 1m 90m 10h -> 4 8 12
		charge -2 signup 9/m,20/h,30/d -> yes *signup 9/m 7, signup 20/h 14, signup 30/d 20
		count signup 1m 90m 10h -> 2 6 10
		charge -4 signup 9/m,20/h,30/d -> yes *signup 9/m 9, signup 20/h 18, signup 30/d 24
		count signup 1m 90m 10h -> 0 2 6
		charge -100 signup 9/m,20/h,30/d -> yes *signup 9/m 9, signup 20/h 20, signup 30/d 30
		count signup 10h -> 0
		take 9 signup 9/m,20/h,30/d -> took *signup 9/m 0, signup 20/h 11, signup 30/d 21
		# Over until enough is given back; several keys, one twice, and one of no hits.
		add 3 signup
		add 3 user
		charge -1 signup 9/m,20/h,30/d; -1 user 9/m; -1 signup 11/h; 0 tenant 9/m -> no *signup 9/m 0 in 1m1s, signup 20/h 10, signup 30/d 20, signup 11/h 1, user 9/m 7, tenant 9/m 9
		count signup 1h -> 10
		count user 1h -> 2
		charge -1 signup 9/m,20/h,30/d -> yes *signup 9/m 0, signup 20/h 11, signup 30/d 21
		charge -1 signup 9/m,20/h,30/d; 1 user 9/m -> error counter: n is 1, want 0 or below, as of the first key of the Charge, event "e"
		take -1 signup 9/m -> error counter: n is -1, want 1 to 9007199254740991, event "e"
		count signup 1h -> 9
		# A credit gives back no hits from before the windows of its limits.
		add 5 page
		later 10m
		charge -3 page 5/m -> yes *page 5/m 5
		count page 1h -> 5
		add 2 page
		charge -3 page 5/m -> yes *page 5/m 5
		count page 1h -> 5
		charge -3 page 5/h; -1 page 5/m charged -> yes *page 5/h 4, page 5/m 5
		count page 1h -> 1
	`)
}

// A denied call has not touched the keys that it would have charged, and no call those of
// which no hit is taken: no one else sees the hits for a moment.
func TestAskChargeComesLast(t *testing.T) {
	store := &noting{Atomic: memory.New(memory.Config{})}
	for name, s := range map[string]backend.Store{"ticket": struct{ backend.Store }{store}, "steps": apart{store}, "taker": store} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, s, counter.Config{Prefix: name})
			ban := counter.Ask{Key: keyOf("ban"), Limits: limits("0/h")}
			for i := range 4 {
				v := try.To(c.TakeAll(ctx, counter.Ask{Key: keyOf("a first"), N: int64(min(i, 1)), Limits: limits("1/d"), Charge: true}, ban,
					counter.Ask{Key: signup, N: 1, Limits: limits("1/d")}, counter.Ask{Key: user, N: int64(i), Limits: limits("9/d")}))(t)
				require.Equal(t, i == 0, v.Allowed)
			}
			for _, key := range store.added {
				require.NotContains(t, key, "first")
				require.NotContains(t, key, "ban")
			}
		})
	}
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
		ticket.SideBySide(racers, func(int) {
			v, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("7/h")}, counter.Ask{Key: user, N: 1, Limits: limits("1/h"), Charge: true})
			if err == nil && v.Allowed {
				admitted.Add(1)
			}
		})
		require.Equal(t, int64(places), admitted.Load())
		requireCount(t, c, user, time.Hour, places)
	}
	require.Zero(t, c.Stats().LooksAgain)
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
	require.ErrorIs(t, try.Err(c.Charge(ctx, signup, -50, limits("50/h"))), context.Canceled)
	require.Equal(t, 3, changes)
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
		v := try.To(c.TakeAll(ctx, counter.Ask{Key: user, N: 1, Limits: limits("5/h"), Charge: true}, counter.Ask{Key: signup, N: 1, Limits: limits("1/d")}))(t)
		require.Equal(t, i == 0, v.Allowed)
		if i < 3 {
			trips.Store(0)
		}
	}
	require.Zero(t, trips.Load())
}

// Hits that no bucket is kept for, or of a later clock than Skew allows, are refused.
func TestAddAt(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Skew: time.Second, Now: newClock(noon).now})
	for _, age := range []time.Duration{26 * time.Hour, 200 * 365 * 24 * time.Hour} {
		err := c.AddAt(ctx, signup, 1, noon.Add(-age))
		require.ErrorIs(t, err, counter.ErrTooOld)
		require.NotErrorIs(t, err, counter.ErrStore)
	}
	require.NoError(t, c.AddAt(ctx, signup, 3, noon.Add(time.Second)))
	require.ErrorContains(t, c.AddAt(ctx, signup, 1, noon.Add(2*time.Second)), "at is 2026-03-02T12:00:32Z, 2s after Config.Now, want at most Config.Skew later, which is 1s")
	require.ErrorContains(t, c.AddAt(ctx, signup, 0, noon), "n is 0, want 1 to")
	require.NoError(t, c.RefundAt(ctx, signup, 2, noon.Add(time.Second)))
	requireCount(t, c, signup, time.Hour, 1)
}

// A failing AddAt is repeated until it is answered, on a store that fails before,
// between and after its additions and takings back, with and without answers.
func TestARepeatedAddAtIsNeverLess(t *testing.T) {
	more := false
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		store := newPlainStore()
		c := newCounter(t, store, counter.Config{Now: func() time.Time { return halfPast }})
		require.NoError(t, c.AddAt(ctx, signup, 100, halfPast.Add(-5*time.Hour)), "hits of others")
		failures := r.IntN(6)
		store.fault = func(op *backend.Request) (int, int, error) {
			if op.N > 0 {
				if failures--; failures < 0 {
					return 0, 0, nil
				}
			} else if r.IntN(2) == 0 {
				return 0, 0, nil
			}
			made := r.IntN(len(op.Add) + 1)
			return made, r.IntN(made + 1), errors.New("cut")
		}
		attempts := int64(1)
		for ; ; attempts++ {
			err := c.AddAt(ctx, signup, 7, halfPast.Add(-5*time.Hour))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, counter.ErrStore)
			require.NotErrorIs(t, err, counter.ErrTooOld)
		}
		for i := range c.Config().Ladder.Len() {
			sum, _ := store.held(c.Config().Ladder.At(i).Width)
			require.GreaterOrEqual(t, sum, int64(107), "seed %d", seed)
			require.LessOrEqual(t, sum, 100+7*attempts, "seed %d", seed)
			more = more || sum > 107
		}
	}
	require.True(t, more, "no unanswered addition was left")
}

// After an AddAt no Take of the process goes by settled buckets that were read
// before, not even by those that a Take under way has read.
func TestAddAtEndsWhatIsRemembered(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		store := newPlainStore()
		store.ordered = true
		k := newTaking(t, store, counter.Config{})
		add := func() {
			require.NoError(t, k.AddAt(ctx, counter.Key{Event: "e", Feature: "a"}, 10, k.now.Add(-22*time.Hour)))
		}
		k.take("a", "100/d")
		if meanwhile {
			steps := 0
			store.pause = func() {
				if steps++; steps == 8 { // three additions, and the oldest five hours are read
					store.pause = nil
					add()
				}
			}
		}
		k.take("a", "100/d") // and is remembered
		if !meanwhile {
			_, _, reads := k.take("a", "100/d")
			require.Zero(t, reads)
			add()
		}
		require.Nil(t, store.pause)
		v, _, _ := k.take("a", "12/d")
		require.False(t, v.Allowed, "meanwhile: %v", meanwhile)
	}
}
