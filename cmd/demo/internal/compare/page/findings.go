package page

import (
	"fmt"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/words"
)

// findings sum up the table in a few sentences.
func findings(r *compare.Report) []string {
	if len(r.Algorithms) == 0 {
		return []string{"No algorithm was run."}
	}
	if r.Events == 0 {
		return []string{"The log has no events: there is nothing to compare."}
	}
	var kept, broke, right []string
	var fullest, small, large *compare.Algorithm
	wrongest := &r.Algorithms[0]
	wrong := func(a *compare.Algorithm) int64 { return a.WronglyAdmitted + a.WronglyDenied }
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		name := clean(a.Name, nameLength)
		if finite(a.WorstWindow) {
			if a.WorstWindow <= 1 {
				kept = append(kept, name)
			} else {
				broke = append(broke, name)
			}
			if fullest == nil || a.WorstWindow > fullest.WorstWindow {
				fullest = a
			}
		}
		if wrong(a) == 0 {
			right = append(right, name)
		}
		if wrong(a) > wrong(wrongest) {
			wrongest = a
		}
		if finite(a.BytesPerKey) && a.BytesPerKey > 0 {
			if small == nil || a.BytesPerKey < small.BytesPerKey {
				small = a
			}
			if large == nil || a.BytesPerKey > large.BytesPerKey {
				large = a
			}
		}
	}
	var out []string
	if len(broke) == 0 && len(kept) > 0 {
		out = append(out, "No algorithm let more than the limit into any true window of this log.")
	} else if fullest != nil {
		s := fmt.Sprintf("%s let more than the limit into a true window; the most is %s times the limit, by %s.",
			countOf(len(broke), len(r.Algorithms)), number(fullest.WorstWindow, 2), clean(fullest.Name, nameLength))
		if len(kept) > 0 {
			s += " The limit was kept by " + list(kept) + "."
		}
		out = append(out, s)
	}
	if wrong(wrongest) == 0 {
		out = append(out, "No decision was wrong.")
	} else {
		s := fmt.Sprintf("The most wrong decisions: %s of %s (%s), by %s.", words.Commas(wrong(wrongest)), words.Plural(r.Events, "event"),
			percent(wrong(wrongest), r.Events), clean(wrongest.Name, nameLength))
		if len(right) > 0 {
			s += " None by " + list(right) + "."
		}
		out = append(out, s)
	}
	if small != large {
		out = append(out, fmt.Sprintf("A key takes %s bytes with %s, and %s with %s.", number(small.BytesPerKey, 0), clean(small.Name, nameLength),
			number(large.BytesPerKey, 0), clean(large.Name, nameLength)))
	}
	return out
}

// countOf is n of all, in words: "3 of 12 algorithms".
func countOf(n, all int) string {
	if all == 1 {
		return "The only algorithm"
	}
	return fmt.Sprintf("%d of %d algorithms", n, all)
}
