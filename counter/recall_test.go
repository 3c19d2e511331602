package counter_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/inside"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Held hits are judged as if the store counted them, and all numbers are those of the
// limits.
func TestHeld(t *testing.T) {
	onAll(t, `
		take 2 signup 5/h,9/d held=3,4 -> took *signup 5/h 0, signup 9/d 3
		peek 1 signup 5/h,9/d held=3,4 -> no *signup 5/h 0 in 1h0m1s, signup 9/d 3
		take 1 signup 5/h,9/d held=3,4 -> no *signup 5/h 0 in 1h0m1s, signup 9/d 3
		take 1 signup 5/h,9/d held=0,7 -> no signup 5/h 3, *signup 9/d 0 in 24h0m1s
		take 1 mail 99/h; 1 signup 5/h,9/d held=3,0 -> no mail 99/h 99, *signup 5/h 0 in 1h0m1s, signup 9/d 7
		take 1 signup 5/h,9/d held=2,0; 0 signup 5/h,9/d held=0,7 -> no signup 5/h 1, *signup 9/d 0 in 24h0m1s, signup 5/h 1, *signup 9/d 0 in 24h0m1s
		take 1 signup 5/h,9/d held=5,0 -> no *signup 5/h 0 never, signup 9/d 9
		# A denial of held hits says nothing of others.
		take 3 signup 5/h,9/d -> took *signup 5/h 0, signup 9/d 4
		take 1 signup 5/h,9/d held=1 -> error counter: Ask.Held has 1 numbers, want one for each of 2 limits, or nil, event "e"
		take 1 signup 5/h,9/d held=1; 1 signup 5/h,9/d held=1,1 -> error counter: Ask.Held has 1 numbers, want one for each of 2 limits, or nil, event "e"
		take 1 signup 5/h,9/d held=1,-1 -> error counter: Ask.Held[1] is -1, want 0 to 9007199254740991, event "e"
	`)
}

// inner returns what package limiter needs of a Counter.
func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}

// hits returns asks with n hits each.
func hits(n int64, asks ...counter.Ask) []counter.Ask {
	asks = slices.Clone(asks)
	for i := range asks {
		asks[i].N = n
	}
	return asks
}

// A call is not recalled once a key of it may have room, although the memory of denials is
// full and has dropped the key.
func TestRecallByAFullMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := try.To(counter.New(struct{ backend.Atomic }{memory.New(memory.Config{})}, counter.Config{}))(t)
		asks := make([]counter.Ask, 2_000)
		for i := range asks {
			asks[i] = counter.Ask{Key: counter.Key{Event: "signup", Feature: strconv.Itoa(i)}, Limits: counter.MustLimits("1/h"), N: 1}
			first := try.To(c.TakeAll(ctx, asks[i]))(t)
			require.False(t, try.To(c.TakeAll(ctx, asks[i]))(t).Allowed)
			require.NoError(t, c.Refund(ctx, &first))
		}
		for i := range 1 << 16 { // as many as are remembered
			require.NoError(t, c.Add(ctx, counter.Key{Event: "mail", Feature: strconv.Itoa(i)}, 1))
		}
		for _, ask := range asks {
			_, denied := inner(c).Recall(ask)
			require.False(t, denied, "%v", ask.Key)
		}
	})
}

// Recall knows equal calls for a second, LastDenial keys until their RetryAfter.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := try.To(counter.New(struct{ backend.Atomic }{memory.New(memory.Config{})}, counter.Config{}))(t)
		full := counter.Ask{Key: counter.Key{Event: "signup", Feature: "full"}, Limits: counter.MustLimits("5/h")}
		free := counter.Ask{Key: counter.Key{Event: "signup", Feature: "free"}, Limits: counter.MustLimits("5/h")}
		wide := counter.Ask{Key: full.Key, Limits: counter.MustLimits("6/h")}
		tight := counter.Ask{Key: full.Key, Limits: counter.MustLimits("6/h"), Held: []int64{3}}
		requireKnown := func(recall, last bool, n int64, asks ...counter.Ask) {
			asks = hits(n, asks...)
			_, denied := inner(c).Recall(asks...)
			require.Equal(t, recall, denied, "Recall")
			v, denied := inner(c).LastDenial(asks...)
			require.Equal(t, last, denied, "LastDenial")
			if denied {
				require.False(t, v.Allowed)
				require.Equal(t, full.Key, v.Key)
				require.Positive(t, v.RetryAfter)
			}
		}
		requireKnown(false, false, 1, full)
		require.NoError(t, c.Add(ctx, full.Key, 4))
		denied := try.To(c.TakeAll(ctx, hits(2, full, free)...))(t)
		require.False(t, denied.Allowed)
		requireKnown(true, true, 2, full, free)
		requireKnown(false, true, 2, full)
		requireKnown(false, true, 3, full)
		requireKnown(false, false, 1, full)
		requireKnown(false, false, 2, free)
		requireKnown(false, false, 2, wide)
		requireKnown(false, true, 2, tight)
		v, known := inner(c).Recall(hits(2, full, free)...)
		require.True(t, known)
		require.Equal(t, denied.RetryAfter, v.RetryAfter)
		time.Sleep(time.Second)
		requireKnown(false, true, 2, full, free)
		time.Sleep(denied.RetryAfter - 2*time.Second)
		requireKnown(false, true, 2, full)
		time.Sleep(time.Second)
		requireKnown(false, false, 2, full)

		// A Forget ends the knowledge, an Add and a Charge only that of the RetryAfter.
		require.NoError(t, c.Add(ctx, full.Key, 5))
		for _, more := range []func() error{
			func() error { return c.Add(ctx, full.Key, 1) },
			func() error { return try.Err(c.Charge(ctx, full.Key, 1, full.Limits)) },
		} {
			require.False(t, try.To(c.TakeAll(ctx, hits(1, full)...))(t).Allowed)
			requireKnown(true, true, 1, full)
			require.NoError(t, more())
			requireKnown(false, true, 1, full)
		}
		require.NoError(t, c.Forget(ctx, full.Key))
		requireKnown(false, false, 1, full)
	})
}

// A denial that may have found hits of an Add under way ends with the Add: hits of
// an Add that fails are taken back.
func TestLastDenialThatFoundHitsTakenBack(t *testing.T) {
	store := &brokenAdds{Atomic: memory.New(memory.Config{})}
	c := try.To(counter.New(store, counter.Config{}))(t)
	ask := counter.Ask{Key: counter.Key{Event: "signup", Feature: "full"}, N: 1, Limits: counter.MustLimits("5/h")}
	store.added = func() {
		require.False(t, try.To(c.TakeAll(ctx, ask))(t).Allowed)
		_, denied := inner(c).LastDenial(ask)
		require.True(t, denied)
	}
	require.ErrorIs(t, c.Add(ctx, ask.Key, 5), counter.ErrStore)
	_, denied := inner(c).LastDenial(ask)
	require.False(t, denied)
	require.True(t, try.To(c.TakeAll(ctx, ask))(t).Allowed)
}

// brokenAdds calls added after each addition, and fails it.
type brokenAdds struct {
	backend.Atomic
	added func()
}

func (s *brokenAdds) Do(ctx context.Context, r *backend.Request) error {
	if err := s.Atomic.Do(ctx, r); err != nil || len(r.Add) == 0 || r.N < 0 {
		return err
	}
	s.added()
	return errors.New("the answer is lost")
}
