package memory

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

const (
	day       = 24 * time.Hour
	dayLadder = "1s:1d, 1m:1d, 1h:1d"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

var seconds, _ = tiers.New(tiers.Tier{Width: time.Second, Keep: time.Hour})

// taking is the request that a Counter without Skew makes for limits on one key.
func taking(t testing.TB, ladder, key string, now time.Time, limits ...counter.Limit) *backend.TakeRequest {
	l := try.To(tiers.Parse(ladder))(t)
	out := &backend.TakeRequest{Now: now, Keys: []backend.TakeKey{{Key: []byte(key), N: 1, Ladder: l}}}
	for _, tier := range l.Tiers() {
		out.Keys[0].TTLs = append(out.Keys[0].TTLs, tier.Width+tier.Keep)
	}
	for _, limit := range limits {
		fine := try.To(l.Finest(limit.Per))(t)
		out.Keys[0].Windows = append(out.Keys[0].Windows, backend.Window{Max: limit.Max, Reach: limit.Per, Finest: fine})
	}
	return out
}

func also(t testing.TB, take *backend.TakeRequest, key string, limits ...counter.Limit) *backend.TakeRequest {
	take.Keys = append(take.Keys, taking(t, take.Keys[0].Ladder.String(), key, take.Now, limits...).Keys...)
	return take
}

func mustTake(t testing.TB, s *Store, take *backend.TakeRequest) *backend.TakeRequest {
	require.NoError(t, s.Take(context.Background(), take))
	return take
}

func per(max int64, window time.Duration) counter.Limit { return counter.Limit{Max: max, Per: window} }

// Everything at once on a store that is always full: no deadlock, no lost
// bucket, no count beyond the limit.
func TestConcurrentCallsOnAFullStore(t *testing.T) {
	for _, policy := range []Policy{Refuse, EvictOldest} {
		s := New(Config{MaxBuckets: 1500, Full: policy})
		ticket.SideBySide(8, func(caller int) {
			rnd := rand.New(rand.NewPCG(uint64(caller), 1))
			g := script{rnd: rnd, now: noon.UnixNano(), step: int64(100 * time.Millisecond), keys: 200, steady: 300, ladders: []tiers.Ladder{tiers.Default}}
			for range 2000 {
				c := g.next()
				err := c.do(s)
				if err != nil && (err != ErrFull || policy == EvictOldest) && !errors.Is(err, backend.ErrStaleLabel) {
					t.Error(err)
				}
				for i := 0; err == nil && c.take != nil && c.take.Allowed && i < len(c.take.Keys); i++ {
					if d := &c.take.Keys[i]; !d.Soft && d.Windows[0].Count > d.Windows[0].Max-d.N {
						t.Errorf("allowed at %d of %d", d.Windows[0].Count, d.Windows[0].Max)
					}
				}
			}
		})
		requireSound(t, s)
		st := s.Stats()
		require.Equal(t, policy == EvictOldest, st.Evicted > 0)
		require.Equal(t, policy == Refuse, st.Refused > 0)
		require.Positive(t, st.Keys)
	}
}

// A bucket with any label lives for its TTL from the call on, and is 0 soon
// after, also if a shorter or a longer TTL came meanwhile.
func TestBucketsLiveForTheirTTL(t *testing.T) {
	minutes := try.To(tiers.Parse("1m:1h"))(t)
	for _, label := range []time.Duration{0, -time.Second, -10 * day, 50 * 365 * -day, 100 * day} {
		s := New(Config{})
		at := noon.Add(label)
		b := tiers.Bucket{Width: time.Minute, Index: tiers.Index(at.UnixNano(), time.Minute)}
		add := func(now time.Time, ttl time.Duration) {
			require.NoError(t, s.Do(context.Background(), &backend.Request{Key: "k", Ladder: minutes, Now: now, N: 1, Add: []backend.Slot{{Bucket: b, TTL: ttl}}}))
		}
		read := func(now time.Time) int64 {
			op := &backend.Request{Key: "k", Ladder: minutes, Now: now, Read: []backend.Span{{Width: time.Minute, First: b.Index, Counts: make([]int64, 1)}}}
			require.NoError(t, s.Do(context.Background(), op))
			return op.Read[0].Counts[0]
		}
		add(noon, time.Hour)
		require.EqualValues(t, 1, read(noon.Add(time.Hour-1)), label)
		later := noon.Add(max(0, label))
		require.EqualValues(t, 0, read(later.Add(2*max(-label, 0)+2*time.Hour+time.Minute)), label)
		add(noon, time.Minute) // a shorter TTL takes nothing away
		require.EqualValues(t, 2, read(noon.Add(time.Hour-1)), label)
		requireSound(t, s)
	}
}

// Buckets that had expired do not come back when the key gets a longer TTL.
func TestLongerTTLBringsNothingBack(t *testing.T) {
	s := New(Config{})
	slot := func(index int64, ttl time.Duration) []backend.Slot {
		return []backend.Slot{{Bucket: tiers.Bucket{Width: time.Second, Index: index}, TTL: ttl}}
	}
	at := func(i int64) time.Time { return time.Unix(i, 0) }
	do := func(op backend.Request) backend.Request {
		op.Key, op.Ladder = "k", seconds
		require.NoError(t, s.Do(context.Background(), &op))
		return op
	}
	do(backend.Request{Now: at(100), N: 1, Add: slot(100, 10*time.Second)})
	do(backend.Request{Now: at(105), N: 1, Add: slot(105, 10*time.Second)})
	do(backend.Request{Now: at(112), N: 1, Add: slot(112, time.Hour)})
	got := do(backend.Request{Now: at(112), Read: []backend.Span{{Width: time.Second, First: 100, Counts: make([]int64, 20)}}})
	require.Equal(t, []int64{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, got.Read[0].Counts)
	again := backend.Request{Key: "k", Ladder: seconds, Now: at(113), N: 1, Add: slot(100, 10*time.Second)}
	require.ErrorIs(t, s.Do(context.Background(), &again), backend.ErrStaleLabel)
	require.Zero(t, again.Add[0].Count)
	again.AnyLabel = true
	require.EqualValues(t, 1, do(again).Add[0].Count)
}

// A key counts to MaxCount in all buckets that are kept of a tier, however the
// hits come: into fresh seconds or into the same, by Take or by Do. Buckets that
// expire make room.
func TestAKeyCountsToMaxCount(t *testing.T) {
	const most = int64(backend.MaxCount)
	for _, row := range []struct {
		ladder string
		longer time.Duration // after which the coarse tiers still hold what the finest does not
	}{
		{"1s:2h", 0}, {dayLadder, 0}, {"1s:1m, 1m:2h", time.Hour}, {"1s:10s, 5s:1m, 1m:10m, 1h:10h, 1d:10d", 5 * day},
	} {
		s := New(Config{})
		now := noon
		add := func(n int64) error {
			take := taking(t, row.ladder, "k", now, per(2*most, time.Second))
			take.Keys[0].N = n
			err := s.Take(context.Background(), take)
			if err == nil {
				require.True(t, take.Allowed)
				return nil
			}
			require.ErrorIs(t, s.Do(context.Background(), chain(t, row.ladder, now, n)), backend.ErrMaxCount)
			return err
		}
		const few = 40
		for i := range few { // long rings have running totals
			now = noon.Add(time.Duration(i-few) * time.Second / 5)
			require.NoError(t, add(1), row.ladder)
		}
		now = noon
		require.NoError(t, add(most/2-few), row.ladder)
		now = now.Add(time.Second)
		require.NoError(t, add(most/2), row.ladder)
		require.ErrorIs(t, add(2), backend.ErrMaxCount, row.ladder)
		now = noon.Add(2 * time.Second)
		require.ErrorIs(t, add(2), backend.ErrMaxCount, row.ladder)
		require.NoError(t, add(1), row.ladder)
		require.ErrorIs(t, add(1), backend.ErrMaxCount, row.ladder)
		require.Equal(t, most, mustTake(t, s, peek(t, row.ladder, "k", now, per(most, 10*time.Second))).Keys[0].Windows[0].Count)
		if row.longer > 0 {
			now = now.Add(row.longer)
			require.ErrorIs(t, add(1), backend.ErrMaxCount, row.ladder)
		}
		require.NoError(t, s.Do(context.Background(), chain(t, row.ladder, noon, -1)))
		require.NoError(t, add(1), row.ladder)
		requireSound(t, s)
		now = now.Add(40 * day)
		require.NoError(t, add(most), row.ladder)
		require.ErrorIs(t, add(1), backend.ErrMaxCount, row.ladder)
		requireSound(t, s)
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	s := New(Config{})
	now := noon
	two := also(t, taking(t, dayLadder, "a", now, per(1e9, time.Minute), per(1e9, time.Hour), per(1e9, day)), "b", per(1e9, day))
	one, denied := *two, *two
	one.Keys, denied.Keys = two.Keys[:1], slices.Clone(two.Keys[:1])
	denied.Keys[0].N, denied.Keys[0].Windows = 1e9, slices.Clone(two.Keys[0].Windows)
	op := &backend.Request{Key: "c", Ladder: two.Keys[0].Ladder, Add: make([]backend.Slot, 3), Read: []backend.Span{{Width: time.Second, Counts: make([]int64, 60)}}}
	call := func() {
		for _, take := range []*backend.TakeRequest{two, &one, &denied} {
			take.Now = now
			if err := s.Take(context.Background(), take); err != nil || take.Allowed == (take == &denied) {
				t.Error(err, take.Allowed)
			}
		}
		for i := range op.Add {
			width := two.Keys[0].Ladder.At(i).Width
			op.Add[i] = backend.Slot{Bucket: tiers.Bucket{Width: width, Index: tiers.Index(now.UnixNano(), width)}, TTL: two.Keys[0].TTLs[i]}
		}
		op.Now, op.Read[0].First = now, op.Add[0].Index-59
		for _, op.N = range []int64{2, -1} {
			assert.NoError(t, s.Do(context.Background(), op))
		}
		now = now.Add(20 * time.Second)
	}
	for range 6000 { // a day, and some hours in which rings only turn
		call()
	}
	require.Zero(t, testing.AllocsPerRun(1000, call))
	requireSound(t, s)
}

// A call cannot take back what has expired by its own clock.
func TestTakingBackTheExpired(t *testing.T) {
	s := New(Config{})
	op := backend.Request{Key: "k", Ladder: seconds, Now: time.Unix(100, 0), N: 5, Add: []backend.Slot{{Bucket: tiers.Bucket{Width: time.Second, Index: 100}, TTL: time.Second}}}
	require.NoError(t, s.Do(context.Background(), &op))
	op.Now, op.N = time.Unix(102, grace), -1
	require.NoError(t, s.Do(context.Background(), &op))
	require.Zero(t, op.Add[0].Count)
}

// A run of buckets that begins before all time is read, and the store answers on.
func TestAReadFromTheFirstOfAllBuckets(t *testing.T) {
	s, ctx := New(Config{}), context.Background()
	add := &backend.Request{Key: "ab:k", Ladder: tiers.Default, Now: noon, N: 1}
	for i, b := range tiers.Default.Buckets(noon) {
		add.Add = append(add.Add, backend.Slot{Bucket: b, TTL: b.Width + tiers.Default.At(i).Keep})
	}
	require.NoError(t, s.Do(ctx, add))
	for _, first := range []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		r := &backend.Request{Key: "ab:k", Ladder: tiers.Default, Now: noon, Read: []backend.Span{{Width: time.Second, First: first, Counts: []int64{7}}}}
		require.NoError(t, s.Do(ctx, r))
		require.Zero(t, r.Read[0].Counts[0])
	}
	require.NoError(t, s.Do(ctx, add))
	require.EqualValues(t, 2, add.Add[0].Count)
}

// chain is an op of n on the buckets of all tiers that hold now.
func chain(t *testing.T, ladder string, now time.Time, n int64) *backend.Request {
	l := try.To(tiers.Parse(ladder))(t)
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
