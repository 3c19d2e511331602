package counter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// MaxCount is the largest Max of a [Limit] and the largest n of a call: 2^53-1,
// the bound up to which every store counts exactly, scripts with floating-point
// numbers included.
const MaxCount = backend.MaxCount

// Limit is a bound: at most Max hits in any window of length Per, wherever the
// window begins, or, with a Period, at most Max hits in each period of the calendar.
//
// A hit belongs to the period that holds its label. While clocks differ, calls within
// Config.Skew before the end of a period may also count hits that other clocks label after
// the end.
type Limit struct {
	Max    int64         // 0 to MaxCount; zero admits nothing
	Per    time.Duration // 10 ms to 366 days; 0 with a Period
	Period tiers.Period  // zero: the window slides
}

// Window returns the length of the longest window of l: Per, or the length that no period
// exceeds.
func (l Limit) Window() time.Duration {
	if l.Period.IsZero() {
		return l.Per
	}
	return l.Period.Longest()
}

// window writes l into w as a window of the plan, without the reach of a period, which
// needs a label.
func (l Limit) window(w *backend.Window, plan *ticket.Plan) error {
	err := plan.Window(w, l.Max, l.Window())
	if w.Period = l.Period; err == nil && !l.Period.IsZero() {
		err = l.fits(plan.Ladder)
	}
	return err
}

// fits returns an error if the ladder keeps no tier for the window of l.
func (l Limit) fits(ladder tiers.Ladder) error {
	finest, err := ladder.Finest(l.Window())
	if err != nil || l.Period.IsZero() || l.Period.Fits(ladder.At(finest).Width) {
		return err
	}
	return fmt.Errorf("ladder %q has buckets of %s for it, and the %s does not begin with a bucket: want a finer tier that is kept for %s",
		ladder, dur.Format(ladder.At(finest).Width), l.Period, dur.Format(l.Window()))
}

// Limits are several limits on a key. The writes of a call are the same for one
// limit and for several. The reads on memcached grow with the windows: the first
// Take of a key under 100/d reads 24 items, under three limits (10/m, 50/h, 100/d)
// 25, and under ten limits from a second to a day 65.
type Limits []Limit

// maxLimits bounds the limits of one call.
const maxLimits = 32

// ParseLimits reads limits as Max/Per, separated by commas: "2/s, 10/h, 100/d",
// "1000/7d", "5/90s". Per is a unit (ms, s, m, h, d, w, or a word: sec, second, min,
// minute, hour, day, week) or a duration. String writes the letters. A limit that never
// denies, as 20/h next to 5/d, is no error.
//
// A limit by the calendar is Max per period, as [tiers.ParsePeriod] reads it: "100 per
// day in UTC", "1000 per month from 15 in Europe/Berlin". The time zone is never left
// out, so that no one takes "100/day", any 24 hours, for a day of the calendar.
func ParseLimits(s string) (Limits, error) {
	var limits Limits
	for field := range strings.SplitSeq(s, ",") {
		field = strings.TrimSpace(field)
		words := strings.Fields(field)
		calendar := len(words) > 1 && words[1] == "per"
		number, per, _ := strings.Cut(field, "/")
		switch number, per = strings.TrimSpace(number), strings.TrimSpace(per); {
		case calendar:
			number, per = words[0], strings.Join(words[2:], " ")
		case field == "" && strings.HasSuffix(strings.TrimSpace(s), ","):
			return nil, fmt.Errorf("counter: limits %q: a comma at the end", s)
		case field == "" && strings.Contains(s, ","):
			return nil, fmt.Errorf("counter: limits %q: a comma with no limit before it", s)
		case per == "":
			return nil, fmt.Errorf("counter: limit %q: want max/window, such as 100/d or 5/90s", field)
		case strings.Contains(per, " in ") || strings.HasPrefix(per, "month"):
			return nil, fmt.Errorf("counter: limit %q: a limit by the calendar is such as 100 per month in Europe/Berlin", field)
		case strings.Contains(per, "/"):
			return nil, fmt.Errorf("counter: limits %q: want a comma between two limits, such as 5/m, 100/d", field)
		case len(strings.Fields(per)) > 1:
			return nil, fmt.Errorf("counter: limit %q: window %q has a blank in it, want one such as 1d or 1h30m", field, per)
		}
		var l Limit
		var err error
		if l.Max, err = strconv.ParseInt(number, 10, 64); errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("counter: limit %q: max %s, want 0 to %d", field, number, int64(MaxCount))
		} else if err != nil {
			return nil, fmt.Errorf("counter: limit %q: %q is not a whole number", field, number)
		}
		window := per
		if strings.IndexAny(per, "0123456789.-") != 0 {
			window = "1" + per
		}
		if calendar {
			if l.Period, err = tiers.ParsePeriod(per); err != nil {
				sliding := number + "/" + strings.ReplaceAll(per, " ", "")
				if _, bad := ParseLimits(sliding); bad == nil {
					return nil, fmt.Errorf("counter: limit %q: %w; a window that slides is %s", field, err, sliding)
				}
				return nil, fmt.Errorf("counter: limit %q: %w", field, err)
			}
		} else if l.Per, err = dur.Parse(window); err != nil { // which would quote the 1
			return nil, fmt.Errorf("counter: limit %q: window %q, want a unit (ms, s, m, h, d or w, or a word such as day) or a duration such as 90s", field, per)
		}
		limits = append(limits, l)
	}
	if err := limits.check(); err != nil {
		return nil, err
	}
	return limits, nil
}

// MustLimits is [ParseLimits] for limits written in the program: MustLimits
// panics where ParseLimits returns an error.
func MustLimits(s string) Limits {
	limits, err := ParseLimits(s)
	if err != nil {
		panic(err)
	}
	return limits
}

// String formats l for [ParseLimits]: "100/d", "100 per day in UTC".
func (l Limit) String() string {
	if !l.Period.IsZero() {
		return strconv.FormatInt(l.Max, 10) + " per " + l.Period.String()
	}
	per := dur.Format(l.Per)
	if len(per) > 1 && per[0] == '1' && strings.IndexByte("0123456789.", per[1]) < 0 && !strings.ContainsAny(per[1:], "0123456789") {
		per = per[1:]
	}
	return strconv.FormatInt(l.Max, 10) + "/" + per
}

// String formats l for [ParseLimits]: "2/s, 10/h, 100/d".
func (l Limits) String() string {
	parts := make([]string, len(l))
	for i, limit := range l {
		parts[i] = limit.String()
	}
	return strings.Join(parts, ", ")
}

// MarshalText returns String, and the empty text for no limits. Limits that
// [ParseLimits] would refuse are an error.
func (l Limits) MarshalText() ([]byte, error) {
	if err := l.check(); err != nil && len(l) > 0 {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads the text of [ParseLimits]; the empty text is no limits.
// After an error l is unchanged.
func (l *Limits) UnmarshalText(text []byte) error {
	read, err := ParseLimits(string(text))
	if err != nil && len(text) > 0 {
		return err
	}
	*l = read
	return nil
}

// MarshalText returns String, and the empty text for the zero Limit. A limit that
// [ParseLimits] would refuse is an error.
func (l Limit) MarshalText() ([]byte, error) {
	if l == (Limit{}) {
		return []byte{}, nil
	}
	return Limits{l}.MarshalText()
}

// UnmarshalText reads a single limit; the empty text is the zero Limit. After an
// error l is unchanged.
func (l *Limit) UnmarshalText(text []byte) error {
	var read Limits
	if err := read.UnmarshalText(text); err != nil {
		return err
	}
	if len(read) > 1 {
		return fmt.Errorf("counter: limit %q: %d limits, want one", text, len(read))
	}
	*l = append(read, Limit{})[0]
	return nil
}

// Ladder returns a ladder for l: that of [tiers.For] for the windows that slide, and, if
// there are periods, buckets of a quarter of an hour, an hour and, beyond two days, a day,
// kept for the longest period of any zone: another zone is no change of ladder.
func (l Limits) Ladder() tiers.Ladder {
	var slide []time.Duration
	var longest time.Duration // of the periods
	for _, limit := range l {
		if limit.Period.IsZero() {
			slide = append(slide, limit.Per)
		} else {
			longest = max(longest, limit.Window().Truncate(8*time.Hour)+8*time.Hour)
		}
	}
	if longest == 0 {
		return tiers.For(slide...)
	}
	all := []tiers.Tier{{Width: 15 * time.Minute, Keep: longest}, {Width: time.Hour, Keep: longest}}
	if longest > 2*dur.Day {
		all = append(all, tiers.Tier{Width: dur.Day, Keep: longest})
	}
	if len(slide) > 0 {
		all = append(all, tiers.For(slide...).Tiers()...)
	}
	slices.SortFunc(all, func(a, b tiers.Tier) int { return cmp.Or(cmp.Compare(a.Width, b.Width), cmp.Compare(b.Keep, a.Keep)) })
	all = slices.CompactFunc(all, func(a, b tiers.Tier) bool { return a.Width == b.Width })
	for i := range all[1:] {
		all[i+1].Keep = max(all[i+1].Keep, all[i].Keep)
	}
	ladder, _ := tiers.New(all...) // all widths are multiples of the finer ones
	return ladder
}

// Check returns the error of any Take under l by a Counter on ladder: a limit is
// out of bounds, or the ladder keeps no tier for a window. A program that reads
// limits from a file can check the limits before the first Take.
func (l Limits) Check(ladder tiers.Ladder) error {
	if err := l.check(); err != nil {
		return err
	}
	for _, limit := range l {
		if err := limit.fits(ladder); err != nil {
			return fmt.Errorf("counter: limit %s: %w", limit, err)
		}
	}
	return nil
}

func (l Limits) check() error {
	if len(l) == 0 {
		return errors.New("counter: no limits, want at least one")
	}
	if len(l) > maxLimits {
		return fmt.Errorf("counter: %d limits, want at most %d", len(l), maxLimits)
	}
	for _, limit := range l {
		if limit.Max < 0 || limit.Max > MaxCount {
			return fmt.Errorf("counter: limit %s: max %d, want 0 to %d", limit, limit.Max, int64(MaxCount))
		}
		if !limit.Period.IsZero() && limit.Per != 0 {
			return fmt.Errorf("counter: limit %s: Per is %s, want a Per or a Period", limit, dur.Format(limit.Per))
		}
		if per := limit.Window(); per < tiers.MinWindow || per > tiers.MaxWindow {
			return fmt.Errorf("counter: limit %s: window %s, want %s to %s", limit, dur.Format(limit.Per), dur.Format(tiers.MinWindow), dur.Format(tiers.MaxWindow))
		}
	}
	return nil
}
