// Package words writes numbers of things as people read them.
package words

import (
	"slices"
	"strconv"
	"strings"
)

// Commas is n with its thousands apart: 86,400.
func Commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
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

// List joins names as in a sentence: "a, b and c". Names with commas are kept
// apart by semicolons.
func List(names []string) string {
	if slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, ",") }) {
		return strings.Join(names, "; ")
	}
	return join(names)
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
	return join(quoted)
}

func join(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
