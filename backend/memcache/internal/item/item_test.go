package item

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func TestItemNames(t *testing.T) {
	for _, row := range []struct {
		key    string
		bucket tiers.Bucket
		want   string
	}{
		{"ab:1wxyz:signup:ip:203.0.113.9", tiers.Bucket{Width: time.Minute, Index: 29454210}, "ab:1wxyz:signup:ip:203.0.113.9|1m29454210"},
		{"k", tiers.Bucket{Width: time.Second, Index: 0}, "k|1s0"},
		{"k", tiers.Bucket{Width: time.Hour, Index: -1}, "k|1h-1"},
		{"k", tiers.Bucket{Width: 24 * time.Hour, Index: 20454}, "k|1d20454"},
		{"k", tiers.Bucket{Width: 100 * time.Millisecond, Index: 17}, "k|100ms17"},
		{"k|1m1", tiers.Bucket{Width: 90 * time.Second, Index: 1}, "k|1m1|1m30s1"},
	} {
		require.Equal(t, row.want, Name(row.key, row.bucket))
	}
}

// Different buckets of different keys have different names, even of keys that
// look like names.
func TestItemNamesAreInjective(t *testing.T) {
	from := map[string]string{}
	for _, key := range []string{"k", "k|", "k|1s", "k|1s1", "k|1s1|1m", "k1", "k|1", "1s", "|"} {
		for _, width := range []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second, 10 * time.Second, 11 * time.Second, 61 * time.Second,
			time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour, 25 * time.Hour, 240 * time.Hour, 1500 * time.Millisecond} {
			for _, index := range []int64{0, 1, -1, 11, 111, 10, 101, math.MaxInt64, math.MinInt64} {
				b := tiers.Bucket{Width: width, Index: index}
				name, origin := Name(key, b), fmt.Sprint(key, int64(width), " ", index)
				require.Empty(t, from[name], "%s is also the name of %s", name, origin)
				from[name] = origin
			}
		}
	}
}

func TestItemNamesFit(t *testing.T) {
	key := strings.Repeat("k", maxKey)
	require.NoError(t, CheckKey(key))
	// The longest possible widths and indexes.
	for width := tiers.MaxWindow; width > 365*24*time.Hour; width -= 7*time.Second + 7919*7919/1001 {
		require.LessOrEqual(t, len(Name(key, tiers.Bucket{Width: width, Index: math.MinInt64})), 247)
	}
	for _, bad := range []string{"", key + "k", "a b", "a\r\nflush_all\r\n", "ä", "a\x7f", "a\x00"} {
		require.ErrorContains(t, CheckKey(bad), "memcache: ", "%q", bad)
	}
}

func TestCount(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "7": 7, "9 ": 9, "9     ": 9, "9007199254740991": backend.MaxCount,
		"9007199254740992": backend.MaxCount, "9223372036854775807": backend.MaxCount} {
		got, err := Count([]byte(in))
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", " ", " 9", "-1", "+1", "1_0", "0x1", "nine", "9\n", "9223372036854775808", "18446744073709551616"} {
		require.ErrorContains(t, try.Err(Count([]byte(in))), "holds ", "%q", in)
	}
}

func TestExpiry(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Unix(1_800_000_000, 900_000_000) // 2027
	for _, row := range []struct {
		ttl  time.Duration
		want int32
	}{
		{1, 3},
		{time.Second, 4},
		{time.Second + 1, 5},
		{10 * time.Second, 22},
		{time.Minute, 122},
		{time.Hour, 3662},
		{30*day - 63*time.Second, 2_592_000 - 1},
		{30*day - 62*time.Second, 2_592_000},
		// A relative TTL of 30 days and a second would be a date in 1970.
		{30*day - 62*time.Second + 1, 1_800_000_000 + 2_592_000 + 1},
		{30 * day, 1_800_000_000 + 2_592_000 + 63},
		{366 * day, 1_800_000_000 + 366*86_400 + 63},
	} {
		got, err := Expiry(row.ttl, now)
		require.NoError(t, err, row.ttl)
		require.Equal(t, row.want, got, row.ttl)
	}
	for _, ttl := range []time.Duration{0, -1} {
		require.ErrorContains(t, try.Err(Expiry(ttl, now)), "memcache: TTL")
	}
	// A 32-bit date ends in January 2038.
	late := time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
	require.ErrorContains(t, try.Err(Expiry(30*day, late)), "memcache: TTL 30d ends after 2038-01-19")
	require.EqualValues(t, 29*86_400+62, try.To(Expiry(29*day, late))(t))
	last := try.To(Expiry(math.MaxInt32*time.Second-time.Duration(late.Unix())*time.Second-63*time.Second+24*day, late.Add(-24*day)))(t)
	require.Positive(t, last)
}
