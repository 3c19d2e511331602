package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Of several groups of tiers none is added to if any is full.
func TestAFullGroupLeavesTheOthersAlone(t *testing.T) {
	addr := servertest.Redis(t)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Ladder: mustLadder(t, "1s:1m, 1m:1d")})
	require.NoError(t, c.Add(ctx, signup, backend.MaxCount-1))
	for range 3 {
		require.ErrorIs(t, c.Add(ctx, signup, 2), backend.ErrMaxCount)
	}
	require.NoError(t, c.Add(ctx, signup, 1))
	n := try.To(c.Count(ctx, signup, time.Minute))(t)
	require.Equal(t, int64(backend.MaxCount), n.High)
}
