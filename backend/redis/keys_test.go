package redis_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Every stored key has a time to live that covers the buckets in the value, and all
// stored keys of a counted key have the same hash tag.
func TestStoredKeys(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Date(2026, 3, 2, 0, 0, 30, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	for range 5000 { // many of the hits are in the same second, and an hour is full
		take(t, c, signup, 1, "1000000/d")
		now = now.Add(time.Duration(rand.Int64N(int64(2 * time.Second))))
	}
	keys := try.To(client.Keys(ctx, "*").Result())(t)
	require.Len(t, keys, 3, "a root, and a leaf for each hour")
	for _, key := range keys {
		require.Regexp(t, `^\{ab:1....:signup:ip:203\.0\.113\.9\}P(:\d+\.[1-4])?$`, key)
		left := try.To(client.PTTL(ctx, key).Result())(t)
		require.Greater(t, left, 25*time.Hour, key)
		require.Less(t, left, 27*time.Hour, key)
	}
}

// A denied hit writes nothing, and leaves nothing behind.
func TestDeniedHitsWriteNothing(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Date(2026, 3, 2, 0, 0, 30, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	take(t, c, signup, 1, "1/d")
	root := client.Keys(ctx, "*").Val()[0]
	before := client.Get(ctx, root).Val()
	for range 600 {
		now = now.Add(time.Second)
		require.False(t, take(t, c, signup, 1, "1/d").Allowed)
	}
	require.Equal(t, before, client.Get(ctx, root).Val())
	require.EqualValues(t, 1, client.DBSize(ctx).Val())
}

// A key in use keeps the buckets that the windows need, and not many more.
func TestMemoryDoesNotGrow(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Date(2026, 3, 2, 0, 0, 30, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	var worst int64
	for i := range 100 * 30 {
		take(t, c, signup, 1, "1000000/d")
		now = now.Add(time.Duration(rand.Int64N(int64(2 * 864 * time.Second))))
		if i > 200 && i%7 == 0 {
			worst = max(worst, client.StrLen(ctx, client.Keys(ctx, "*}P").Val()[0]).Val())
		}
	}
	t.Logf("a key that is hit 100 times a day: at most %d bytes in a month", worst)
	require.Less(t, worst, int64(1100))
}

// Eviction of a leaf makes nobody's hits uncounted: the root knows the sum of the hits.
func TestALeafThatIsGone(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Date(2026, 3, 2, 0, 10, 0, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	hits := int64(0)
	fill := func() {
		for range 600 {
			take(t, c, signup, 1, "1000000/d")
			hits++
			now = now.Add(2 * time.Second)
		}
	}
	gone := func() {
		for _, key := range client.Keys(ctx, "*:*:*:*}P:*").Val() {
			require.NoError(t, client.Del(ctx, key).Err())
		}
	}
	fill()
	gone()
	require.Equal(t, hits, count(t, c, signup))
	fill()
	gone()
	fill()
	require.Equal(t, hits, count(t, c, signup))
	require.False(t, take(t, c, signup, 1, fmt.Sprintf("%d/d", hits)).Allowed)
	require.True(t, take(t, c, signup, 1, fmt.Sprintf("%d/d", hits+1)).Allowed)
	// The times of the evicted hits are lost: all leave with the last bucket.
	now = time.Date(2026, 3, 3, 0, 49, 0, 0, time.UTC)
	require.Equal(t, hits+1, count(t, c, signup))
}
