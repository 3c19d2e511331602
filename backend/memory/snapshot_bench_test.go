package memory

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

// filled is a store with keys of so many hits each, at random seconds of a day.
func filled(b *testing.B, keys, hits int) *Store {
	s := New(Config{MaxBuckets: 1 << 30})
	rnd := rand.New(rand.NewPCG(1, 2))
	limit := counter.Limit{Max: 1 << 30, Per: 24 * time.Hour}
	r := taking(b, dayLadder, "", noon, limit)
	at := make([]int64, hits)
	for i := range keys {
		for j := range at {
			at[j] = rnd.Int64N(int64(day))
		}
		slices.Sort(at)
		r.Keys[0].Key = fmt.Appendf(nil, "ab:16CTp:signup:ip:203.0.%07d", i)
		for _, d := range at {
			r.Now, r.AnyLabel = noon.Add(time.Duration(d)), true
			require.NoError(b, s.Take(context.Background(), r))
		}
	}
	return s
}

// BenchmarkSnapshot also tells the times for which a shard is locked: for a batch
// of keys, and for the list of all.
func BenchmarkSnapshot(b *testing.B) {
	for _, row := range []struct{ keys, hits int }{{1_000_000, 1}, {1_000_000, 10}, {1, 80_000}} {
		b.Run(fmt.Sprintf("keys=%d/hits=%d", row.keys, row.hits), func(b *testing.B) {
			s := filled(b, row.keys, row.hits)
			var locked []time.Duration
			list := time.Duration(0)
			for i := range s.shards {
				sh := &s.shards[i]
				var enc encoder
				begin := time.Now()
				slots := sh.list(nil)
				list = max(list, time.Since(begin))
				for len(slots) > 0 {
					begin := time.Now()
					slots = sh.encode(&enc, slots)
					locked = append(locked, time.Since(begin))
					enc.buf = enc.buf[:0]
				}
			}
			slices.Sort(locked)
			var snapshot bytes.Buffer
			require.NoError(b, s.Snapshot(&snapshot))
			b.ReportAllocs()
			b.SetBytes(int64(snapshot.Len()))
			for b.Loop() {
				require.NoError(b, s.Snapshot(io.Discard))
			}
			b.ReportMetric(float64(snapshot.Len())/float64(row.keys), "B/key")
			b.ReportMetric(float64(locked[len(locked)/2].Microseconds()), "us-locked-median")
			b.ReportMetric(float64(locked[len(locked)*99/100].Microseconds()), "us-locked-p99")
			b.ReportMetric(float64(locked[len(locked)-1].Microseconds()), "us-locked-max")
			b.ReportMetric(float64(list.Microseconds()), "us-list")
		})
	}
}

func BenchmarkRestore(b *testing.B) {
	for _, row := range []struct{ keys, hits int }{{1_000_000, 1}, {1_000_000, 10}, {1, 80_000}} {
		b.Run(fmt.Sprintf("keys=%d/hits=%d", row.keys, row.hits), func(b *testing.B) {
			snapshot := snapshotOf(b, filled(b, row.keys, row.hits))
			b.ReportAllocs()
			b.SetBytes(int64(len(snapshot)))
			for b.Loop() {
				require.NoError(b, New(Config{MaxBuckets: 1 << 30}).Restore(bytes.NewReader(snapshot)))
			}
		})
	}
}
