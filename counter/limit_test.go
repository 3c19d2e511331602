package counter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestParseLimitsRoundTrips(t *testing.T) {
	most := strings.Repeat("4/h, ", maxLimits-1) + "4/10ms" // as many as may be, and the shortest window
	for in, want := range map[string]string{
		"100/d":                                  "100/d",
		"2/s, 10/h, 100/d":                       "2/s, 10/h, 100/d",
		"2/1s,10/60m,100/24h":                    "2/s, 10/h, 100/d",
		"5/s,1000/7d":                            "5/s, 1000/7d",
		"5/90s":                                  "5/1m30s",
		"3/w":                                    "3/7d",
		"7/500ms":                                "7/500ms",
		"7/ms, 1/h":                              "",
		"0/d":                                    "0/d",
		" 1 / d ":                                "1/d",
		"9007199254740991/d":                     "9007199254740991/d",
		"4/1d12h":                                "4/1d12h",
		"4/10m":                                  "4/10m",
		"4/366d":                                 "4/366d",
		most:                                     most,
		"5/sec, 5/min, 10/hour, 100/day, 9/week": "5/s, 5/m, 10/h, 100/d, 9/7d",
		"5/second, 5/minute, 10/12hours, 100/2days, 900/1week": "5/s, 5/m, 10/12h, 100/2d, 900/7d",
	} {
		limits, err := ParseLimits(in)
		if want == "" {
			require.Error(t, err, in)
			continue
		}
		require.NoError(t, err, in)
		require.Equal(t, want, limits.String())
		require.Equal(t, limits, try.To(ParseLimits(limits.String()))(t))
	}
}

func TestParseLimitsNamesTheMistake(t *testing.T) {
	for in, want := range map[string]string{
		"":                        `limit "": want max/window`,
		"100":                     `limit "100": want max/window`,
		"x/d":                     `"x" is not a whole number`,
		"1.5/d":                   `"1.5" is not a whole number`,
		"100/":                    `limit "100/": want max/window`,
		"100/x":                   `counter: limit "100/x": window "x", want a unit (ms, s, m, h, d or w, or a word such as day) or a duration such as 90s`,
		"100/2x":                  `counter: limit "100/2x": window "2x", want a unit (ms, s, m, h, d or w, or a word such as day) or a duration such as 90s`,
		"100/month":               `limit "100/month": a limit by the calendar is such as 100 per month in Europe/Berlin`,
		"5/m, 1/day in Asia/Rome": `limit "1/day in Asia/Rome": a limit by the calendar is such as`,
		"5/h 20/d":                `counter: limits "5/h 20/d": want a comma between two limits`,
		"5/h; 20/d":               `counter: limits "5/h; 20/d": want a comma between two limits`,
		"5/m, 5/h 20/d":           `counter: limits "5/h 20/d": want a comma between two limits`,
		"100/-1d":                 "window -1d, want 10ms to 366d",
		"-1/d":                    "max -1, want 0 to",
		"9007199254740992/d":      "max 9007199254740992, want 0 to 9007199254740991",
		"99999999999999999999/d":  `counter: limit "99999999999999999999/d": max 99999999999999999999, want 0 to 9007199254740991`,
		"5/1 d":                   `counter: limit "5/1 d": window "1 d" has a blank in it, want one such as 1d or 1h30m`,
		"1/9ms":                   "window 9ms",
		"1/367d":                  "window 367d",
		"1/d,":                    `counter: limits "1/d,": a comma at the end`,
		" 1/d, ":                  `counter: limits " 1/d, ": a comma at the end`,
		",1/d":                    `counter: limits ",1/d": a comma with no limit before it`,
		"1/d,,2/w":                `counter: limits "1/d,,2/w": a comma with no limit before it`,
		"1/d/d":                   `counter: limits "1/d/d": want a comma between two limits`,
	} {
		require.ErrorContains(t, try.Err(ParseLimits(in)), want, "%q", in)
	}
	require.Panics(t, func() { MustLimits("x") })
}

// In a file limits are text, alone, in a list and as the key of a map, and what
// is written is read again.
func TestLimitsAreText(t *testing.T) {
	type file struct {
		Limits Limits
		One    Limit
		None   Limits
		Zero   Limit
		Plans  map[Limit]*Limits
	}
	free := MustLimits("5/90s")
	written := file{MustLimits("2/s, 10/h, 100/d"), Limit{Per: 90 * time.Second}, nil, Limit{}, map[Limit]*Limits{{Max: 1, Per: time.Hour}: &free}}
	text := try.To(json.Marshal(written))(t)
	require.JSONEq(t, `{"Limits": "2/s, 10/h, 100/d", "One": "0/1m30s", "None": "", "Zero": "", "Plans": {"1/h": "5/1m30s"}}`, string(text))
	read := file{None: free, Zero: free[0]}
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, written, read)

	for in, want := range map[string]string{
		`{"Limits": "100"}`:         `limit "100": want max/window`,
		`{"Limits": " "}`:           `limit "": want max/window`,
		`{"Limits": "1/367d"}`:      "window 367d, want 10ms to 366d",
		`{"One": "x/d"}`:            `"x" is not a whole number`,
		`{"One": "5/s, 100/d"}`:     `counter: limit "5/s, 100/d": 2 limits, want one`,
		`{"Plans": {"1/x": "1/s"}}`: `window "x", want a unit`,
	} {
		read := written
		require.ErrorContains(t, json.Unmarshal([]byte(in), &read), want, in)
		require.Equal(t, written, read, "%s: nothing is read in part", in)
	}
	for _, wrong := range []any{Limits{{Max: -1, Per: time.Hour}}, Limit{Max: 1}, Limit{Max: MaxCount + 1, Per: time.Hour}, make(Limits, maxLimits+1)} {
		require.ErrorContains(t, try.Err(json.Marshal(wrong)), "want ", "%v could not be read again", wrong)
	}
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
		text := try.To(limits.MarshalText())(t)
		again = nil
		require.NoError(t, again.UnmarshalText(text))
		require.Equal(t, limits, again)
	})
}
