package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

const benchKeyLen = 32

// benchKeys are n different keys of 32 bytes, one after the other: what a
// benchmark waits for is then mostly the store's memory, not its own.
func benchKeys(n int) []byte {
	keys := make([]byte, 0, n*benchKeyLen)
	for i := range n {
		keys = fmt.Appendf(keys, "ab:1abcd:signup:ip:%013d", i)
	}
	return keys
}

// benchTake calls Take for keys in random order, at virtual times that pass by
// gap per call of a goroutine, and checks that every call was counted.
func benchTake(b *testing.B, store *Store, keys []byte, ladder string, gap time.Duration, parallel bool, windows ...time.Duration) {
	b.ReportAllocs()
	start := time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC)
	var limits []counter.Limit
	for _, w := range windows {
		limits = append(limits, per(backend.MaxCount, w))
	}
	n := uint64(len(keys) / benchKeyLen)
	run := func(next func() bool, seed uint64) (taken int64) {
		t := taking(b, ladder, "", start, limits...)
		rnd := seed
		now := start
		for next() {
			rnd ^= rnd << 13
			rnd ^= rnd >> 7
			rnd ^= rnd << 17
			now = now.Add(gap)
			t.Now = now
			at := rnd % n * benchKeyLen
			t.Keys[0].Key = keys[at : at+benchKeyLen]
			if err := store.Take(context.Background(), t); err != nil || !t.Allowed {
				b.Error(err, t.Allowed)
			}
			taken++
		}
		return taken
	}
	warm, taken := uint64(0), int64(0)
	for store.Stats().Keys < int(n) {
		taken += run(func() bool { warm++; return warm%n != 0 }, warm+0x9e3779b97f4a7c15)
	}
	b.ResetTimer()
	if parallel {
		done := make(chan int64, 64)
		b.RunParallel(func(pb *testing.PB) { done <- run(pb.Next, rand.Uint64()|1) })
		for range runtime.GOMAXPROCS(0) {
			taken += <-done
		}
	} else {
		i := 0
		taken += run(func() bool { i++; return i <= b.N }, rand.Uint64()|1)
	}
	b.StopTimer()
	require.EqualValues(b, taken, sumOf(store, time.Second))
	require.Zero(b, store.Stats().Evicted)
}

// sumOf is all that was counted in the tier of that width.
func sumOf(s *Store, width time.Duration) (sum int64) {
	for i := range s.shards {
		for _, slot := range s.shards[i].table.slots {
			if slot.e == nil {
				continue
			}
			for k, t := range slot.e.layout.tiers() {
				if t.width == int64(width) {
					sum += slot.e.ring(k).last.sum
				}
			}
		}
	}
	return sum
}

func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		keys := benchKeys(n)
		for _, windows := range [][]time.Duration{{day}, {time.Minute, time.Hour, day}} {
			for _, gap := range []time.Duration{60 * time.Nanosecond, time.Millisecond} {
				for _, parallel := range []bool{false, true} {
					if gap > time.Microsecond && (n > 100_000 || parallel) {
						continue // each goroutine has a clock of its own
					}
					b.Run(fmt.Sprintf("keys=%d/windows=%d/gap=%v/parallel=%v", n, len(windows), gap, parallel), func(b *testing.B) {
						benchTake(b, New(Config{MaxBuckets: 1 << 30}), keys, dayLadder, gap, parallel, windows...)
					})
				}
			}
		}
	}
}

// The least that any limiter does: find the key in a map under a lock, and
// count. What Take costs beside it is the windows.
func BenchmarkFloor(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			type shard struct {
				mu     sync.Mutex
				counts map[string]*int64
				_      [64]byte
			}
			keys, seed := benchKeys(n), maphash.MakeSeed()
			shards := make([]shard, 16)
			shardOf := func(key []byte) *shard { return &shards[maphash.Bytes(seed, key)>>60] }
			for i := range n {
				s := shardOf(keys[i*benchKeyLen : (i+1)*benchKeyLen])
				if s.counts == nil {
					s.counts = map[string]*int64{}
				}
				s.counts[string(keys[i*benchKeyLen:(i+1)*benchKeyLen])] = new(int64)
			}
			rnd := rand.Uint64() | 1
			for b.Loop() {
				rnd ^= rnd << 13
				rnd ^= rnd >> 7
				rnd ^= rnd << 17
				at := rnd % uint64(n) * benchKeyLen
				key := keys[at : at+benchKeyLen]
				s := shardOf(key)
				s.mu.Lock()
				*s.counts[string(key)]++
				s.mu.Unlock()
			}
			b.StopTimer()
			sum, found := 0, 0
			for i := range shards {
				for _, n := range shards[i].counts {
					sum, found = sum+int(*n), found+1
				}
			}
			require.Equal(b, b.N, sum)
			require.Equal(b, n, found)
		})
	}
}

// Keys that are hit in fresh buckets again and again, under windows of every
// length: what a hit costs does not depend on how far its window looks back.
func BenchmarkWindow(b *testing.B) {
	for _, row := range []struct {
		name, ladder string
		window, gap  time.Duration // gap: between the hits of a key
	}{
		{"1m", "1s:1m, 1m:1m", time.Minute, time.Second},
		{"1h", "1s:1h, 1m:1h, 1h:1h", time.Hour, 10 * time.Second},
		{"1d", dayLadder, day, time.Minute},
		{"7d", "1s:7d, 1m:7d, 1h:7d, 1d:7d", 7 * day, 10 * time.Minute},
		{"30d", "1s:30d, 1m:30d, 1h:30d, 1d:30d", 30 * day, time.Hour},
	} {
		const n = 100
		keys := benchKeys(n)
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			s := New(Config{})
			t := taking(b, row.ladder, "", noon, per(backend.MaxCount, row.window))
			w := &t.Keys[0].Windows[0]
			call := func(i int) {
				at := i % n * benchKeyLen
				t.Keys[0].Key = keys[at : at+benchKeyLen]
				t.Now = noon.Add(time.Duration(i) * row.gap / n)
				if err := s.Take(context.Background(), t); err != nil || !t.Allowed {
					b.Fatal(err, t.Allowed)
				}
			}
			full := 2 * n * int(row.window/row.gap)
			for i := range full {
				call(i)
			}
			b.ResetTimer()
			for i := range b.N {
				call(full + i)
			}
			b.StopTimer()
			require.InDelta(b, int64(row.window/row.gap), w.Count, 1) // each window is full
		})
	}
}

// Ten million fresh keys, nothing of which expires: the bound holds, and the
// last million costs what the first did when the store was full.
func BenchmarkFlood(b *testing.B) {
	const flood, million = 10_000_000, 1_000_000
	for _, policy := range []Policy{Refuse, EvictOldest} {
		b.Run([]string{"Refuse", "EvictOldest"}[policy], func(b *testing.B) {
			for range b.N {
				runtime.GC()
				s := New(Config{Full: policy})
				t := taking(b, dayLadder, "", noon, per(5, day))
				key := make([]byte, 0, 64)
				var peak, refused uint64
				var spent [flood / million]time.Duration
				for m := range spent {
					began := time.Now()
					for i := range million {
						key = fmt.Appendf(key[:0], "ab:1abcd:signup:ip:%d", m*million+i)
						t.Keys[0].Key = key
						t.Now = noon.Add(time.Duration(m*million+i) * time.Millisecond)
						if err := s.Take(context.Background(), t); err == ErrFull {
							refused++
						} else if err != nil || !t.Allowed {
							b.Fatal(err, t.Allowed)
						}
					}
					spent[m] = time.Since(began)
					var mem runtime.MemStats
					runtime.ReadMemStats(&mem)
					peak = max(peak, mem.HeapAlloc)
				}
				runtime.GC()
				var mem runtime.MemStats
				runtime.ReadMemStats(&mem)
				st := s.Stats()
				require.LessOrEqual(b, st.Buckets, int64(DefaultMaxBuckets))
				require.Less(b, mem.HeapAlloc, uint64(DefaultMaxBuckets*bucketBytes*11/10))
				require.EqualValues(b, flood, uint64(st.Keys)+uint64(st.Evicted)+refused)
				require.EqualValues(b, refused, st.Refused)
				require.Equal(b, policy == EvictOldest, refused == 0)
				require.Zero(b, st.Reclaimed)
				b.ReportMetric(float64(spent[0])/million, "ns/first")
				b.ReportMetric(float64(spent[2])/million, "ns/third")
				b.ReportMetric(float64(spent[len(spent)-1])/million, "ns/last")
				b.ReportMetric(float64(peak)/(1<<20), "MB-peak")
				b.ReportMetric(float64(mem.HeapAlloc)/(1<<20), "MB-live")
			}
		})
	}
}
