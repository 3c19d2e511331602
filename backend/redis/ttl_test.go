package redis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// A leaf whose buckets but the first were taken back is dense and empty. After
// an eviction of the leaf, the next hit must not make a leaf without a time to live.
func TestAnEmptyLeafThatIsGone(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Skew: -1, Now: func() time.Time { return now }})
	take(t, c, signup, 70000, "1000000/d") // more than fits into a sparse leaf
	now = now.Add(time.Second)
	var rest []counter.Verdict
	for range 200 {
		rest = append(rest, take(t, c, signup, 1, "1000000/d"))
		now = now.Add(time.Second)
	}
	for i := range rest {
		require.NoError(t, c.Refund(ctx, &rest[i]))
	}
	leaves := client.Keys(ctx, "*}P:*").Val()
	require.Len(t, leaves, 1)
	require.NoError(t, client.Del(ctx, leaves[0]).Err())
	take(t, c, signup, 1, "1000000/d")
	keys := client.Keys(ctx, "*").Val()
	require.Len(t, keys, 2)
	for _, key := range keys {
		require.Greater(t, client.PTTL(ctx, key).Val(), 24*time.Hour, key)
	}
	require.EqualValues(t, 70001, count(t, c, signup))
}

// Fine buckets that are kept for long are counted to the end, or refused: never
// forgotten because a root has no room for the buckets' positions.
func TestFineBucketsKeptForLong(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	for _, keep := range []string{"2d", "4d", "7d", "366d"} {
		ladder := mustLadder(t, strings.ReplaceAll("1ms:KEEP, 1s:KEEP, 1m:KEEP, 1h:KEEP", "KEEP", keep))
		now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		c := newCounter(t, s, counter.Config{Ladder: ladder, Exact: true, Now: func() time.Time { return now }})
		limits := counter.MustLimits("1000/" + keep)
		end := now.Add(ladder.At(0).Keep)
		if keep == "7d" || keep == "366d" {
			_, err := c.Take(ctx, signup, 1, limits)
			require.ErrorContains(t, err, "buckets of 1ms are needed at a time, want at most 432000000", keep)
			require.ErrorContains(t, c.Add(ctx, signup, 1), "keep them for a shorter time", keep)
			continue
		}
		for i := int64(999); now.Before(end); i-- {
			require.Equal(t, i, take(t, c, signup, 1, "1000/"+keep).Remaining, "%s after %s", keep, now)
			now = now.Add(time.Hour)
		}
		// From here on as many hits leave as come; a single hit may be on the edge.
		want := 1000 - int64(ladder.At(0).Keep/time.Hour)
		for range 300 {
			require.InDelta(t, want, take(t, c, signup, 1, "1000/"+keep).Remaining, 1, "%s after %s", keep, now)
			now = now.Add(time.Hour)
		}
	}
}

// A hit whose sum needs wider numbers leaves earlier hits in the same buckets, from any
// caller, by any clock.
func TestWiderSumsForgetNothing(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	ladder := mustLadder(t, "1ms:4d, 1s:4d, 1m:4d, 1h:4d")
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	c := newCounter(t, s, counter.Config{Ladder: ladder, Now: func() time.Time { return now }})
	late := newCounter(t, s, counter.Config{Ladder: ladder, Now: func() time.Time { return now.Add(-2 * 24 * time.Hour) }})
	take(t, c, signup, 1, "100000/4d")
	take(t, late, signup, 70000, "100000/4d")
	require.EqualValues(t, 100000-70002, take(t, c, signup, 1, "100000/4d").Remaining)
}

// A minute is the sum of its seconds. After a part of the seconds was dropped, the
// minute has no count, even for an addition to a later second: the label is stale, and
// nothing is added. With AnyLabel the hit is added, and the remaining seconds count.
func TestAMinuteThatWasDroppedInPart(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	ladder := mustLadder(t, "1s:1h, 1m:1h")
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	add := func(at time.Time, any bool) ([]int64, error) {
		op := adding(forgetKey, ladder, at, 1)
		op.AnyLabel = any
		err := s.Do(ctx, op)
		return []int64{op.Add[0].Count, op.Add[1].Count}, err
	}
	for _, row := range []struct {
		second int64
		any    bool
		counts []int64 // of the second and of the minute; nil: not looked at
	}{
		{10, false, nil}, {10, false, nil}, {12, false, nil}, {3 * 3600, false, nil}, {3*3600 + 1, false, nil}, {65, false, nil},
		{9, false, []int64{0, 0}}, {10, false, []int64{0, 0}}, {11, false, []int64{0, 0}}, {40, false, []int64{0, 0}},
		{40, true, []int64{1, 1}}, {65, false, []int64{2, 2}}, {9, true, []int64{1, 2}}, // the one in the second 40, and this
	} {
		counts, err := add(noon.Add(time.Duration(row.second)*time.Second), row.any)
		if stale := row.counts != nil && row.counts[0] == 0; stale {
			require.ErrorIs(t, err, backend.ErrStaleLabel, row.second)
		} else {
			require.NoError(t, err)
		}
		if row.counts != nil {
			require.Equal(t, row.counts, counts, row.second)
		}
	}
}
