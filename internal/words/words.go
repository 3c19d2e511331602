// Package words writes numbers of things as people read them.
package words

import (
	"strconv"
	"strings"
)

// Commas is n with its thousands apart: 86,400.
func Commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural is n of a thing: "1 key", "2,000 keys".
func Plural(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Commas(n) + " " + thing
}

// Quoted lists names: "a", "b" and "c". No names are "nothing".
func Quoted(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	last := len(quoted) - 1
	if last == 0 {
		return quoted[0]
	}
	return strings.Join(quoted[:last], ", ") + " and " + quoted[last]
}
