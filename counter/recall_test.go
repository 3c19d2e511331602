package counter_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/inside"
)

// Held hits are judged as if the store counted them, and all numbers are those of
// the limits.
func TestHeld(t *testing.T) {
	for name, store := range map[string]backend.Store{
		"memory":    memory.New(memory.Config{}),
		"atomic":    struct{ backend.Atomic }{memory.New(memory.Config{})},
		"by ticket": struct{ backend.Store }{memory.New(memory.Config{})},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := counter.New(store, counter.Config{})
			require.NoError(t, err)
			ask := func(n int64, held ...int64) counter.Ask {
				return counter.Ask{Key: counter.Key{Event: "signup", Feature: "ip:192.0.2.1"}, N: n, Limits: counter.MustLimits("5/h, 9/d"), Held: held}
			}
			mail := counter.Ask{Key: counter.Key{Event: "mail", Feature: "ip:192.0.2.1"}, N: 1, Limits: counter.MustLimits("99/h")}
			v, err := c.TakeAll(ctx, ask(2, 3, 4))
			require.NoError(t, err)
			require.True(t, v.Allowed)
			require.Equal(t, counter.MustLimits("5/h")[0], v.Limit)
			require.Zero(t, v.Remaining)
			require.EqualValues(t, 3, v.All()[1].Remaining)
			for _, asks := range [][]counter.Ask{{ask(1, 3, 4)}, {ask(1, 0, 7)}, {mail, ask(1, 3, 0)}, {ask(1, 2, 0), ask(0, 0, 7)}} {
				for _, call := range []func(context.Context, ...counter.Ask) (counter.Verdict, error){c.PeekAll, c.TakeAll} {
					v, err = call(ctx, asks...)
					require.NoError(t, err)
					require.False(t, v.Allowed, asks)
					require.Positive(t, v.RetryAfter)
				}
			}
			v, err = c.TakeAll(ctx, ask(1, 5, 0))
			require.NoError(t, err)
			require.Equal(t, counter.Never, v.RetryAfter)
			v, err = c.TakeAll(ctx, ask(3))
			require.NoError(t, err)
			require.True(t, v.Allowed, "a denial of held hits says nothing of others")
			_, err = c.TakeAll(ctx, ask(1, 1))
			require.EqualError(t, err, `counter: Ask.Held has 1 numbers, want one for each of 2 limits, or nil, event "signup"`)
			_, err = c.TakeAll(ctx, ask(1, 1), ask(1, 1, 1))
			require.ErrorContains(t, err, "Ask.Held has 1 numbers", "also of a key given twice")
			_, err = c.TakeAll(ctx, ask(1, 1, -1))
			require.EqualError(t, err, `counter: Ask.Held[1] is -1, want 0 to 9007199254740991, event "signup"`)
		})
	}
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

// Recall knows equal calls for a second, LastDenial keys until their RetryAfter.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := counter.New(struct{ backend.Atomic }{memory.New(memory.Config{})}, counter.Config{})
		require.NoError(t, err)
		full := counter.Ask{Key: counter.Key{Event: "signup", Feature: "full"}, Limits: counter.MustLimits("5/h")}
		free := counter.Ask{Key: counter.Key{Event: "signup", Feature: "free"}, Limits: counter.MustLimits("5/h")}
		wide := counter.Ask{Key: full.Key, Limits: counter.MustLimits("6/h")}
		tight := counter.Ask{Key: full.Key, Limits: counter.MustLimits("6/h"), Held: []int64{3}}
		requireKnown := func(recall, last bool, n int64, asks ...counter.Ask) {
			t.Helper()
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
		denied, err := c.TakeAll(ctx, hits(2, full, free)...)
		require.NoError(t, err)
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

		// A Forget ends the knowledge, an Add only that of the RetryAfter.
		require.NoError(t, c.Add(ctx, full.Key, 5))
		denied, err = c.TakeAll(ctx, hits(1, full)...)
		require.NoError(t, err)
		require.False(t, denied.Allowed)
		requireKnown(true, true, 1, full)
		require.NoError(t, c.Add(ctx, full.Key, 1))
		requireKnown(false, true, 1, full)
		require.NoError(t, c.Forget(ctx, full.Key))
		requireKnown(false, false, 1, full)
	})
}

// A denial that may have found hits of an Add under way ends with the Add: hits of
// an Add that fails are taken back.
func TestLastDenialThatFoundHitsTakenBack(t *testing.T) {
	store := &brokenAdds{Atomic: memory.New(memory.Config{})}
	c, err := counter.New(store, counter.Config{})
	require.NoError(t, err)
	ask := counter.Ask{Key: counter.Key{Event: "signup", Feature: "full"}, N: 1, Limits: counter.MustLimits("5/h")}
	store.added = func() {
		v, err := c.TakeAll(ctx, ask)
		require.NoError(t, err)
		require.False(t, v.Allowed)
		_, denied := inner(c).LastDenial(ask)
		require.True(t, denied)
	}
	require.ErrorIs(t, c.Add(ctx, ask.Key, 5), counter.ErrStore)
	_, denied := inner(c).LastDenial(ask)
	require.False(t, denied)
	v, err := c.TakeAll(ctx, ask)
	require.NoError(t, err)
	require.True(t, v.Allowed)
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
