package tiers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestParseRoundTrips(t *testing.T) {
	for in, want := range map[string]string{
		"1s:1d, 1m:1d, 1h:30d": "1s:1d, 1m:1d, 1h:30d",
		"1s:24h,60s:1d,60m:1w": "1s:1d, 1m:1d, 1h:7d",
		" 100ms : 1m ":         "100ms:1m",
		"1ms:1ms,1d:366d":      "1ms:1ms, 1d:366d",
	} {
		l := try.To(Parse(in))(t)
		require.Equal(t, want, l.String())
		require.Equal(t, l, try.To(Parse(l.String()))(t))
	}
	require.Equal(t, "1s:1d, 1m:1d, 1h:1d", Default.String())
}

// In a file a ladder is text, and what is written is read again.
func TestLaddersAreText(t *testing.T) {
	type file struct{ Ladder, None Ladder }
	written := file{Ladder: Default}
	text := try.To(json.Marshal(written))(t)
	require.JSONEq(t, `{"Ladder": "1s:1d, 1m:1d, 1h:1d", "None": ""}`, string(text))
	read := file{None: Default}
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, written, read)

	for in, want := range map[string]string{
		`{"Ladder": "1s"}`:          `tiers: "1s": want width:keep`,
		`{"Ladder": " "}`:           `tiers: "": want width:keep`,
		`{"Ladder": "1m:1d,1s:1d"}`: "width 1s comes after 1m, want the finest first",
	} {
		require.ErrorContains(t, json.Unmarshal([]byte(in), &read), want, in)
		require.Equal(t, written, read, in)
	}
	require.Equal(t, "1s:1d, 1m:1d, 1h:1d", Default.String(), "reading into a copy of Default leaves Default alone")
}

func TestParseNamesTheMistake(t *testing.T) {
	for in, want := range map[string]string{
		"":              `"": want width:keep`,
		"1s":            `"1s": want width:keep`,
		"1s:1d,":        `"": want width:keep`,
		"x:1d":          `width: duration "x"`,
		"1s:y":          `keep: duration "y"`,
		"60s:1d,90s:1d": "width 1m30s is not a multiple of 1m",
		"1s:1d,1s:1d":   "width 1s stands there twice",
		"1m:1d,1s:1d":   "width 1s comes after 1m",
		"1s:1d,1m:1h":   "1m:1h is kept for less than the finer 1s:1d",
		"1h:1m":         "1h:1m is kept for less than its own width",
		"0s:1d":         "width 0s is below 1ms",
		"-1s:1d":        "width -1s is below 1ms",
		"999us:1d":      "below 1ms",
		"1s:367d":       "kept for more than 366d",
		"1s:1d:1d":      `keep: duration "1d:1d"`,
		"1s:9d,2s:9d,4s:9d,8s:9d,16s:9d,32s:9d,64s:9d,128s:9d,256s:9d": "9 tiers, want at most 8",
	} {
		_, err := Parse(in)
		require.ErrorContains(t, err, want, "%q", in)
		require.ErrorContains(t, err, "tiers: ")
	}
	require.ErrorContains(t, try.Err(New()), "at least one tier")
}

func TestFor(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		windows []time.Duration
		want    string
	}{
		{nil, "1s:1d, 1m:1d, 1h:1d"},
		{[]time.Duration{day}, "1s:1d, 1m:1d, 1h:1d"},
		{[]time.Duration{time.Minute, time.Hour, day}, "1s:1d, 1m:1d, 1h:1d"},
		{[]time.Duration{time.Minute}, "1s:1m, 10s:1m"},
		{[]time.Duration{2*time.Minute - 1}, "1s:1m59.999999999s, 10s:1m59.999999999s"},
		{[]time.Duration{2 * time.Minute}, "1s:2m, 1m:2m"},
		{[]time.Duration{20 * time.Second}, "1s:20s, 10s:20s"},
		{[]time.Duration{20*time.Second - 1}, "50ms:19.999999999s, 1s:19.999999999s"},
		{[]time.Duration{time.Second}, "50ms:1s, 1s:1s"},
		{[]time.Duration{time.Second - 1}, "5ms:999.999999ms"},
		{[]time.Duration{100 * time.Millisecond}, "5ms:100ms"},
		{[]time.Duration{100*time.Millisecond - 1}, "1ms:99.999999ms"},
		{[]time.Duration{time.Second, 20 * time.Second}, "50ms:1s, 1s:20s, 10s:20s"},
		{[]time.Duration{5 * time.Second, 7 * day}, "50ms:5s, 1s:7d, 1m:7d, 1h:7d, 1d:7d"},
		{[]time.Duration{50 * time.Millisecond}, "1ms:50ms"},
		{[]time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second, time.Hour}, "1ms:50ms, 5ms:500ms, 50ms:5s, 1s:1h, 1m:1h, 1h:1h"},
		{[]time.Duration{30 * day}, "1s:30d, 1m:30d, 1h:30d, 1d:30d"},
		{[]time.Duration{-1}, "1ms:10ms"},
		{[]time.Duration{1 << 62}, "1s:366d, 1m:366d, 1h:366d, 1d:366d"},
	} {
		l := For(row.windows...)
		require.Equal(t, row.want, l.String())
		_, err := New(l.Tiers()...)
		require.NoError(t, err, "For makes only what New accepts")
		for _, w := range row.windows {
			if w < MinWindow || w > MaxWindow {
				continue
			}
			fine, err := l.Finest(w)
			require.NoError(t, err, "%s must count %v", l, w)
			require.LessOrEqual(t, l.At(fine).Width, max(w/20, MinWidth), "%s for %v", l, w)
			if w >= 20*time.Second {
				require.Equal(t, time.Second, l.At(fine).Width)
			}
		}
	}
}

func TestLadderIsImmutable(t *testing.T) {
	tiers := []Tier{{time.Second, time.Hour}}
	l := try.To(New(tiers...))(t)
	tiers[0].Keep = time.Minute
	l.Tiers()[0].Keep = time.Minute
	require.Equal(t, Tier{time.Second, time.Hour}, l.At(0))
	require.Equal(t, 1, l.Len())
}

func TestFinestNamesTheWindow(t *testing.T) {
	l := mustParse(t, "1s:1m, 1h:1d")
	for window, want := range map[time.Duration]string{
		0:                    "a window of 0s",
		-time.Second:         "a window of -1s",
		9 * time.Millisecond: "want 10ms to 366d",
		367 * 24 * time.Hour: "a window of 367d",
		48 * time.Hour:       "a window of 2d is longer than any tier",
		10 * time.Minute:     "a window of 10m would be read in buckets of 1h",
		time.Second / 2:      "a window of 500ms would be read in buckets of 1s",
	} {
		require.ErrorContains(t, try.Err(l.Finest(window)), want)
		require.ErrorContains(t, try.Err(l.Cover(time.Unix(0, 0), window, 0)), want)
	}
	require.ErrorContains(t, try.Err(l.Cover(time.Unix(0, 0), time.Minute, -1)), "skew -1ns")
	require.Error(t, try.Err((Ladder{}).Finest(time.Hour)))
	require.Equal(t, -1, Ladder{}.Decision(time.Hour))
}

func TestBaseIsTheFinestTierOfOneKeep(t *testing.T) {
	for s, want := range map[string][]int{
		"1s:1d, 1m:1d, 1h:1d":                  {0, 0, 0},
		"1s:1h, 1m:1h, 1h:1d, 1d:7d":           {0, 0, 2, 3},
		"1s:1m, 1m:1h, 10m:1h, 1h:30d, 1d:30d": {0, 1, 1, 3, 3},
		"10s:1d":                               {0},
	} {
		l := try.To(Parse(s))(t)
		var got []int
		for i := range l.Len() {
			got = append(got, l.Base(i))
		}
		require.Equal(t, want, got, s)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1s:1d, 1m:1d, 1h:30d", "100ms:1m", "1ms:366d,1d:366d", "1s:1d,1s:1d", "x", ":", "9w:1d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := Parse(s)
		if err != nil {
			return
		}
		again := try.To(Parse(l.String()))(t)
		require.Equal(t, l, again)
		require.Positive(t, l.Len())
		require.LessOrEqual(t, l.Len(), MaxTiers)
	})
}
