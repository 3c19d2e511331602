package memcache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// BenchmarkTake measures an admitted Take on a local memcached, and beside it a
// plain increment.
func BenchmarkTake(b *testing.B) {
	addr := servertest.Memcached(b)
	b.Run("increment", func(b *testing.B) {
		b.ReportAllocs()
		raw := gomemcache.New(addr)
		defer raw.Close()
		require.NoError(b, raw.Set(&gomemcache.Item{Key: "plain", Value: []byte("0")}))
		var last uint64
		n := uint64(0)
		for b.Loop() {
			last, _ = raw.Increment("plain", 1)
			n++
		}
		require.Equal(b, n, last)
	})
	for _, limits := range []string{"9000000000/h", "9000000000/d", "9000000000/m, 9000000000/h, 9000000000/d"} {
		for _, keys := range []int{1, 1000} {
			b.Run(fmt.Sprintf("limits=%s/keys=%d", limits, keys), func(b *testing.B) {
				b.ReportAllocs()
				ctx := context.Background()
				s := newStore(b, memcache.Config{}, addr)
				require.NoError(b, gomemcache.New(addr).FlushAll())
				c := newCounter(b, s, counter.Config{})
				key := func(i int) counter.Key {
					return counter.Key{Event: "bench", Feature: fmt.Sprint("ip:203.0.113.", i%keys)}
				}
				n := 0
				for b.Loop() {
					v, err := c.Take(ctx, key(n), 1, counter.MustLimits(limits))
					if err != nil || !v.Allowed {
						b.Fatal(v.Allowed, err)
					}
					n++
				}
				sum := 0
				for i := range min(keys, n) {
					count, err := c.Count(ctx, key(i), 24*time.Hour)
					require.NoError(b, err)
					sum += int(count.High)
				}
				require.Equal(b, n, sum)
			})
		}
	}
}

// BenchmarkFreshBuckets measures hits that each open a bucket of the finest
// tier.
func BenchmarkFreshBuckets(b *testing.B) {
	addr := servertest.Memcached(b)
	s := newStore(b, memcache.Config{}, addr)
	now := halfPast
	c := newCounter(b, s, counter.Config{Now: func() time.Time { return now }})
	key := counter.Key{Event: "bench", Feature: "fresh"}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		require.NoError(b, c.Add(context.Background(), key, 1))
	}
}
