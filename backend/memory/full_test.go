package memory

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

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
