package counter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// BenchmarkTake measures an admitted Take on the embedded store, on many keys
// in random order, and checks that every hit was counted.
func BenchmarkTake(b *testing.B) {
	for _, keys := range []int{1_000, 100_000} {
		for _, limits := range []string{"1000000000/d", "1000000000/m, 1000000000/h, 1000000000/d"} {
			b.Run(fmt.Sprintf("%d keys, %d limits", keys, len(counter.MustLimits(limits))), func(b *testing.B) {
				c := newCounter(b, memory.New(memory.Config{}), counter.Config{})
				parsed := counter.MustLimits(limits)
				names := make([]counter.Key, keys)
				for i := range names {
					names[i] = counter.Key{Event: "signup", Feature: fmt.Sprintf("ip:10.0.%d.%d", i>>8, i&255)}
				}
				order := make([]int32, 1<<20)
				for i := range order {
					order[i] = int32(rand.IntN(keys))
				}
				for _, k := range names {
					_, err := c.Take(context.Background(), k, 1, parsed)
					require.NoError(b, err)
				}
				b.ReportAllocs()
				n := int64(0)
				for b.Loop() {
					v, err := c.Take(context.Background(), names[order[n&(1<<20-1)]], 1, parsed)
					if err != nil || !v.Allowed {
						b.Fatal(v, err)
					}
					n++
				}
				b.StopTimer()
				var sum int64
				for _, k := range names {
					count, err := c.Count(context.Background(), k, parsed[len(parsed)-1].Per)
					require.NoError(b, err)
					sum += count.High
				}
				require.Equal(b, n+int64(keys), sum)
			})
		}
	}
}
