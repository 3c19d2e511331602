package backend_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// A store of Do alone is held to the contract of all stores.
func TestConformanceOfDoAlone(t *testing.T) {
	backendtest.Run(t, func(testing.TB) backend.Store { return backend.FromDo(memory.New(memory.Config{}).Do) })
}

// The label of a Forget is exact, also next to another in the same second, and the
// newest stays.
func TestForgetOfDoAlone(t *testing.T) {
	ctx := context.Background()
	inside := memory.New(memory.Config{})
	var keys []string
	store := backend.FromDo(func(ctx context.Context, r *backend.Request) error {
		keys = append(keys, r.Key)
		return inside.Do(ctx, r)
	})
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	clock := noon
	r := &backend.ForgetRequest{
		Key: "ab:1key:login:ada", Ladder: tiers.Default, TTLs: []time.Duration{25 * time.Hour, 25 * time.Hour, 26 * time.Hour},
		Now: noon, Remember: 25 * time.Hour,
	}
	label := try.To(store.Forgotten(ctx, r))(t)
	require.Zero(t, label)
	for _, step := range []struct{ label, want time.Duration }{
		{300 * time.Millisecond, 300 * time.Millisecond},
		{200 * time.Millisecond, 300 * time.Millisecond},
		{300*time.Millisecond + 7, 300*time.Millisecond + 7},
		{999999999, 999999999},
		{1000000000, 1000000000},
		{3 * time.Hour, 3 * time.Hour},
		{time.Hour, 3 * time.Hour},
	} {
		r.Label = noon.Add(step.label).UnixNano()
		require.NoError(t, store.Forget(ctx, r))
		require.Equal(t, step.want, time.Unix(0, try.To(store.Forgotten(ctx, r))(t)).Sub(noon))
	}
	// The label at the end is that of the clock.
	r.Clock = func() time.Time { return clock }
	clock = noon.Add(5 * time.Hour)
	require.NoError(t, store.Forget(ctx, r))
	label = try.To(store.Forgotten(ctx, r))(t)
	require.Equal(t, clock.UnixNano(), label)
	for _, key := range keys {
		require.True(t, key == r.Key || len(key) == len("ab:!!")+43, key)
	}
	// The name of the label does not show a key that no Counter made, without a prefix.
	r.Key, r.Clock, keys = "203.0.113.9", nil, nil
	require.NoError(t, store.Forget(ctx, r))
	label = try.To(store.Forgotten(ctx, r))(t)
	require.Equal(t, r.Label, label)
	for _, key := range keys {
		require.True(t, key == r.Key || !strings.Contains(key, r.Key), key)
	}
	r.Erase = true
	require.ErrorIs(t, store.Forget(ctx, r), errors.ErrUnsupported)

	// A mistake of the caller is an error of the store, and no panic.
	wrong := *r
	wrong.Erase, wrong.Remember = false, -72*time.Hour
	require.ErrorContains(t, store.Forget(ctx, &wrong), "TTL -71h59m59s")

	lost := errors.New("lost")
	broken := backend.FromDo(func(context.Context, *backend.Request) error { return lost })
	r.Erase = false
	require.ErrorIs(t, broken.Forget(ctx, r), lost)
	require.ErrorIs(t, try.Err(broken.Forgotten(ctx, r)), lost)
	require.ErrorIs(t, broken.CheckServers(ctx, &backend.CheckRequest{Key: "ab:?check"}), lost)
	require.ErrorIs(t, store.CheckServers(ctx, &backend.CheckRequest{Key: "ab:?check"}), backend.ErrCondition)
}

// A hit between any two steps of a Forget stays in no finer tier without the coarser
// ones, and another Forget finds it.
func TestForgetOfDoAloneAmidHits(t *testing.T) {
	ctx, noon := context.Background(), time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for _, late := range []time.Duration{0, time.Second, time.Minute} {
		for last, done := 0, false; !done; last++ {
			counts := map[string]map[tiers.Bucket]int64{"ab:k": {}} // as a server has them, with no tie between tiers
			hit := func(at time.Time) {
				for _, b := range tiers.Default.Buckets(at) {
					counts["ab:k"][b]++
				}
			}
			step := -1
			store := backend.FromDo(func(ctx context.Context, r *backend.Request) error {
				if step++; step == last {
					hit(noon.Add(late))
				}
				of := counts[r.Key]
				if of == nil {
					of = map[tiers.Bucket]int64{}
					counts[r.Key] = of
				}
				for i := range r.Add {
					b := r.Add[i].Bucket
					of[b] = max(0, of[b]+r.N)
					r.Add[i].Count = of[b]
				}
				for _, span := range r.Read {
					for i := range span.Counts {
						span.Counts[i] = of[tiers.Bucket{Width: span.Width, Index: span.First + int64(i)}]
					}
				}
				return nil
			})
			hit(noon)
			hit(noon)
			hit(noon.Add(-time.Minute))
			forget := &backend.ForgetRequest{
				Key: "ab:k", Ladder: tiers.Default, TTLs: []time.Duration{25 * time.Hour, 25 * time.Hour, 26 * time.Hour},
				Now: noon, Label: noon.UnixNano(), Remember: time.Hour,
			}
			left := func() (sums []int64) { // of each tier
				sums = make([]int64, 3)
				for b, n := range counts["ab:k"] {
					sums[slices.Index([]time.Duration{time.Second, time.Minute, time.Hour}, b.Width)] += n
				}
				return sums
			}
			require.NoError(t, store.Forget(ctx, forget))
			require.IsNonDecreasing(t, left(), "a hit %s later, after step %d", late, last)
			done = step < last
			require.NoError(t, store.Forget(ctx, forget))
			require.Equal(t, []int64{0, 0, 0}, left(), "a hit %s later, after step %d, and another Forget", late, last)
		}
	}
}
