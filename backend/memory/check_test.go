package memory_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// A store with room has no findings, and a check takes no memory for good.
func TestCheck(t *testing.T) {
	s := memory.New(memory.Config{})
	c := try.To(counter.New(s, counter.Config{}))(t)
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
		c := try.To(counter.New(s, counter.Config{}))(t)
		require.NoError(t, c.Check(t.Context()))
		for i := range 1000 {
			if err := c.Add(t.Context(), counter.Key{Event: "e", Feature: fmt.Sprint(i)}, 1); err != nil {
				require.ErrorIs(t, err, memory.ErrFull)
			}
		}
		err := c.Check(t.Context())
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

// A store that takes any fresh key is not probed: the probe would evict a key.
func TestACheckEvictsNoKey(t *testing.T) {
	limits := counter.MustLimits("1/d")
	s := memory.New(memory.Config{MaxBuckets: 1600, Full: memory.EvictOldest})
	c := try.To(counter.New(s, counter.Config{}))(t)
	for n := 0; s.Stats().Buckets+16 <= 1600; n++ {
		v := try.To(c.Take(t.Context(), counter.Key{Event: "e", Feature: fmt.Sprint(n)}, 1, limits))(t)
		require.True(t, v.Allowed)
	}
	require.Zero(t, s.Stats().Evicted)
	require.NoError(t, c.Check(t.Context()))
	v := try.To(c.Take(t.Context(), counter.Key{Event: "e", Feature: "0"}, 1, limits))(t)
	require.False(t, v.Allowed, "the Check has forgiven the limit of a key")
}

// A store whose buckets are all labelled ahead of the clock still counts.
func TestCheckAfterTheClockWasSetBack(t *testing.T) {
	now := time.Unix(1_772_494_233, 0)
	cfg := counter.Config{Now: func() time.Time { return now }}
	full := memory.New(memory.Config{MaxBuckets: 1600, Reserve: -1})
	c := try.To(counter.New(full, cfg))(t)
	for i := range 100 {
		require.NoError(t, c.Add(t.Context(), counter.Key{Event: "e", Feature: fmt.Sprint(i)}, 1))
	}
	now = now.Add(48 * time.Hour)
	for i := range 100 {
		require.NoError(t, c.Add(t.Context(), counter.Key{Event: "f", Feature: fmt.Sprint(i)}, 1))
	}
	var file bytes.Buffer
	require.NoError(t, full.Snapshot(&file))
	s := memory.New(memory.Config{})
	require.NoError(t, s.Restore(&file))
	now = now.Add(-47 * time.Hour) // the clock had been ahead
	c = try.To(counter.New(s, cfg))(t)
	v := try.To(c.Take(t.Context(), counter.Key{Event: "e", Feature: "new"}, 1, counter.MustLimits("1/d")))(t)
	require.True(t, v.Allowed)
	require.NoError(t, c.Add(t.Context(), counter.Key{Event: "e", Feature: "new"}, 1))
	require.NoError(t, c.Check(t.Context()), "hits are counted")
}

// The contents of a store in memory are its snapshot.
func TestErase(t *testing.T) {
	t.Parallel()
	backendtest.Erase(t, func(testing.TB) (backend.Store, backendtest.Contents) {
		s := memory.New(memory.Config{})
		return s, func() (string, error) {
			var b strings.Builder
			err := s.Snapshot(&b)
			return b.String(), err
		}
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(testing.TB) backend.Store { return memory.New(memory.Config{}) })
}
