package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// span is a duration of zero or more, with days and weeks.
type span time.Duration

// Decode takes the word after the flag even with a hyphen in front: "-5s" is a
// window below zero, and not an unknown flag -5.
func (s *span) Decode(ctx *kong.DecodeContext) error {
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
	*s = span(d)
	return nil
}

// check wants a span above zero and, unless most is zero, at most most. The error
// names the flag and is a usageError.
func (s span) check(flag string, most time.Duration) error {
	if s > 0 && (most == 0 || time.Duration(s) <= most) {
		return nil
	}
	want := "more than 0s"
	if most > 0 {
		want += " and at most " + dur.Format(most)
	}
	return usageError{fmt.Errorf("%s %s: want %s", flag, dur.Format(time.Duration(s)), want)}
}

// limits is a flag of limits, such as 10/h,100/d.
type limits counter.Limits

func (l *limits) UnmarshalText(text []byte) error {
	parsed, err := counter.ParseLimits(string(text))
	*l = limits(parsed)
	return err
}

// ladder is a flag of tiers, such as 1s:1d,1m:1d,1h:1d. The zero value stands for
// an absent flag.
type ladder struct{ tiers.Ladder }

func (l *ladder) UnmarshalText(text []byte) (err error) {
	l.Ladder, err = tiers.Parse(string(text))
	return err
}

// orFor is l, or the ladder that fits the windows.
func (l ladder) orFor(windows ...time.Duration) tiers.Ladder {
	if l.Len() > 0 {
		return l.Ladder
	}
	return tiers.For(windows...)
}

// coarser leaves out the tiers finer than grid.
func coarser(l tiers.Ladder, grid time.Duration) (tiers.Ladder, error) {
	kept := slices.DeleteFunc(l.Tiers(), func(t tiers.Tier) bool { return t.Width < grid })
	if len(kept) == 0 {
		return l, fmt.Errorf("--grid %s: the widest tier of ladder %q has %s, want a grid of at most that", dur.Format(grid), l, dur.Format(l.At(l.Len()-1).Width))
	}
	return tiers.New(kept...)
}

// instant is a flag of a moment: now, a time of today, or a date and time; in UTC
// unless the flag has another zone.
type instant time.Time

func (i *instant) UnmarshalText(text []byte) error {
	now := time.Now().UTC()
	if string(text) == "now" {
		*i = instant(now)
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
		*i = instant(t.UTC())
		return nil
	}
	return fmt.Errorf("%q: want now, a time such as 23:30:33, or a date and time such as 2026-03-02T23:30:33Z", text)
}
