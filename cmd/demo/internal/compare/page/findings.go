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
	fullest, wrongest, small, large := -1, -1, -1, -1
	wrong := func(i int) int64 { return r.Algorithms[i].WronglyAdmitted + r.Algorithms[i].WronglyDenied }
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		name := clean(a.Name, nameLength)
		if finite(a.WorstWindow) {
			if a.WorstWindow <= 1 {
				kept = append(kept, name)
			} else {
				broke = append(broke, name)
			}
			if fullest < 0 || a.WorstWindow > r.Algorithms[fullest].WorstWindow {
				fullest = i
			}
		}
		if wrong(i) == 0 {
			right = append(right, name)
		}
		if wrongest < 0 || wrong(i) > wrong(wrongest) {
			wrongest = i
		}
		if finite(a.BytesPerKey) && a.BytesPerKey > 0 {
			if small < 0 || a.BytesPerKey < r.Algorithms[small].BytesPerKey {
				small = i
			}
			if large < 0 || a.BytesPerKey > r.Algorithms[large].BytesPerKey {
				large = i
			}
		}
	}
	var out []string
	if len(broke) == 0 && len(kept) > 0 {
		out = append(out, "No algorithm let more than the limit into any true window of this log.")
	} else if fullest >= 0 {
		a := r.Algorithms[fullest]
		s := fmt.Sprintf("%s let more than the limit into a true window; the most is %s times the limit, by %s.",
			countOf(len(broke), len(r.Algorithms)), number(a.WorstWindow, 2), clean(a.Name, nameLength))
		if len(kept) > 0 {
			s += " The limit was kept by " + list(kept) + "."
		}
		out = append(out, s)
	}
	if wrong(wrongest) == 0 {
		out = append(out, "No decision was wrong.")
	} else {
		s := fmt.Sprintf("The most wrong decisions: %s of %s (%s), by %s.", words.Commas(wrong(wrongest)), words.Plural(r.Events, "event"),
			percent(wrong(wrongest), r.Events), clean(r.Algorithms[wrongest].Name, nameLength))
		if len(right) > 0 {
			s += " None by " + list(right) + "."
		}
		out = append(out, s)
	}
	if small >= 0 && small != large {
		s, l := r.Algorithms[small], r.Algorithms[large]
		out = append(out, fmt.Sprintf("A key takes %s bytes with %s, and %s with %s.", number(s.BytesPerKey, 0), clean(s.Name, nameLength),
			number(l.BytesPerKey, 0), clean(l.Name, nameLength)))
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
