package counter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
)

// Near the end of a ticket bucket only hits of other processes may yet be undone.
// A process knows its own, those that came after a Refund too, and not those that a
// Forget has removed.
func TestOwnHitsAreWaitedFor(t *testing.T) {
	store, now := newPlainStore(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time {
		now = now.Add(time.Microsecond)
		return now
	}
	one := newCounter(t, store, counter.Config{Now: clock})
	other := newCounter(t, store, counter.Config{Now: clock})
	const soon = counter.DefaultSkew + counter.DefaultSettle
	take := func(c *counter.Counter, key string) counter.Verdict {
		v, err := c.Take(ctx, counter.Key{Event: "e", Feature: key}, 1, limits("5/m"))
		require.NoError(t, err)
		return v
	}
	fill := func(key string) (v counter.Verdict) {
		for range 5 {
			v = take(one, key)
			require.True(t, v.Allowed)
		}
		return v
	}

	fill("lone")
	require.Greater(t, take(one, "lone").RetryAfter, time.Minute)
	require.LessOrEqual(t, take(other, "lone").RetryAfter, soon)

	v := fill("refunded")
	require.NoError(t, one.Refund(ctx, &v))
	require.True(t, take(other, "refunded").Allowed)
	require.LessOrEqual(t, take(one, "refunded").RetryAfter, soon, "one hit is another's")

	v = fill("given back and taken")
	require.NoError(t, one.Refund(ctx, &v))
	require.True(t, take(one, "given back and taken").Allowed)
	require.Greater(t, take(one, "given back and taken").RetryAfter, time.Minute)

	fill("forgotten")
	require.NoError(t, one.Forget(ctx, counter.Key{Event: "e", Feature: "forgotten"}))
	for range 5 {
		require.True(t, take(other, "forgotten").Allowed)
	}
	require.LessOrEqual(t, take(one, "forgotten").RetryAfter, soon)

	eraser := newCounter(t, erasable{store}, counter.Config{Now: clock})
	for range 5 {
		require.True(t, take(eraser, "erased").Allowed)
	}
	require.NoError(t, eraser.Erase(ctx, counter.Key{Event: "e", Feature: "erased"}))
	for range 5 {
		require.True(t, take(other, "erased").Allowed)
	}
	require.LessOrEqual(t, take(eraser, "erased").RetryAfter, soon)

	key := counter.Key{Event: "e", Feature: "added"}
	require.NoError(t, one.Add(ctx, key, 2))
	v, err := one.Charge(ctx, key, 3, limits("5/m"))
	require.NoError(t, err)
	require.True(t, v.Allowed)
	require.Greater(t, take(one, "added").RetryAfter, time.Minute)

	require.NoError(t, one.AddAt(ctx, counter.Key{Event: "e", Feature: "added at"}, 5, now))
	require.LessOrEqual(t, take(other, "added at").RetryAfter, soon)
	require.Greater(t, take(one, "added at").RetryAfter, time.Minute)
}

// erasable is a plainStore with a Forget of its own.
type erasable struct{ *plainStore }

func (s erasable) Forget(_ context.Context, r *backend.ForgetRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.buckets {
		if strings.HasPrefix(b.key, r.Key) {
			delete(s.buckets, b)
		}
	}
	return nil
}

func (erasable) Forgotten(context.Context, *backend.ForgetRequest) (int64, error) {
	return 0, nil
}
