package counter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

func takeUpTo(t testing.TB, c *counter.Counter, n int64, l counter.Limits, keys ...counter.Key) counter.Verdict {
	var asks []counter.Ask
	for _, k := range keys {
		asks = append(asks, counter.Ask{Key: k, N: n, Limits: l, UpTo: true})
	}
	return try.To(c.TakeAll(ctx, asks...))(t)
}

// A call up to n takes what there is, tells when there is room for one more, and a Refund
// gives back what was taken.
func TestUpTo(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			l := limits("10/h, 40/d")
			first := takeUpTo(t, c, 4, l, signup)
			require.True(t, first.Allowed)
			require.EqualValues(t, 4, first.N())
			require.EqualValues(t, 6, first.Remaining)
			require.Zero(t, first.RetryAfter)
			clock.forward(10 * time.Minute)
			rest := takeUpTo(t, c, 30, l, signup)
			require.True(t, rest.Allowed)
			require.EqualValues(t, 6, rest.N())
			require.Equal(t, clock.now(), rest.At())
			require.Zero(t, rest.Remaining)
			require.Equal(t, "10/h", rest.Limit.String())
			requireAbout(t, 50*time.Minute, rest.RetryAfter)
			require.Equal(t, rest.RetryAfter, rest.All()[0].RetryAfter)
			require.EqualValues(t, 30, rest.All()[1].Remaining)
			requireCount(t, c, signup, time.Hour, 10)
			full := takeUpTo(t, c, 30, l, signup)
			require.False(t, full.Allowed)
			require.Zero(t, full.N())
			requireAbout(t, 50*time.Minute, full.RetryAfter)
			require.Equal(t, take(t, c, signup, 1, l).RetryAfter, full.RetryAfter)

			require.NoError(t, c.Refund(ctx, &rest))
			requireCount(t, c, signup, time.Hour, 4)
			require.NoError(t, c.Refund(ctx, &first))
			requireCount(t, c, signup, time.Hour, 0)
			all := takeUpTo(t, c, 30, l, signup)
			require.EqualValues(t, 10, all.N(), "the whole limit")
			requireAbout(t, time.Hour, all.RetryAfter)
			clock.forward(all.RetryAfter)
			require.EqualValues(t, 1, takeUpTo(t, c, 1, l, signup).N())
		})
	}
}

func requireAbout(t testing.TB, want, got time.Duration) {
	require.InDelta(t, want.Seconds(), got.Seconds(), 1.01, "want %s, got %s", want, got)
}

// All keys of a call count the same number: that of the key with the least room.
func TestUpToOfSeveralKeys(t *testing.T) {
	for _, path := range append(paths, struct {
		name  string
		store func() backend.Store
	}{"a step for each key", func() backend.Store { return apart{memory.New(memory.Config{})} }}) {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			l := limits("10/h")
			var keys []counter.Key
			for i, used := range []int64{2, 7, 1} {
				keys = append(keys, counter.Key{Event: "mail", Feature: fmt.Sprint(i)})
				take(t, c, keys[i], used, l)
			}
			soft, charged, look := keys[0], keys[0], keys[0]
			soft.Feature, charged.Feature, look.Feature = "soft", "charged", "look"
			v := try.To(c.TakeAll(ctx,
				counter.Ask{Key: keys[0], N: 5, Limits: l, UpTo: true},
				counter.Ask{Key: soft, N: 5, Limits: limits("2/h"), Soft: true, UpTo: true},
				counter.Ask{Key: keys[1], N: 5, Limits: l, UpTo: true},
				counter.Ask{Key: charged, N: 5, Limits: limits("2/h"), Charge: true, UpTo: true},
				counter.Ask{Key: look, Limits: limits("0/h")},
				counter.Ask{Key: keys[2], N: 5, Limits: l, UpTo: true}))(t)
			require.True(t, v.Allowed)
			require.EqualValues(t, 3, v.N())
			for i, want := range []int64{5, 10, 4} {
				requireCount(t, c, keys[i], time.Hour, want)
			}
			requireCount(t, c, charged, time.Hour, 3)
			states := v.All()
			require.Positive(t, states[1].RetryAfter, "the soft key has no room for 3")
			require.Positive(t, states[2].RetryAfter, "no room for one more")
			require.Zero(t, states[5].RetryAfter)
			require.NoError(t, c.Refund(ctx, &v))
			for i, want := range []int64{2, 7, 1} {
				requireCount(t, c, keys[i], time.Hour, want)
			}
			requireCount(t, c, charged, time.Hour, 0)

			take(t, c, keys[2], 9, l)
			require.False(t, takeUpTo(t, c, 5, l, keys...).Allowed)
			for i, want := range []int64{2, 7, 10} {
				requireCount(t, c, keys[i], time.Hour, want)
			}
			peek := try.To(c.PeekAll(ctx, counter.Ask{Key: keys[0], N: 5, Limits: l, UpTo: true}, counter.Ask{Key: keys[1], N: 5, Limits: l, UpTo: true}))(t)
			require.True(t, peek.Allowed)
			require.Zero(t, peek.N())
			require.EqualValues(t, 5, peek.All()[0].Remaining)
			require.Zero(t, peek.All()[1].Remaining)
		})
	}
}

// Held hits leave less room, and no more than Max is ever added, however large n is.
func TestUpToOfHeldAndHuge(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, path.store(), clock.config())
			v := try.To(c.TakeAll(ctx, counter.Ask{Key: signup, N: counter.MaxCount, Limits: limits("10/h"), Held: []int64{4}, UpTo: true}))(t)
			require.EqualValues(t, 6, v.N())
			v = try.To(c.TakeAll(ctx, counter.Ask{Key: signup, N: 9, Limits: limits("10/h"), Held: []int64{10}, UpTo: true}))(t)
			require.False(t, v.Allowed)
			require.Equal(t, counter.Never, v.RetryAfter)
			other := counter.Key{Event: "signup", Feature: "other"}
			v = try.To(c.TakeAll(ctx, counter.Ask{Key: other, N: counter.MaxCount, Limits: counter.Limits{{Max: counter.MaxCount, Per: time.Hour}}, UpTo: true}))(t)
			require.Equal(t, int64(counter.MaxCount), v.N())

			for want, asks := range map[string][]counter.Ask{
				"a key of 2 hits, with Ask.UpTo true, next to a key of up to 3":  {{Key: signup, N: 3, Limits: limits("1/h"), UpTo: true}, {Key: other, N: 2, Limits: limits("1/h"), UpTo: true}},
				"a key of 3 hits, with Ask.UpTo false, next to a key of up to 3": {{Key: signup, N: 3, Limits: limits("1/h"), UpTo: true}, {Key: other, N: 3, Limits: limits("1/h")}},
				"n is -1, want 1 to 9007199254740991":                            {{Key: signup, N: -1, Limits: limits("1/h"), UpTo: true}},
				"n is 9007199254740992, want 1 to 9007199254740991":              {{Key: signup, N: counter.MaxCount + 1, Limits: limits("1/h"), UpTo: true}},
			} {
				_, err := c.TakeAll(ctx, asks...)
				require.ErrorContains(t, err, want)
				require.NotErrorIs(t, err, counter.ErrStore)
			}
		})
	}
}
