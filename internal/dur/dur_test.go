package dur

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseReadsWhatPeopleWrite(t *testing.T) {
	for _, row := range []struct {
		in   string
		want time.Duration
	}{
		{"100ms", 100 * time.Millisecond},
		{"30s", 30 * time.Second},
		{"1m30s", 90 * time.Second},
		{"24h", Day},
		{"7d", Week},
		{"2w", 2 * Week},
		{"1w1d", 8 * Day},
		{"1d12h", 36 * time.Hour},
		{"366d", 366 * Day},
		{"1.5h", 90 * time.Minute},
		{"-1d", -Day},
		{"-1d12h", -36 * time.Hour},
		{"0s", 0},
		{"5sec", 5 * time.Second},
		{"30seconds", 30 * time.Second},
		{"1min", time.Minute},
		{"1h30min", 90 * time.Minute},
		{"24hours", Day},
		{"1hour", time.Hour},
		{"1day", Day},
		{"2weeks", 2 * Week},
		{"1day12hours", 36 * time.Hour},
	} {
		got, err := Parse(row.in)
		require.NoError(t, err, row.in)
		require.Equal(t, row.want, got, row.in)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, in := range []string{
		"", "-", "1", "d", "xd", "1.5d", "1d2", "1h1d", "1d1w", "--1d", "1d-1h", "1d+1h", "-+1h", " 1d", "1 d",
		"106752d", "15251w", "106751d24h", "99999999999999999999d", "1y", "min", "1month", "1mins1", "1da",
	} {
		_, err := Parse(in)
		require.Error(t, err, "%q", in)
		require.Contains(t, err.Error(), "duration", in)
	}
}

func TestFormatIsShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1ms": time.Millisecond, "10s": 10 * time.Second, "1m": time.Minute, "10m": 10 * time.Minute,
		"1m30s": 90 * time.Second, "1h": time.Hour, "20h": 20 * time.Hour, "1h0m1s": time.Hour + time.Second,
		"1d": Day, "7d": Week, "1d30m": Day + 30*time.Minute, "-1d": -Day, "1d10s": Day + 10*time.Second,
	} {
		require.Equal(t, want, Format(d))
	}
	require.NotPanics(t, func() { Format(math.MinInt64) })
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1d12h", "90s", "-2w", "1.5h", "100ms", "1d0.5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(Format(d))
		require.NoError(t, err)
		require.Equal(t, d, again, "%q was read as %v and written as %q", s, d, Format(d))
	})
}
