package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Span is a duration of zero or more, with days and weeks.
type Span time.Duration

// Decode takes the word after the flag even with a hyphen in front: "-5s" is a
// window below zero, and not an unknown flag -5.
func (s *Span) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Pop()
	word, isText := token.Value.(string)
	if !isText || token.IsEOL() || strings.HasPrefix(word, "--") {
		return errors.New("no value, want a duration such as 90s, 24h or 7d")
	}
	d, err := dur.Parse(word)
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("duration %q: below zero, want 0s or more", word)
	}
	*s = Span(d)
	return nil
}

// Check wants a Span above zero and, unless most is zero, at most most. The error
// names the flag and is a mistake in the call.
func (s Span) Check(flag string, most time.Duration) error {
	if s > 0 && (most == 0 || time.Duration(s) <= most) {
		return nil
	}
	want := "more than 0s"
	if most > 0 {
		want += " and at most " + dur.Format(most)
	}
	return Usagef("%s %s: want %s", flag, dur.Format(time.Duration(s)), want)
}

// Limits is a flag of limits, such as 10/h,100/d.
type Limits counter.Limits

func (l *Limits) UnmarshalText(text []byte) error {
	parsed, err := counter.ParseLimits(string(text)) // which takes no empty text
	*l = Limits(parsed)
	return err
}

// Sliding is a flag of limits with windows that slide.
type Sliding counter.Limits

func (l *Sliding) UnmarshalText(text []byte) error {
	parsed, err := counter.ParseLimits(string(text))
	for _, limit := range parsed {
		if !limit.Period.IsZero() {
			return fmt.Errorf("limit %s: want limits that slide, such as 100/d: the command goes by the length of a window", limit)
		}
	}
	*l = Sliding(parsed)
	return err
}

// Ladder is a flag of tiers, such as 1s:1d,1m:1d,1h:1d. The zero value stands for
// an absent flag.
type Ladder struct{ tiers.Ladder }

func (l *Ladder) UnmarshalText(text []byte) (err error) {
	l.Ladder, err = tiers.Parse(string(text))
	return err
}

// OrFor is l, or the ladder that fits the limits.
func (l Ladder) OrFor(limits ...counter.Limit) tiers.Ladder {
	if l.Len() > 0 {
		return l.Ladder
	}
	return counter.Limits(limits).Ladder()
}

// Instant is a flag of a moment: now, a time of today, or a date and time; in UTC
// unless the flag has another zone.
type Instant time.Time

func (i *Instant) UnmarshalText(text []byte) error {
	now := time.Now().UTC()
	if string(text) == "now" {
		*i = Instant(now)
		return nil
	}
	for _, layout := range []string{"15:04", time.TimeOnly, time.RFC3339, time.DateTime, time.DateOnly} {
		t, err := time.Parse(layout, string(text))
		if err != nil {
			continue
		}
		if t.Year() == 0 { // a time without a date
			t = t.AddDate(now.Year(), int(now.Month())-1, now.Day()-1)
		}
		*i = Instant(t.UTC())
		return nil
	}
	return fmt.Errorf("%q: want now, a time such as 23:30:33, or a date and time such as 2026-03-02T23:30:33Z", text)
}
