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
	cfg := counter.Config{Now: func() time.Time {
		now = now.Add(time.Microsecond)
		return now
	}}
	one, other, eraser := newCounter(t, store, cfg), newCounter(t, store, cfg), newCounter(t, erasable{store}, cfg)
	five := limits("5/m")
	fill := func(c *counter.Counter, n int, key string) (v counter.Verdict) {
		t.Helper()
		for range n {
			v = take(t, c, keyOf(key), 1, five)
			require.True(t, v.Allowed)
		}
		return v
	}
	waits := func(c *counter.Counter, key string, long bool) {
		t.Helper()
		wait := take(t, c, keyOf(key), 1, five).RetryAfter
		require.Equal(t, long, wait > time.Minute)
		require.Equal(t, !long, wait <= counter.DefaultSkew+counter.DefaultSettle)
	}

	fill(one, 5, "lone")
	waits(one, "lone", true)
	waits(other, "lone", false)

	v := fill(one, 5, "refunded")
	require.NoError(t, one.Refund(ctx, &v))
	fill(other, 1, "refunded")
	waits(one, "refunded", false) // one hit is another's

	v = fill(one, 5, "given back and taken")
	require.NoError(t, one.Refund(ctx, &v))
	fill(one, 1, "given back and taken")
	waits(one, "given back and taken", true)

	fill(one, 5, "forgotten")
	require.NoError(t, one.Forget(ctx, keyOf("forgotten")))
	fill(other, 5, "forgotten")
	waits(one, "forgotten", false)

	fill(eraser, 5, "erased")
	require.NoError(t, eraser.Erase(ctx, keyOf("erased")))
	fill(other, 5, "erased")
	waits(eraser, "erased", false)

	require.NoError(t, one.Add(ctx, keyOf("added"), 2))
	charged, err := one.Charge(ctx, keyOf("added"), 3, five)
	require.NoError(t, err)
	require.True(t, charged.Allowed)
	waits(one, "added", true)

	require.NoError(t, one.AddAt(ctx, keyOf("added at"), 5, now))
	waits(other, "added at", false)
	waits(one, "added at", true)
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
