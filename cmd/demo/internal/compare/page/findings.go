package page

import (
	"fmt"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/internal/words"
)

// wrong is the number of wrong decisions of an algorithm.
func wrong(a *compare.Algorithm) int64 { return a.WronglyAdmitted + a.WronglyDenied }

// findings sum up the table in a few sentences.
func findings(r *compare.Report) (out []string) {
	var kept, right []string
	var small, large *compare.Algorithm
	fullest, wrongest := &r.Algorithms[0], &r.Algorithms[0]
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		if a.WorstWindow <= 1 {
			kept = append(kept, name(a))
		}
		if a.WorstWindow > fullest.WorstWindow {
			fullest = a
		}
		if wrong(a) == 0 {
			right = append(right, name(a))
		}
		if wrong(a) > wrong(wrongest) {
			wrongest = a
		}
		if a.BytesPerKey > 0 && (small == nil || a.BytesPerKey < small.BytesPerKey) {
			small = a
		}
		if a.BytesPerKey > 0 && (large == nil || a.BytesPerKey > large.BytesPerKey) {
			large = a
		}
	}
	if fullest.WorstWindow <= 1 {
		out = append(out, "No algorithm let more than the limit into any true window of this log.")
	} else {
		out = append(out, fmt.Sprintf("%d of %d algorithms let more than the limit into a true window; the most is %s times the limit, by %s.%s",
			len(r.Algorithms)-len(kept), len(r.Algorithms), text.Number(fullest.WorstWindow, 2), name(fullest), by(" The limit was kept by", kept)))
	}
	if wrong(wrongest) == 0 {
		out = append(out, "No decision was wrong.")
	} else {
		out = append(out, fmt.Sprintf("The most wrong decisions: %s of %s (%s), by %s.%s", words.Commas(wrong(wrongest)), words.Plural(r.Events, "event"),
			text.Percent(wrong(wrongest), r.Events), name(wrongest), by(" None by", right)))
	}
	if small != large {
		out = append(out, fmt.Sprintf("A key takes %s bytes with %s, and %s with %s.", text.Number(small.BytesPerKey, 0), name(small),
			text.Number(large.BytesPerKey, 0), name(large)))
	}
	return out
}

// by is a sentence that ends in names, or nothing without a name.
func by(begin string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return begin + " " + text.List(names) + "."
}
