package tiers

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func parsed(t *testing.T, text string) Period { return try.To(ParsePeriod(text))(t) }

// naive are the first instants of all periods in some years, by a walk minute by minute:
// a period begins when the latest date that the clocks have shown is the first of one.
func naive(p Period, from, to time.Time) (starts []time.Time) {
	var latest time.Time
	begins := func(d time.Time) bool {
		switch {
		case p.unit == "day":
			return true
		case p.unit == "week":
			return d.Weekday() == time.Monday
		}
		last := d.AddDate(0, 0, 1).Day() == 1
		return d.Day() == p.from || last && p.from > d.Day()
	}
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		y, m, d := at.In(p.zone.Location).Date()
		date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		if latest.IsZero() {
			latest = date
		}
		for due := false; date.After(latest); {
			latest = latest.AddDate(0, 0, 1)
			if due = due || begins(latest); due && !date.After(latest) {
				starts = append(starts, at)
			}
		}
	}
	return starts
}

// The periods are those of a walk minute by minute: where days have 23 and 25 hours, where
// midnight is skipped or comes twice, where clocks are set back to the day before, and
// where a day is skipped.
func TestPeriodsAreThoseOfAWalk(t *testing.T) {
	for _, test := range []struct{ period, year string }{
		{"day in UTC", "2024"}, {"day in Europe/Berlin", "2026"}, {"week in Europe/London", "2026"}, {"month from 15 in Europe/Berlin", "2026"},
		{"month from 31 in Asia/Kolkata", "2024"}, {"month from 29 in Australia/Lord_Howe", "2025"}, {"month from 30 in UTC", "2023"},
		{"day in America/Sao_Paulo", "2018"}, // midnight is skipped, and comes twice
		{"day in Africa/Cairo", "2024"}, {"day in America/Havana", "2024"},
		{"day in America/St_Johns", "2006"}, // one minute after midnight back to the day before
		{"day in Pacific/Apia", "2011"}, {"week in Pacific/Apia", "2011"}, {"month from 30 in Pacific/Apia", "2011"},
		{"day in Antarctica/Troll", "2024"}, {"day in Antarctica/Casey", "2010"},
	} {
		p := parsed(t, test.period)
		from := try.To(time.Parse("2006", test.year))(t)
		starts := naive(p, from, from.AddDate(1, 0, 15))
		require.Greater(t, len(starts), 11)
		for i := range starts[1:] {
			start, end := starts[i].UnixNano(), starts[i+1].UnixNano()
			require.LessOrEqual(t, time.Duration(end-start), p.Longest(), "%s from %s", p, starts[i])
			for _, at := range []int64{start, start + 1, start + rand.Int64N(end-start), end - 1} {
				s, e := p.Span(at)
				require.Equal(t, [2]int64{start, end}, [2]int64{s, e}, "%s: %s", p, time.Unix(0, at).UTC())
			}
		}
	}
}

// In every year for which there are labels periods follow each other without a gap, and
// none is longer than the longest.
func TestPeriodsFollowEachOther(t *testing.T) {
	for _, text := range []string{"day in Europe/Berlin", "week in America/New_York", "month from 31 in Asia/Kathmandu", "month in UTC"} {
		p := parsed(t, text)
		for range 200 {
			at := time.Date(1970+rand.IntN(279), 1, 1+rand.IntN(365), rand.IntN(24), rand.IntN(60), 0, rand.IntN(1e9), time.UTC).UnixNano()
			start, end := p.Span(at)
			require.True(t, start <= at && at < end && end-start <= int64(p.Longest()), "%s: %d in %d to %d", p, at, start, end)
			before, ends := p.Span(start - 1)
			require.Equal(t, start, ends, "%s after %d", p, before)
			begins, _ := p.Span(end)
			require.Equal(t, end, begins)
		}
	}
	for _, year := range []int{1700, 1800, 1900, 1969} {
		at := time.Date(year, 3, 1, 12, 0, 0, 0, time.UTC)
		start, end := parsed(t, "month in UTC").Span(at.UnixNano())
		require.Equal(t, []int64{time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano(), time.Date(year, 4, 1, 0, 0, 0, 0, time.UTC).UnixNano()}, []int64{start, end})
	}
}

func TestPeriodsThatATierCounts(t *testing.T) {
	for text, widths := range map[string]string{ // widths that fit, and one that does not
		"day in UTC":                    "1h 24h 7h",
		"month in Europe/Berlin":        "1m 1h 24h",
		"day in Asia/Kolkata":           "1m 30m 1h",
		"day in Asia/Kathmandu":         "1m 15m 30m",
		"week in Australia/Lord_Howe":   "1m 30m 1h",
		"month from 15 in Africa/Dakar": "1m 24h 168h",
	} {
		p, all := parsed(t, text), strings.Fields(widths)
		for i, text := range all {
			width := try.To(time.ParseDuration(text))(t)
			require.Equal(t, i < len(all)-1, p.Fits(width), "%s in buckets of %s", p, width)
		}
	}
	for _, zone := range []string{"Africa/Monrovia", "Pacific/Kiritimati", "Pacific/Chatham", "America/St_Johns"} {
		require.True(t, parsed(t, "day in "+zone).Fits(15*time.Minute), "%s, if not before 1980", zone)
	}
	p := parsed(t, "day in Europe/Berlin")
	long := time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC).UnixNano() // of 25 hours
	for _, test := range []struct {
		tier Tier
		fits bool
	}{{Tier{time.Hour, 25 * time.Hour}, true}, {Tier{time.Hour, 24 * time.Hour}, false}, {Tier{24 * time.Hour, 48 * time.Hour}, false}} {
		start, fits := p.Start(long, test.tier)
		require.Equal(t, test.fits, fits, "%s", test.tier)
		require.Equal(t, time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC), time.Unix(0, start).UTC())
	}
	require.Equal(t, 24*time.Hour, parsed(t, "day in UTC").Longest())
	require.Equal(t, 31*24*time.Hour+time.Hour, parsed(t, "month in Asia/Tokyo").Longest(), "rules may come that set the clocks back")
	require.Equal(t, 26*time.Hour, parsed(t, "day in Antarctica/Troll").Longest())
}

func TestParsePeriod(t *testing.T) {
	for text, want := range map[string]string{
		"day in UTC": "day in UTC", " week  in Asia/Tokyo ": "week in Asia/Tokyo", "month from 1 in UTC": "month in UTC", "month from 15 in Europe/Berlin": "month from 15 in Europe/Berlin",
	} {
		p := parsed(t, text)
		require.Equal(t, want, p.String())
		require.True(t, p == parsed(t, want), "equal periods are ==")
		require.False(t, p.IsZero())
	}
	require.Empty(t, Period{}.String())
	for text, says := range map[string]string{
		"":                      "want day, week or month",
		"hour":                  "want day, week or month",
		"month from 0":          "from 0, want a month from 1 to 31",
		"month from x":          "from x, want a month from 1 to 31",
		"week from 2":           "from 2, want a month from 1 to 31",
		"day in Mars/Olympus":   `unknown time zone "Mars/Olympus", want a name such as UTC or Europe/Berlin`,
		"day in Local":          `unknown time zone "Local"`,
		"day in Europe/Berlin,": `unknown time zone "Europe/Berlin,"`,
		"day on Monday":         `want one time zone after day, such as day in UTC or day in Europe/Berlin`,
		"month from":            `want one time zone after month`,
		"month from 15":         `want one time zone after month from 15, such as month from 15 in UTC`,
	} {
		require.ErrorContains(t, try.Err(ParsePeriod(text)), says, "%q", text)
	}
}

func FuzzParsePeriod(f *testing.F) {
	f.Add("month from 15 in Europe/Berlin")
	f.Add("day in ../x")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePeriod(text)
		if err != nil {
			return
		}
		again := try.To(ParsePeriod(p.String()))(t)
		require.True(t, p == again, "%q is %q", text, p)
		start, end := p.Span(0)
		require.True(t, start <= 0 && 0 < end)
	})
}
