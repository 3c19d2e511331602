package redis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/tiers"
)

// A key is full while the hits to be kept leave no room, and no longer: hits near
// 2^52, two of which fit, come at intervals longer than hits are kept.
func TestAKeyWhoseHitsHaveLeftIsNotFull(t *testing.T) {
	addr := servertest.Redis(t)
	s := open(t, "redis://"+addr)
	ladder, err := tiers.Parse("1s:1m, 10s:1m")
	require.NoError(t, err)
	ttls := []time.Duration{61 * time.Second, 70 * time.Second}
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	take := func(n int64) error {
		taking := &backend.TakeRequest{
			Now:  now,
			Keys: []backend.TakeKey{{Key: []byte("ab:k"), N: n, Ladder: ladder, TTLs: ttls, Windows: []backend.Window{{Max: backend.MaxCount, Reach: time.Second}}}},
		}
		err := s.Take(ctx, taking)
		if err == nil {
			require.True(t, taking.Allowed)
		}
		return err
	}
	add := func(n int64) error {
		op := &backend.Request{Key: "ab:k", Ladder: ladder, Now: now, N: n}
		for i, b := range ladder.Buckets(now) {
			op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: ttls[i]})
		}
		err := s.Do(ctx, op)
		for _, slot := range op.Add {
			require.Equal(t, err == nil, slot.Count > 0)
		}
		return err
	}
	full := 0
	for i := range 200 {
		call := take
		if i%3 == 0 {
			call = add
		}
		n := int64(1<<52 - 1 - rand.Int64N(1000))
		require.NoError(t, call(n), "hit %d", i)
		now = now.Add(2 * time.Second)
		require.NoError(t, call(n), "hit %d, the second", i)
		now = now.Add(2 * time.Second)
		require.ErrorIs(t, call(n), backend.ErrMaxCount, "hit %d, the third", i)
		full++
		now = now.Add(2 * time.Minute)
	}
	require.Equal(t, 200, full)
}

// Of several groups of tiers none is added to if any is full.
func TestAFullGroupLeavesTheOthersAlone(t *testing.T) {
	addr := servertest.Redis(t)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Ladder: mustLadder(t, "1s:1m, 1m:1d")})
	require.NoError(t, c.Add(ctx, signup, backend.MaxCount-1))
	for range 3 {
		require.ErrorIs(t, c.Add(ctx, signup, 2), backend.ErrMaxCount)
	}
	require.NoError(t, c.Add(ctx, signup, 1))
	n, err := c.Count(ctx, signup, time.Minute)
	require.NoError(t, err)
	require.Equal(t, int64(backend.MaxCount), n.High)
}

func mustLadder(t *testing.T, s string) tiers.Ladder {
	t.Helper()
	l, err := tiers.Parse(s)
	require.NoError(t, err)
	return l
}
