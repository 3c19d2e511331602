package counter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseLimitsRoundTrips(t *testing.T) {
	for in, want := range map[string]string{
		"100/d":               "100/d",
		"2/s, 10/h, 100/d":    "2/s, 10/h, 100/d",
		"2/1s,10/60m,100/24h": "2/s, 10/h, 100/d",
		"5/s,1000/7d":         "5/s, 1000/7d",
		"5/90s":               "5/1m30s",
		"3/w":                 "3/7d",
		"7/500ms":             "7/500ms",
		"7/ms, 1/h":           "",
		"0/d":                 "0/d",
		" 1 / d ":             "1/d",
		"9007199254740991/d":  "9007199254740991/d",
		"4/1d12h":             "4/1d12h",
		"4/10m":               "4/10m",
		"4/366d":              "4/366d",
	} {
		limits, err := ParseLimits(in)
		if want == "" {
			require.Error(t, err, in)
			continue
		}
		require.NoError(t, err, in)
		require.Equal(t, want, limits.String())
		again, err := ParseLimits(limits.String())
		require.NoError(t, err)
		require.Equal(t, limits, again)
	}
	require.Equal(t, []time.Duration{time.Second, 24 * time.Hour}, MustLimits("5/s,1/d").Windows())
}

func TestParseLimitsNamesTheMistake(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `limit "": want max/window`,
		"100":                    `limit "100": want max/window`,
		"x/d":                    `"x" is not a whole number`,
		"1.5/d":                  `"1.5" is not a whole number`,
		"100/":                   `duration ""`,
		"100/x":                  `duration "1x"`,
		"100/-1d":                "window -1d, want 10ms to 366d",
		"-1/d":                   "max -1, want 0 to",
		"9007199254740992/d":     "max 9007199254740992, want 0 to 9007199254740991",
		"99999999999999999999/d": "is not a whole number",
		"1/9ms":                  "window 9ms",
		"1/367d":                 "window 367d",
		"1/d,":                   `limit ""`,
		"1/d/d":                  `duration "1d/d"`,
	} {
		_, err := ParseLimits(in)
		require.ErrorContains(t, err, want, "%q", in)
	}
	require.Panics(t, func() { MustLimits("x") })
}

func FuzzParseLimits(f *testing.F) {
	for _, s := range []string{"2/s, 10/h, 100/d", "5/90s", "1000/7d", "0/d", "1/1d12h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		limits, err := ParseLimits(s)
		if err != nil {
			return
		}
		again, err := ParseLimits(limits.String())
		require.NoError(t, err, "%q was read and written as %q", s, limits)
		require.Equal(t, limits, again)
	})
}
