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

func BenchmarkSnapshot(b *testing.B) {
	for _, row := range []struct{ keys, hits int }{{1_000_000, 1}, {1_000_000, 10}, {1, 80_000}} {
		s := filled(b, row.keys, row.hits)
		snapshot := snapshotOf(b, s)
		for name, call := range map[string]func() error{
			"snapshot": func() error { return s.Snapshot(io.Discard) },
			"restore":  func() error { return New(Config{MaxBuckets: 1 << 30}).Restore(bytes.NewReader(snapshot)) },
		} {
			b.Run(fmt.Sprintf("%s/keys=%d/hits=%d", name, row.keys, row.hits), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(snapshot)))
				for b.Loop() {
					require.NoError(b, call())
				}
				b.ReportMetric(float64(len(snapshot))/float64(row.keys), "B/key")
			})
		}
	}
}
