// Package dur reads and writes durations the way people say them in limits
// and ladders: "100ms", "90s", "1h30m", and beyond [time.ParseDuration] whole
// days and weeks ("1d", "2w", "1d12h"). Units may be words ("5min",
// "2weeks"). What [Format] writes, [Parse] reads.
package dur

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Day and Week are spans of 24 and 168 hours: no calendar, no time zone.
const (
	Day  = 24 * time.Hour
	Week = 7 * Day
)

// letters turns the words for units into their letters.
var letters = strings.NewReplacer("seconds", "s", "second", "s", "secs", "s", "sec", "s", "minutes", "m", "minute", "m", "mins", "m", "min", "m",
	"hours", "h", "hour", "h", "days", "d", "day", "d", "weeks", "w", "week", "w")

// Parse reads a duration. It is an error if s is empty, has no unit, or does
// not fit into a [time.Duration].
func Parse(s string) (time.Duration, error) {
	rest, sign := s, time.Duration(1)
	if strings.HasPrefix(rest, "-") {
		rest, sign = rest[1:], -1
	}
	rest = letters.Replace(rest)
	var total time.Duration
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", Week}, {"d", Day}} {
		number, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil || time.Duration(n) > (math.MaxInt64-total)/unit.length {
			return 0, fmt.Errorf("duration %q: want whole weeks and days before hours, such as 1d12h, at most 292 years", s)
		}
		total += time.Duration(n) * unit.length
		if after == "" {
			return sign * total, nil
		}
		rest = after
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") || d > math.MaxInt64-total {
		return 0, fmt.Errorf("duration %q: want a number and a unit (ms, s, m, h, d, w), such as 30s, 24h or 7d", s)
	}
	return sign * (total + d), nil
}

// Format writes d as short as it can be said exactly: "90s" is "1m30s", 24
// hours are "1d", 168 are "7d" (weeks are read, not written).
func Format(d time.Duration) string {
	if d < 0 {
		if d == math.MinInt64 {
			return d.String()
		}
		return "-" + Format(-d)
	}
	days, rest := d/Day, d%Day
	if days == 0 {
		return short(rest)
	}
	if rest == 0 {
		return strconv.FormatInt(int64(days), 10) + "d"
	}
	return strconv.FormatInt(int64(days), 10) + "d" + short(rest)
}

// short is [time.Duration.String] without its trailing zero units: "1h0m0s"
// is "1h", but "10s" stays "10s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
