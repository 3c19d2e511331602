package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// Redis, at an append, allocates twice the bytes that the value needs.
func TestASparseKeyHasNoRoomToSpare(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	for i := range 250 {
		take(t, c, signup, 1, "1000/d")
		if now = now.Add(day / 100); i < 20 {
			continue
		}
		keys := client.Keys(ctx, "*").Val()
		require.Len(t, keys, 1)
		value, name := client.StrLen(ctx, keys[0]).Val(), int64(len(keys[0]))
		require.Less(t, client.MemoryUsage(ctx, keys[0], 0).Val(), (value+name)*5/4+100, "hit %d, %d bytes of value", i, value)
	}
	require.EqualValues(t, 100, count(t, c, signup))
}

// A key that Adds alone have grown is as small as a key of the same hits by Takes.
func TestAKeyGrownByAdds(t *testing.T) {
	for _, perDay := range []int{100, 2_000, 40_000} {
		client := raw(t, servertest.Redis(t))
		now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		c := newCounter(t, open(t, "redis://"+client.Options().Addr), counter.Config{Now: func() time.Time { return now }})
		added, taken := counter.Key{Event: "grown", Feature: "by:adds"}, counter.Key{Event: "grown", Feature: "by:take"}
		for range min(perDay*5/4, long.Rounds(2_000, 10_000)) {
			require.NoError(t, c.Add(ctx, added, 1))
			take(t, c, taken, 1, "1000000/d")
			now = now.Add(day / time.Duration(perDay))
		}
		memory := func(key counter.Key) (bytes int64) {
			for _, name := range client.Keys(ctx, "*"+key.Feature+"*").Val() {
				bytes += client.MemoryUsage(ctx, name, 0).Val()
			}
			return bytes
		}
		t.Logf("%d hits a day: %d B by Adds, %d B by Takes", perDay, memory(added), memory(taken))
		require.LessOrEqual(t, memory(added), memory(taken)*21/20+64, "%d hits a day", perDay)
	}
}
