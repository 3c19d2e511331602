package memory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// A store with room has no findings, and a check takes no memory for good.
func TestCheck(t *testing.T) {
	s := memory.New(memory.Config{})
	c, err := counter.New(s, counter.Config{})
	require.NoError(t, err)
	require.NoError(t, c.Check(t.Context()))
	before := s.Stats().Buckets
	for range 100 {
		require.NoError(t, s.Check(t.Context()))
		require.NoError(t, c.Check(t.Context()))
	}
	require.LessOrEqual(t, s.Stats().Buckets, before+100)
	st := c.Stats()
	require.NotZero(t, st.Checked)
	require.Zero(t, st.ClockAhead)
	require.Zero(t, st.Evictions+st.Restarts)
}

// A full store refuses, or has evicted.
func TestCheckOfAFullStore(t *testing.T) {
	for policy, full := range map[memory.Policy]bool{memory.Refuse: true, memory.EvictOldest: false} {
		s := memory.New(memory.Config{MaxBuckets: 2000, Full: policy})
		c, err := counter.New(s, counter.Config{})
		require.NoError(t, err)
		require.NoError(t, c.Check(t.Context()))
		for i := range 1000 {
			if err := c.Add(t.Context(), counter.Key{Event: "e", Feature: fmt.Sprint(i)}, 1); err != nil {
				require.ErrorIs(t, err, memory.ErrFull)
			}
		}
		err = c.Check(t.Context())
		require.Equal(t, full, strings.HasPrefix(fmt.Sprint(err), "memory: the store is full"), "%v", err)
		if full {
			require.ErrorIs(t, err, memory.ErrFull)
			require.ErrorIs(t, err, counter.ErrStore)
			continue
		}
		require.Regexp(t, `^memory: \d+ keys were evicted while they still counted, want none: a larger Config.MaxBuckets, or Refuse$`, err.Error())
		require.ErrorIs(t, err, counter.ErrCondition)
		require.NotErrorIs(t, err, counter.ErrStore)
		require.Equal(t, s.Stats().Evicted, c.Stats().Evictions)
	}
	require.Zero(t, memory.New(memory.Config{}).Report(), backend.Report{})
}
