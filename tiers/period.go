package tiers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/dur"
)

// Period is a calendar period of a time zone: the days, the weeks from Monday, or the
// months from a day of the month. Each period ends where the next one begins. Equal
// Periods are equal by ==. The zero Period is no period.
//
// A period begins at the first instant at which the clocks of the zone show its first
// date: at one o'clock if midnight is skipped, and at the first of two midnights. Clocks
// that are set back to the date before do not return to the period before. A month from
// the 29th, 30th or 31st begins on the last day of a shorter month. A day that a zone
// skips, as Pacific/Apia did in 2011, is no period.
//
// The rules of a zone come from the machine, or else from package time/tzdata, which a
// program for js does not have. All processes that count a key must have the same rules.
type Period struct{ *period }

type period struct {
	text string // of String
	unit string // day, week or month
	from int    // the day on which a month begins
	zone *zone
	last atomic.Pointer[span] // the last period that was asked for
}

// zone is a time zone.
type zone struct {
	*time.Location
	back time.Duration // the most by which a period may be longer than its days
	step int64         // all offsets from UTC since 1980, and a day, are multiples of step, in nanoseconds
}

type span struct{ start, end int64 }

// known holds all zones by name, and all periods by text. There are no more than the
// zones that exist let there be.
var known struct{ zones, periods sync.Map }

// ParsePeriod reads what [Period.String] writes: "day in UTC", "week in Asia/Tokyo",
// "month from 15 in Europe/Berlin".
func ParsePeriod(s string) (Period, error) {
	words := strings.Fields(s)
	if len(words) == 0 || !slices.Contains([]string{"day", "week", "month"}, words[0]) {
		return Period{}, fmt.Errorf("tiers: period %q: want day, week or month", s)
	}
	p := &period{unit: words[0], text: words[0], from: 1}
	words = words[1:]
	if len(words) > 1 && words[0] == "from" {
		var err error
		if p.from, err = strconv.Atoi(words[1]); err != nil || p.from < 1 || p.from > 31 || p.unit != "month" {
			return Period{}, fmt.Errorf("tiers: period %q: from %s, want a month from 1 to 31", s, words[1])
		}
		words = words[2:]
	}
	if p.from > 1 {
		p.text += " from " + strconv.Itoa(p.from)
	}
	if len(words) != 2 || words[0] != "in" {
		return Period{}, fmt.Errorf("tiers: period %q: want one time zone after %s, such as %s in UTC or %s in Europe/Berlin", s, p.text, p.text, p.text)
	}
	var err error
	if p.zone, err = zoneOf(words[1]); err != nil {
		return Period{}, fmt.Errorf("tiers: period %q: %w, want a name such as UTC or Europe/Berlin", s, err)
	}
	p.text += " in " + words[1]
	same, _ := known.periods.LoadOrStore(p.text, p)
	return Period{same.(*period)}, nil
}

// zoneOf returns the zone of a name.
func zoneOf(name string) (*zone, error) {
	if z, ok := known.zones.Load(name); ok {
		return z.(*zone), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || loc == time.Local {
		return nil, fmt.Errorf("unknown time zone %q", name)
	}
	z := &zone{Location: loc, step: int64(dur.Day)}
	if name != "UTC" {
		z.back = time.Hour // of rules that may yet come
	}
	start := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC).In(loc)
	_, before := start.Zone()
	for t := start; !t.IsZero() && t.Year() < 2100; t = nextOffset(t) {
		_, offset := t.Zone()
		z.back = max(z.back, time.Duration(before-offset)*time.Second)
		z.step, before = gcd(z.step, int64(offset)*int64(time.Second)), offset
	}
	same, _ := known.zones.LoadOrStore(name, z)
	return same.(*zone), nil
}

// nextOffset returns the end of a time from t on with one offset from UTC; zero: there is
// none. Go takes the last day of a leap year after 2037 for a day after the end of its
// zone.
func nextOffset(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		return t.Add(time.Hour)
	}
	return end
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

// String is the form that [ParsePeriod] reads; the zero Period is the empty text.
func (p Period) String() string {
	if p.IsZero() {
		return ""
	}
	return p.text
}

// IsZero reports whether p is the zero Period.
func (p Period) IsZero() bool { return p.period == nil }

// Longest returns the length that no period of p exceeds: of its days, and an hour more in
// a zone other than UTC, or as much as clocks of the zone have been set back since 1980.
func (p Period) Longest() time.Duration {
	days := map[string]time.Duration{"day": 1, "week": 7, "month": 31}[p.unit]
	return days*dur.Day + p.zone.back
}

// Fits reports whether all periods of p since 1980 begin together with a bucket of the
// given width. All periods of all zones fit quarters of an hour.
func (p Period) Fits(width time.Duration) bool { return p.zone.step%int64(width) == 0 }

// Span returns the start and the end of the period that holds the instant ns. Instants are
// nanoseconds since the Unix epoch, of the years 1700 to 2249.
func (p Period) Span(ns int64) (start, end int64) {
	s := p.last.Load()
	if s == nil || ns < s.start || ns >= s.end {
		s = p.find(ns)
		p.last.Store(s)
	}
	return s.start, s.end
}

// Start returns the start of the period that holds the instant ns, and reports whether the
// tier t counts the period: a bucket begins with it, and is kept for all of it.
func (p Period) Start(ns int64, t Tier) (start int64, fits bool) {
	start, end := p.Span(ns)
	return start, start%int64(t.Width) == 0 && end-start <= int64(t.Keep)
}

// find is Span. The zone's date is that of an earlier period where clocks were set back
// to the day before.
func (p *period) find(ns int64) *span {
	y, m, d := time.Unix(0, ns).In(p.zone.Location).Date()
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	n := cover.Index(date.Unix(), 86400) // of the day
	switch p.unit {
	case "week": // 1970 began on a Thursday
		n = cover.Index(date.Unix()+3*86400, 7*86400)
	case "month":
		if n = int64(y-1970)*12 + int64(m) - 1; date.Before(p.date(n)) {
			n--
		}
	}
	s := &span{p.start(n), p.start(n + 1)}
	for ; s.end <= ns; n++ {
		s.start, s.end = s.end, p.start(n+2)
	}
	return s
}

// date returns the first date of period n, as midnight in UTC.
func (p *period) date(n int64) time.Time {
	switch p.unit {
	case "day":
		return time.Unix(n*86400, 0).UTC()
	case "week":
		return time.Unix((7*n-3)*86400, 0).UTC()
	}
	last := time.Date(1970, time.Month(n+2), 0, 0, 0, 0, 0, time.UTC)
	return last.AddDate(0, 0, min(p.from, last.Day())-last.Day())
}

// start returns the first instant at which clocks of the zone show the first date of
// period n, or a later one.
func (p *period) start(n int64) int64 {
	midnight := p.date(n).Unix()
	for t := time.Unix(midnight-86400, 0).In(p.zone.Location); ; {
		_, offset := t.Zone()
		end := nextOffset(t)
		if at := max(t.Unix(), midnight-int64(offset)); end.IsZero() || at < end.Unix() {
			return at * int64(time.Second)
		}
		t = end
	}
}
