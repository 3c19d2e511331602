// Package text formats names, numbers and times for a terminal and for a page.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
)

// Clean is s fit for display, in at most most characters: a log is foreign text,
// and a key comes from anybody who sends requests. An invisible character, or a
// character that would turn the direction of the surrounding text, is told by
// number; marks beyond the third on a letter are dropped, for a pile of marks
// covers the lines above.
func Clean(s string, most int) string {
	var shown []rune
	marks := 0
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		this := s[:size]
		s = s[size:]
		switch {
		case unicode.Is(unicode.M, r):
			if marks++; marks > 3 {
				continue
			}
		case !unicode.IsPrint(r) || r == utf8.RuneError:
			this = strings.Trim(strconv.QuoteToASCII(this), `"`)
			fallthrough
		default:
			marks = 0
		}
		if shown = append(shown, []rune(this)...); len(shown) > most {
			return strings.TrimSpace(string(shown[:most-1])) + "…"
		}
	}
	return string(shown)
}

// Key formats a key in at most most characters.
func Key(event, feature string, most int) string { return Clean(event+" of "+feature, most) }

// Number is v, zero or more, with the given number of decimals, and with thousands
// apart.
func Number(v float64, decimals int) string {
	digits := strconv.FormatFloat(v, 'f', decimals, 64)
	whole, _, _ := strings.Cut(digits, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return digits
	}
	return words.Commas(n) + digits[len(whole):]
}

// Percent is part of whole, as "1.23 %". A part above zero never looks like zero.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case p > 0 && p < 0.01:
		return "< 0.01 %"
	case p < 10:
		return fmt.Sprintf("%.2f %%", p)
	}
	return fmt.Sprintf("%.1f %%", p)
}

// Roughly is about how long d is: a long time has no small units.
func Roughly(d time.Duration) string {
	switch {
	case d >= 2*dur.Day:
		return strings.TrimSuffix(Number(d.Hours()/24, 1), ".0") + " days"
	case d >= 2*time.Hour:
		return strings.TrimSuffix(Number(d.Hours(), 1), ".0") + " hours"
	}
	return dur.Format(d.Round(time.Millisecond))
}

// Rest is a time to wait, rounded up to seconds if it is long; "never" if no wait will do, and
// empty if there is none.
func Rest(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d == counter.Never:
		return "never"
	case d > 10*time.Second:
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	return dur.Format(d)
}

// Instant is t in full, in UTC.
func Instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// Wrap breaks text between words, and where the text has a line break; a word longer
// than width keeps its line.
func Wrap(text string, width int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			if line != "" && utf8.RuneCountInString(line+" "+word) > width {
				lines = append(lines, line)
				line = ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
