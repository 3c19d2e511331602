package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// BenchmarkAllow is an admitted decision on the embedded store by two features
// with three limits each, making the features included: random order over many
// visitors, every hit counted, which it checks.
func BenchmarkAllow(b *testing.B) {
	for _, visitors := range []int{1, 1_000, 100_000} {
		b.Run(fmt.Sprintf("%d visitors", visitors), func(b *testing.B) {
			store := memory.New(memory.Config{})
			c, err := counter.New(store, counter.Config{})
			require.NoError(b, err)
			limits := counter.MustLimits("1000000000/m, 1000000000/h, 1000000000/d")
			lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
				{Event: "signup", Kind: "ip", Limits: limits},
				{Event: "signup", Kind: "email", Limits: limits},
			}})
			require.NoError(b, err)
			addrs, mails := make([]netip.Addr, visitors), make([]string, visitors)
			for i := range visitors {
				addrs[i] = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
				mails[i] = fmt.Sprintf("Visitor.%d@example.org", i)
			}
			order := make([]int32, 1<<20)
			for i := range order {
				order[i] = int32(rand.IntN(visitors))
			}
			ctx, n := context.Background(), int64(0)
			for i := range visitors {
				_, err := lim.Allow(ctx, "signup", feature.IP(addrs[i]), feature.Email(mails[i]))
				require.NoError(b, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				i := order[n&(1<<20-1)]
				v, err := lim.Allow(ctx, "signup", feature.IP(addrs[i]), feature.Email(mails[i]))
				if err != nil || !v.Allowed {
					b.Fatal(v, err)
				}
				n++
			}
			b.StopTimer()
			var hits int64
			for i := range visitors {
				v, err := lim.Peek(ctx, "signup", 1, feature.IP(addrs[i]))
				require.NoError(b, err)
				require.Equal(b, "email", v.Missing)
				count, err := c.Count(ctx, counter.Key{Event: "signup", Feature: "ip:" + addrs[i].String()}, limits[2].Per)
				require.NoError(b, err)
				hits += count.High
			}
			require.Equal(b, n+int64(visitors), hits)
		})
	}
}
