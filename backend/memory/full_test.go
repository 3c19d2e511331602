package memory

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

func hit(t testing.TB, s *Store, key string, now time.Time) {
	require.True(t, mustTake(t, s, taking(t, dayLadder, key, now, per(1e6, day))).Allowed)
}

func (s *Store) count(t testing.TB, key string, now time.Time) int64 {
	take := taking(t, dayLadder, key, now, per(1e6, day))
	take.Peek = true
	return mustTake(t, s, take).Keys[0].Windows[0].Count
}

// storeFor is a store with room for n keys that were hit once.
func storeFor(n int, full Policy) *Store {
	return New(Config{MaxBuckets: n * entryCost, Full: full, Reserve: -1})
}

func TestRefuseKeepsWhatIsKnown(t *testing.T) {
	s := storeFor(100, Refuse)
	for i := range 100 {
		hit(t, s, fmt.Sprint("k", i), noon)
	}
	before := s.Stats()
	for range 3 {
		require.Equal(t, ErrFull, s.Take(context.Background(), taking(t, dayLadder, "fresh", noon, per(5, day))))
	}
	b := tiers.Bucket{Width: time.Second, Index: noon.Unix()}
	op := &backend.Request{Key: "fresh", Ladder: tiers.Default, Now: noon, N: 1, Add: []backend.Slot{{Bucket: b, TTL: day}}}
	require.Equal(t, ErrFull, s.Do(context.Background(), op))
	require.Zero(t, op.Add[0].Count)
	// A known key goes on in its buckets, which takes no memory, and not in a
	// fresh bucket.
	hit(t, s, "k7", noon.Add(time.Millisecond))
	require.Equal(t, ErrFull, s.Take(context.Background(), taking(t, dayLadder, "k7", noon.Add(time.Second), per(5, day))))
	require.EqualValues(t, 2, s.count(t, "k7", noon))
	before.Refused = 5
	require.Equal(t, before, s.Stats())
	requireSound(t, s)
}

// Fresh keys leave the reserve to known keys, also where a call has both; expired
// keys make room for fresh ones as ever.
func TestReserveIsForKnownKeys(t *testing.T) {
	s := New(Config{MaxBuckets: 100 * entryCost, Reserve: 40 * entryCost})
	for i := range 60 {
		hit(t, s, fmt.Sprint("k", i), noon)
	}
	for range 2 {
		both := also(t, taking(t, dayLadder, "k1", noon, per(5, day)), "fresh", per(5, day))
		require.Equal(t, ErrFull, s.Take(context.Background(), both))
		require.Equal(t, ErrFull, s.Take(context.Background(), taking(t, dayLadder, "fresh", noon, per(5, day))))
		for i := range 60 {
			hit(t, s, fmt.Sprint("k", i), noon.Add(time.Second))
		}
	}
	require.EqualValues(t, 3, s.count(t, "k1", noon.Add(time.Second)))
	for i := range 60 {
		hit(t, s, fmt.Sprint("new", i), noon.Add(50*time.Hour))
	}
	require.EqualValues(t, 60, s.Stats().Keys)
	requireSound(t, s)
}

// A key that grows evicts other keys, never itself; and a call that can never
// fit is refused before any key is evicted.
func TestGrowthEvictsOthers(t *testing.T) {
	s := storeFor(40, EvictOldest)
	hit(t, s, "grows", noon)
	for i := range 39 {
		hit(t, s, fmt.Sprint("k", i), noon.Add(time.Minute))
	}
	now, n := noon, int64(1)
	for s.Stats().Refused == 0 {
		now, n = now.Add(time.Second), n+1
		err := s.Take(context.Background(), taking(t, dayLadder, "grows", now, per(1e6, day)))
		require.EqualValues(t, n, s.count(t, "grows", now)+int64(s.Stats().Refused))
		require.True(t, err == nil || err == ErrFull, err)
	}
	require.Greater(t, n, int64(256)) // buckets; 512 do not fit beside the minute's ring
	st := s.Stats()
	require.Positive(t, st.Evicted)
	require.Positive(t, st.Keys-1, "keys that were evicted in vain")
	requireSound(t, s)
}

func TestTakingBackFreesMemory(t *testing.T) {
	s := storeFor(1, Refuse)
	hit(t, s, "k", noon)
	require.Equal(t, ErrFull, s.Take(context.Background(), taking(t, dayLadder, "b", noon, per(5, day))))
	require.NoError(t, s.Do(context.Background(), chain(t, dayLadder, noon, -1)))
	require.Equal(t, Stats{Refused: 1}, s.Stats())
	hit(t, s, "b", noon)
}

// Memory follows the buckets that live: a dense day costs its buckets, and a
// sparse day afterwards gives the memory back.
func TestMemoryFollowsTheBuckets(t *testing.T) {
	s := New(Config{})
	now, hits := noon, int64(0)
	for ; now.Before(noon.Add(day)); now = now.Add(5 * time.Second) {
		hit(t, s, "k", now)
		hits++
		if hits == 1000 || hits == 10000 {
			require.Less(t, s.Stats().Buckets, 2*hits+100)
		}
	}
	dense := s.Stats().Buckets
	require.Greater(t, dense, hits)
	for range 60 { // sparse: an hour apart
		now = now.Add(time.Hour)
		hit(t, s, "k", now)
		requireSound(t, s)
	}
	require.Less(t, s.Stats().Buckets, int64(300))
	now = now.Add(3 * day)
	hit(t, s, "k", now)
	require.EqualValues(t, entryCost, s.Stats().Buckets)
	requireSound(t, s)
}

// The store reckons the memory of the process to within a fifth: for keys that
// were hit once, with tables of any filling, and for keys with rings and totals.
func TestCostIsHonest(t *testing.T) {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	measure := func(name string, policy Policy, keys, keyLen, hits int, worst float64) {
		before := heap()
		s := New(Config{MaxBuckets: 1 << 30, Full: policy})
		empty := s.Stats().Buckets
		take := taking(t, dayLadder, "", noon, per(backend.MaxCount, day), per(backend.MaxCount, time.Hour))
		for i := range keys {
			take.Keys[0].Key = []byte(fmt.Sprintf("%0*d", keyLen, i))
			for h := range hits {
				take.Now = noon.Add(time.Duration(h) * time.Minute)
				mustTake(t, s, take)
			}
		}
		paid := (heap() - before) / bucketBytes
		counted := float64(s.Stats().Buckets - empty)
		t.Logf("%s: %.1f bytes a key paid, %.1f counted", name, paid*bucketBytes/float64(keys), counted*bucketBytes/float64(keys))
		require.InDelta(t, 1, paid/counted, worst, name)
		runtime.KeepAlive(s)
	}
	for _, keys := range []int{25_000, 32_500, 40_000} {
		measure(fmt.Sprint(keys, " keys hit once"), Refuse, keys, 40, 1, 0.2)
		measure(fmt.Sprint(keys, " keys hit once, EvictOldest"), EvictOldest, keys, 40, 1, 0.2)
	}
	measure("long keys hit once", Refuse, 12_500, 180, 1, 0.2)
	measure("two hits", Refuse, 12_500, 40, 2, 0.2)
	measure("100 hits", Refuse, 1_000, 40, 100, 0.2)
	measure("1000 hits", Refuse, 100, 40, 1000, 0.2)
}

func TestDefaultBound(t *testing.T) {
	require.EqualValues(t, DefaultMaxBuckets, New(Config{}).max)
	require.EqualValues(t, DefaultMaxBuckets, New(Config{MaxBuckets: -1}).max)
	require.Equal(t, 256<<20, DefaultMaxBuckets*bucketBytes)
	require.True(t, strings.HasPrefix(ErrFull.Error(), "memory: "))
}

func TestErrorsChangeNothing(t *testing.T) {
	s := New(Config{})
	second := tiers.Bucket{Width: time.Second, Index: noon.Unix()}
	mustTake(t, s, taking(t, dayLadder, "k", noon, per(5, day)))
	done, cancel := context.WithCancel(context.Background())
	cancel()
	past := time.Now().Add(-time.Second)
	far := time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	slots := func(b ...tiers.Bucket) (slots []backend.Slot) {
		for _, b := range b {
			slots = append(slots, backend.Slot{Bucket: b, TTL: day, Count: 9})
		}
		return slots
	}
	for want, op := range map[string]*backend.Request{
		"context canceled":              {Key: "k", Now: noon, N: 1, Add: slots(second)},
		"i/o timeout":                   {Key: "k", Now: noon, N: 1, Add: slots(second), Deadline: past},
		"time 2300":                     {Key: "k", Now: far, N: 1, Add: slots(second)},
		"a bucket of width 0s":          {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{})},
		"a bucket of width -1s":         {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: -time.Second})},
		"bucket 9223372036854775":       {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MaxInt64})},
		"bucket 9223372036 of":          {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MaxInt64 / int64(time.Second)})},
		"bucket -922337203685477":       {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MinInt64})},
		"a span of width -1ns":          {Key: "k", Now: noon, N: 1, Add: slots(second), Read: []backend.Span{{Width: -1}}},
		"TTL -1ns of bucket 1s@2":       {Key: "k", Now: noon, N: 1, Add: []backend.Slot{{Bucket: second, TTL: -1}}},
		"hold 1, 9007199254740991 more": {Key: "k", Now: noon, N: backend.MaxCount, Add: slots(second)},
		"hold 0, 922337203":             {Key: "fresh", Now: noon, N: math.MaxInt64, Add: slots(second)},
	} {
		op.Ladder = tiers.Default
		ctx := context.Background()
		if want == "context canceled" {
			ctx = done
		}
		require.ErrorContains(t, s.Do(ctx, op), want)
		for _, slot := range op.Add {
			require.Zero(t, slot.Count, want)
		}
	}
	require.ErrorIs(t, s.Do(done, &backend.Request{Now: noon}), context.Canceled)
	require.ErrorIs(t, s.Do(context.Background(), &backend.Request{Now: noon, Deadline: past}), os.ErrDeadlineExceeded)
	for want, spoil := range map[string]func(*backend.TakeRequest){
		"i/o timeout":         func(t *backend.TakeRequest) { t.Deadline = past },
		"time 2300":           func(t *backend.TakeRequest) { t.Now = far },
		"n -1":                func(t *backend.TakeRequest) { t.Keys[1].N = -1 },
		"n 9007199254740992,": func(t *backend.TakeRequest) { t.Keys[1].N = backend.MaxCount + 1 },
		"2 TTLs for a ladder": func(t *backend.TakeRequest) { t.Keys[1].TTLs = t.Keys[1].TTLs[:2] },
		"0 TTLs for a ladder": func(t *backend.TakeRequest) { t.Keys[1].Ladder, t.Keys[1].TTLs = tiers.Ladder{}, nil },
		"TTL -1ns":            func(t *backend.TakeRequest) { t.Keys[1].TTLs[1] = -1 },
		"from tier 3":         func(t *backend.TakeRequest) { t.Keys[1].Windows[0].Finest = 3 },
		"from tier -1":        func(t *backend.TakeRequest) { t.Keys[1].Windows[0].Finest = -1 },
		"window of -1ns":      func(t *backend.TakeRequest) { t.Keys[1].Windows[0].Reach = -1 },
		"hold 1, 9007199254740991 more": func(t *backend.TakeRequest) {
			t.Keys = t.Keys[:1]
			t.Keys[0].N = backend.MaxCount
			t.Keys[0].Windows[0].Max = math.MaxInt64
		},
	} {
		take := also(t, taking(t, dayLadder, "k", noon, per(5, day)), "other", per(5, day))
		spoil(take)
		require.ErrorContains(t, s.Take(context.Background(), take), want)
		take.Keys = take.Keys[len(take.Keys)-1:]
		require.ErrorContains(t, s.Take(context.Background(), take), want, want)
	}
	require.ErrorIs(t, s.Take(done, taking(t, dayLadder, "k", noon, per(5, day))), context.Canceled)
	require.Equal(t, 1, s.Stats().Keys)
	require.EqualValues(t, 1, mustTake(t, s, taking(t, dayLadder, "k", noon, per(5, day))).Keys[0].Windows[0].Count)
	last := slots(tiers.Bucket{Width: time.Second, Index: math.MaxInt64/int64(time.Second) - 1})
	require.NoError(t, s.Do(context.Background(), &backend.Request{Key: "last", Ladder: tiers.Default, Now: noon, N: 1, Add: last}))
	requireSound(t, s)
}

// A key has one ladder, and buckets have its widths: what the contract asks for is
// checked, since a wrong answer would be a wrong count.
func TestAnotherLadderIsRefused(t *testing.T) {
	s := New(Config{})
	mustTake(t, s, taking(t, dayLadder, "k", noon, per(5, day)))
	other := taking(t, "1s:1h, 1m:30d", "k", noon, per(5, day))
	require.ErrorContains(t, s.Take(context.Background(), other), "want the same ladder in every call for a key")
	op := chain(t, "1m:1d", noon, 1)
	require.ErrorContains(t, s.Do(context.Background(), op), "the key has buckets of 1s, where the ladder of the call has 1m0s")
	read := &backend.Request{Key: "k", Ladder: tiers.Default, Now: noon, Read: []backend.Span{{Width: 2 * time.Second, Counts: []int64{7}}}}
	require.ErrorContains(t, s.Do(context.Background(), read), `a span of width 2s, want a width of the ladder "1s:1d, 1m:1d, 1h:1d"`)
	require.False(t, read.Ordered)
	require.EqualValues(t, 1, s.count(t, "k", noon))
	requireSound(t, s)
}

// Hits into the past leave out the tiers that are not kept for so long. That makes no
// label stale, and no later hit's life shorter.
func TestTiersThatAreLeftOut(t *testing.T) {
	const ladder = "1s:1h, 1m:1d"
	s := New(Config{})
	past := chain(t, ladder, noon.Add(-5*time.Hour), 2)
	past.Age, past.Add = 5*time.Hour, past.Add[1:]
	require.NoError(t, s.Do(context.Background(), past))
	require.True(t, mustTake(t, s, taking(t, ladder, "k", noon, per(3, day), per(1, time.Hour))).Allowed)
	require.False(t, mustTake(t, s, taking(t, ladder, "k", noon.Add(2*time.Hour), per(3, day))).Allowed)
	require.NoError(t, s.Do(context.Background(), past))
	require.Equal(t, []int64{4}, counts(past))
	last := taking(t, ladder, "k", noon.Add(18*time.Hour), per(5, day))
	require.False(t, mustTake(t, s, last).Allowed)
	require.EqualValues(t, 5, last.Keys[0].Windows[0].Count)
	requireSound(t, s)
}
