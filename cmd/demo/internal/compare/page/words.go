package page

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
)

// unknown stands for a missing number or time.
const unknown = "–"

// nameLength and keyLength bound the shown characters of a name and of a key:
// both are foreign text, and a key comes from anybody who sends requests.
const (
	nameLength = 60
	keyLength  = 120
)

// clean is s fit for display, in at most most characters. An invisible character,
// or a character that would turn the direction of the surrounding text, is told
// by number; marks beyond the third on a letter are dropped, for a pile of marks
// covers the lines above.
func clean(s string, most int) string {
	var b strings.Builder
	n, marks := 0, 0
	for _, r := range s {
		shown := string(r)
		switch {
		case unicode.Is(unicode.M, r):
			if marks++; marks > 3 {
				continue
			}
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			shown = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
			fallthrough
		default:
			marks = 0
		}
		if n += utf8.RuneCountInString(shown); n > most {
			return strings.TrimSpace(b.String()) + "…"
		}
		b.WriteString(shown)
	}
	return b.String()
}

// finite tells whether v is a number, and not NaN or infinite.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// number is v with the given number of decimals, and with thousands apart.
func number(v float64, decimals int) string {
	if !finite(v) {
		return unknown
	}
	if math.Abs(v) >= 1e15 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	whole, rest, found := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n == 0 {
		return s // "-0.5" keeps its sign
	}
	if found {
		return words.Commas(n) + "." + rest
	}
	return words.Commas(n)
}

// percent is part of whole, as "1.2 %". A part above zero never looks like zero.
func percent(part, whole int64) string {
	if whole <= 0 {
		return unknown
	}
	p := 100 * float64(part) / float64(whole)
	if p > 0 && p < 0.01 {
		return "< 0.01 %"
	}
	decimals := 2
	if p >= 10 {
		decimals = 1
	}
	return number(p, decimals) + " %"
}

// span is about how long it is from one time to another.
func span(from, to time.Time) string {
	d := to.Sub(from)
	v, unit := d.Seconds(), "seconds"
	switch {
	case d >= 2*dur.Day:
		v, unit = d.Hours()/24, "days"
	case d >= 2*time.Hour:
		v, unit = d.Hours(), "hours"
	case d >= 2*time.Minute:
		v, unit = d.Minutes(), "minutes"
	}
	return strings.TrimSuffix(number(v, 1), ".0") + " " + unit
}

// instant is t in full, in UTC as the charts are; the zero time is unknown.
func instant(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

// list joins names as in a sentence: "a, b and c". Names with commas are kept
// apart by semicolons.
func list(names []string) string {
	for _, n := range names {
		if strings.Contains(n, ",") {
			return strings.Join(names, "; ")
		}
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
