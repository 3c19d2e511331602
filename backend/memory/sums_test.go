package memory

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/tiers"
)

// chain is an op of n on the buckets of all tiers that hold now.
func chain(t *testing.T, ladder string, now time.Time, n int64) *backend.Request {
	l, err := tiers.Parse(ladder)
	require.NoError(t, err)
	op := &backend.Request{Key: "k", Ladder: l, Now: now, N: n}
	for i, b := range l.Buckets(now) {
		op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: l.At(i).Width + l.At(i).Keep})
	}
	return op
}

func counts(op *backend.Request) (all []int64) {
	for _, slot := range op.Add {
		all = append(all, slot.Count)
	}
	return all
}

// Minutes and hours of a day are not stored, and read as if they were.
func TestCoarseBucketsAreSums(t *testing.T) {
	s := New(Config{})
	do := func(op *backend.Request) *backend.Request {
		t.Helper()
		require.NoError(t, s.Do(context.Background(), op))
		requireSound(t, s)
		return op
	}
	require.Equal(t, []int64{3, 3, 3}, counts(do(chain(t, dayLadder, noon, 3))))
	require.Equal(t, []int64{4, 7, 7}, counts(do(chain(t, dayLadder, noon.Add(time.Second), 4))))
	require.Equal(t, []int64{5, 5, 12}, counts(do(chain(t, dayLadder, noon.Add(time.Minute), 5))))
	require.Equal(t, []int64{2, 5, 10}, counts(do(chain(t, dayLadder, noon.Add(time.Second), -2))))
	require.Len(t, s.lookup("k").layout.tiers(), 1)

	read := chain(t, dayLadder, noon.Add(time.Minute), 0)
	read.Add = nil
	hour := tiers.Index(noon.UnixNano(), time.Hour)
	read.Read = []backend.Span{
		{Width: time.Minute, First: 60 * hour, Counts: make([]int64, 3)},
		{Width: time.Hour, First: hour - 1, Counts: make([]int64, 2)},
	}
	do(read)
	require.Equal(t, []int64{5, 5, 0}, read.Read[0].Counts)
	require.Equal(t, []int64{0, 10}, read.Read[1].Counts)

	alone := chain(t, dayLadder, noon, 1)
	alone.Add = alone.Add[2:]
	require.ErrorContains(t, s.Do(context.Background(), alone), "without one to a bucket of 1s in it")
	alone.N = -1
	require.Equal(t, []int64{10}, counts(do(alone)), "nothing to take back")
}

// A tier of buckets that are wide beside its Keep is stored itself, so that the
// seconds do not live on for as long.
func TestWideBucketsAreStored(t *testing.T) {
	for ladder, stored := range map[string]int{
		"1s:1d": 1, "1s:1d, 1m:1d, 1h:1d": 1, "1s:1h, 1m:1h, 1h:1h": 2, "1s:1m, 1m:1m": 2, "1s:7d, 1m:7d, 1h:7d, 1d:7d": 2,
		"1s:30d, 1m:30d, 1h:30d, 1d:30d": 1, "1s:1h, 1m:1d, 1h:1d": 2, "1m:1d, 1h:30d": 2,
	} {
		s := New(Config{})
		require.NoError(t, s.Do(context.Background(), chain(t, ladder, noon, 1)))
		mustTake(t, s, taking(t, ladder, "k", noon))
		require.Len(t, s.lookup("k").layout.tiers(), stored, ladder)
		for i, slot := range chain(t, ladder, noon, 1).Add {
			require.LessOrEqual(t, s.lookup("k").layout.all[0].ttl, int64(slot.TTL)+int64(slot.TTL)/8+int64(time.Second), "tier %d of %s", i, ladder)
		}
	}
}

// Ladders of the same widths and TTLs that keep their tiers otherwise.
func TestPlansGoByKeep(t *testing.T) {
	s := New(Config{})
	for _, ladder := range []string{"1s:1h, 1m:1h", "1s:1h, 1m:2h"} {
		take := taking(t, ladder, ladder, noon, per(1, time.Hour))
		take.Keys[0].TTLs[0], take.Keys[0].TTLs[1] = day, day
		mustTake(t, s, take)
		read := &backend.Request{Key: ladder, Ladder: take.Keys[0].Ladder, Now: noon, Read: []backend.Span{{Width: time.Minute, First: tiers.Index(noon.UnixNano(), time.Minute), Counts: make([]int64, 1)}}}
		require.NoError(t, s.Do(context.Background(), read))
		require.EqualValues(t, 1, read.Read[0].Counts[0], ladder)
	}
}

// A window without hits is freed by no bucket.
func TestNothingFreesAnEmptyWindow(t *testing.T) {
	s := New(Config{})
	for range 5 {
		hit(t, s, "k", noon)
		hit(t, s, "k", noon.Add(time.Second))
	}
	take := taking(t, dayLadder, "k", noon.Add(time.Hour), per(1, time.Minute))
	take.Keys[0].N = 2
	require.False(t, mustTake(t, s, take).Allowed)
	require.Zero(t, take.Keys[0].Windows[0].FreedBy)
}

// Expired buckets do not count against MaxCount, also where the newest bucket is
// the label's own.
func TestTheExpiredFillsNothing(t *testing.T) {
	const ladder = "1s:1h, 1m:1h"
	s := New(Config{})
	most := int64(backend.MaxCount)
	require.NoError(t, s.Do(context.Background(), chain(t, ladder, noon, most-2)))
	expiry := time.Unix(0, s.lookup("k").layout.all[0].expiry(noon.UnixNano())) // some milliseconds after a second has begun
	before := expiry.Add(-time.Millisecond)
	require.NoError(t, s.Do(context.Background(), chain(t, ladder, before, 2)))
	require.ErrorIs(t, s.Do(context.Background(), chain(t, ladder, before, 1)), backend.ErrMaxCount)
	take := taking(t, ladder, "k", before, per(most, time.Second))
	require.ErrorIs(t, s.Take(context.Background(), take), backend.ErrMaxCount)
	take.Now = expiry
	require.True(t, mustTake(t, s, take).Allowed)
	require.NoError(t, s.Do(context.Background(), chain(t, ladder, expiry, most-3)))
	requireSound(t, s)
}

// TestLateHitsFarBack adds hits to, takes hits from and reads buckets anywhere in a
// long ring, and compares each bucket with a list of them.
func TestLateHitsFarBack(t *testing.T) {
	const buckets = 300
	s := New(Config{})
	rnd := rand.New(rand.NewPCG(3, 4))
	want := make([]int64, buckets)
	step := func(i int, n int64) {
		op := chain(t, "1s:1h", noon.Add(time.Duration(i)*time.Second), n)
		op.Now, op.N = noon.Add(buckets*time.Second), n
		require.NoError(t, s.Do(context.Background(), op))
		want[i] = max(0, want[i]+n)
	}
	step(0, 1)
	step(buckets-1, 1)
	for range 3000 {
		step(rnd.IntN(buckets), 1+rnd.Int64N(4))
		step(rnd.IntN(buckets), -1-rnd.Int64N(6))
		requireSound(t, s)
	}
	read := chain(t, "1s:1h", noon, 1)
	read.N, read.Add, read.Now = 0, nil, noon.Add(buckets*time.Second)
	read.Read = []backend.Span{{Width: time.Second, First: noon.Unix(), Counts: make([]int64, buckets)}}
	require.NoError(t, s.Do(context.Background(), read))
	require.Equal(t, want, read.Read[0].Counts)
}
