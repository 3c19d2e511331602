package redis_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
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

// Redis holds the bytes that the picture of a value shows: those of the leaf, and
// then those of the root.
func TestRedisHoldsTheDrawnValue(t *testing.T) {
	addr := servertest.Redis(t)
	var now time.Time
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	for _, hit := range []string{"21:40:00", "22:03:00", "22:08:00", "22:12:00", "22:17:00", "22:21:00", "22:25:00", "22:26:00", "22:34:00",
		"22:38:00", "22:45:00", "22:52:00", "22:57:00", "23:10:00", "23:10:00", "23:10:00", "23:30:33"} {
		now = try.To(time.Parse(time.DateTime, "2026-03-01 "+hit))(t)
		v := try.To(c.Take(ctx, counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("100/d")))(t)
		require.True(t, v.Allowed)
	}
	server := raw(t, addr)
	const root = "{ab:16CTp:signup:ip:203.0.113.9}P"
	const leaf = root + ":492334.1"
	require.ElementsMatch(t, []string{root, leaf}, server.Keys(ctx, "*").Val())
	stored := hex.EncodeToString([]byte(server.Get(ctx, leaf).Val() + server.Get(ctx, root).Val()))
	field := regexp.MustCompile(`font-family="ui-monospace[^>]*>([0-9a-f]+)<`)
	for _, file := range []string{"value-light.svg", "value-dark.svg"} {
		picture := try.To(os.ReadFile("../../docs/pictures/" + file))(t)
		drawn := ""
		for _, found := range field.FindAllStringSubmatch(string(picture), -1) {
			drawn += found[1]
		}
		require.Equal(t, drawn, stored, file)
		require.Contains(t, string(picture), root)
		require.Contains(t, string(picture), leaf)
	}
}

// documented makes the calls of docs/storage.md, and two seconds pass.
func documented(t *testing.T, c *counter.Counter, now *time.Time) {
	require.NoError(t, c.Add(ctx, signup, 1))
	require.NoError(t, c.Add(ctx, signup, 2))
	*now = now.Add(2 * time.Second)
	require.NoError(t, c.Add(ctx, signup, 1))
}

// The example of docs/storage.md, byte by byte: other bytes are another format,
// see docs/release.md.
func TestStoredAsDocumented(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	documented(t, c, &now)

	client := raw(t, addr)
	names := try.To(client.Keys(ctx, "*").Result())(t)
	require.Equal(t, []string{"{ab:16CTp:signup:ip:203.0.113.9}P"}, names)
	value := try.To(client.Get(ctx, names[0]).Bytes())(t)
	require.Equal(t, "02"+"70827f27c780"+"cdfe9958"+"0004"+"00"+"000001"+"0000"+"0000"+"0000"+"cdfe9948"+"0003", hex.EncodeToString(value))

	require.NoError(t, c.Forget(ctx, signup))
	names = try.To(client.Keys(ctx, "*").Result())(t)
	require.ElementsMatch(t, []string{"{ab:!0d60}rhvEqoT671OS9TaJYfwphxWceqYOn1fiMgvhsWOvS2I", "{ab:!qhq0}sSrpmLCFBH4Hzu_IcAPFT0mKw1Yf8eM-Q54TzzSvOMI"}, names, "of the key and of the soft key")
	require.Equal(t, "9898db890a4b4e00", hex.EncodeToString(try.To(client.Get(ctx, names[0]).Bytes())(t)))
}

// A stretch is the longest of which the tier keeps four.
func TestATierOfFourStretches(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	fill(t, open(t, "redis://"+addr), "1s:4h", time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), 1_440, 10*time.Second)
	require.EqualValues(t, 5, raw(t, addr).DBSize(ctx).Val(), "the root, and a leaf for each hour")
}

// A leaf whose buckets but the first were undone is dense and empty. After
// an eviction of the leaf, the next hit must not make a leaf without a time to live.
func TestAnEmptyLeafThatIsGone(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Skew: -1, Now: func() time.Time { return now }})
	take(t, c, signup, 70000, "1000000/d") // more than fits into a sparse leaf
	now = now.Add(time.Second)
	var rest []counter.Verdict
	for range 200 {
		rest = append(rest, take(t, c, signup, 1, "1000000/d"))
		now = now.Add(time.Second)
	}
	for i := range rest {
		require.NoError(t, c.Refund(ctx, &rest[i]))
	}
	leaves := client.Keys(ctx, "*}P:*").Val()
	require.Len(t, leaves, 1)
	require.NoError(t, client.Del(ctx, leaves[0]).Err())
	take(t, c, signup, 1, "1000000/d")
	keys := client.Keys(ctx, "*").Val()
	require.Len(t, keys, 2)
	for _, key := range keys {
		require.Greater(t, client.PTTL(ctx, key).Val(), 24*time.Hour, key)
	}
	require.EqualValues(t, 70001, count(t, c, signup))
}

// Fine buckets that are kept for long are counted to the end, or refused: never
// forgotten because a root has no room for the buckets' positions.
func TestFineBucketsKeptForLong(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	for _, keep := range []string{"2d", "4d", "7d", "366d"} {
		ladder := mustLadder(t, strings.ReplaceAll("1ms:KEEP, 1s:KEEP, 1m:KEEP, 1h:KEEP", "KEEP", keep))
		now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		c := newCounter(t, s, counter.Config{Ladder: ladder, Exact: true, Now: func() time.Time { return now }})
		limits := counter.MustLimits("1000/" + keep)
		end := now.Add(ladder.At(0).Keep)
		if keep == "7d" || keep == "366d" {
			require.ErrorContains(t, try.Err(c.Take(ctx, signup, 1, limits)), "buckets of 1ms are needed at a time, want at most 432000000", keep)
			require.ErrorContains(t, c.Add(ctx, signup, 1), "keep them for a shorter time", keep)
			continue
		}
		for i := int64(999); now.Before(end); i-- {
			require.Equal(t, i, take(t, c, signup, 1, "1000/"+keep).Remaining, "%s after %s", keep, now)
			now = now.Add(time.Hour)
		}
		// From here on as many hits leave as come; a single hit may be on the edge.
		want := 1000 - int64(ladder.At(0).Keep/time.Hour)
		for range 300 {
			require.InDelta(t, want, take(t, c, signup, 1, "1000/"+keep).Remaining, 1, "%s after %s", keep, now)
			now = now.Add(time.Hour)
		}
	}
}

// A hit whose sum needs wider numbers leaves earlier hits in the same buckets, from any
// caller, by any clock.
func TestWiderSumsForgetNothing(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	ladder := mustLadder(t, "1ms:4d, 1s:4d, 1m:4d, 1h:4d")
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	c := newCounter(t, s, counter.Config{Ladder: ladder, Now: func() time.Time { return now }})
	late := newCounter(t, s, counter.Config{Ladder: ladder, Now: func() time.Time { return now.Add(-2 * 24 * time.Hour) }})
	take(t, c, signup, 1, "100000/4d")
	take(t, late, signup, 70000, "100000/4d")
	require.EqualValues(t, 100000-70002, take(t, c, signup, 1, "100000/4d").Remaining)
}

// A minute is the sum of its seconds. After a part of the seconds was dropped, the
// minute has no count, even for an addition to a later second: the label is stale, and
// nothing is added. With AnyLabel the hit is added, and the remaining seconds count.
func TestAMinuteThatWasDroppedInPart(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	ladder := mustLadder(t, "1s:1h, 1m:1h")
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	add := func(at time.Time, any bool) ([]int64, error) {
		op := adding(forgetKey, ladder, at, 1)
		op.AnyLabel = any
		err := s.Do(ctx, op)
		return []int64{op.Add[0].Count, op.Add[1].Count}, err
	}
	for _, row := range []struct {
		second int64
		any    bool
		counts []int64 // of the second and of the minute; nil: not looked at
	}{
		{10, false, nil}, {10, false, nil}, {12, false, nil}, {3 * 3600, false, nil}, {3*3600 + 1, false, nil}, {65, false, nil},
		{9, false, []int64{0, 0}}, {10, false, []int64{0, 0}}, {11, false, []int64{0, 0}}, {40, false, []int64{0, 0}},
		{40, true, []int64{1, 1}}, {65, false, []int64{2, 2}}, {9, true, []int64{1, 2}}, // the one in the second 40, and this
	} {
		counts, err := add(noon.Add(time.Duration(row.second)*time.Second), row.any)
		if stale := row.counts != nil && row.counts[0] == 0; stale {
			require.ErrorIs(t, err, backend.ErrStaleLabel, row.second)
		} else {
			require.NoError(t, err)
		}
		if row.counts != nil {
			require.Equal(t, row.counts, counts, row.second)
		}
	}
}

// The label of a window that begins in the last second that was dropped is stale.
func TestAWindowAtTheEdge(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	f := forgetting("1s:1h, 1m:1h", noon)
	for _, second := range []time.Duration{10, 12, 3 * 3600, 3*3600 + 1, 65} {
		require.NoError(t, s.Do(ctx, adding(forgetKey, f.Ladder, noon.Add(second*time.Second), 1)))
	}
	for second, want := range map[time.Duration]error{12: backend.ErrStaleLabel, 13: nil} {
		err := s.Take(ctx, &backend.TakeRequest{Now: noon.Add(time.Hour), Exact: true, Keys: []backend.TakeKey{{Key: []byte(forgetKey), Ladder: f.Ladder, TTLs: f.TTLs,
			N: 1, Windows: []backend.Window{{Max: 9, Reach: time.Hour - second*time.Second}}}}})
		require.ErrorIs(t, err, want, int64(second))
	}
}

// A second is kept for a minute more than its time to live, for labels a minute old. Then
// it is dropped, and neither a window nor an addition may begin there.
func TestALabelAMinuteOld(t *testing.T) {
	s := open(t, "redis://"+servertest.Redis(t))
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	f := forgetting("1s:1h", noon)
	for newest, want := range map[time.Duration]error{3665: nil, 3680: backend.ErrStaleLabel} {
		key := fmt.Sprint(newest)
		for _, second := range []time.Duration{10, 12, newest, newest + 1, newest - 20} {
			require.NoError(t, s.Do(ctx, adding(key, f.Ladder, noon.Add(second*time.Second), 1)))
		}
		err := s.Take(ctx, &backend.TakeRequest{Now: noon.Add((newest - 60) * time.Second), Exact: true, Keys: []backend.TakeKey{{Key: []byte(key), Ladder: f.Ladder, TTLs: f.TTLs,
			N: 1, Windows: []backend.Window{{Max: 9, Reach: (newest - 60 - 11) * time.Second}}}}})
		require.ErrorIs(t, err, want, int64(newest))
		require.ErrorIs(t, s.Do(ctx, adding(key, f.Ladder, noon.Add(12*time.Second), 1)), want, int64(newest))
	}
}
