package page

import (
	"slices"
	"strings"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/words"
)

// growth is the chart and the table of the memory of a key by its hits. Its lines have
// short names: "log", "1s:1d", "1s:1d, burst".
type growth compare.Growth

// grown shortens the names. abacus is named by its finest tier.
func grown(g *compare.Growth) *growth {
	if g == nil {
		return nil
	}
	short := &growth{Hits: g.Hits}
	for _, l := range g.Lines {
		ladder, ours := strings.CutPrefix(name(l.Name), "abacus ")
		if l.Name, _, _ = strings.Cut(ladder, ","); !ours {
			l.Name = "log"
		}
		if l.Burst {
			l.Name += ", burst"
		}
		short.Lines = append(short.Lines, l)
	}
	return short
}

// least reports whether no line has fewer bytes at the i-th number of hits.
func least(g *growth, i int, bytes []int64) bool {
	return !slices.ContainsFunc(g.Lines, func(o compare.GrowthLine) bool { return o.Bytes[i] < bytes[i] })
}

// Log returns the line of the exact log, or nil without one.
func (g *growth) Log() *compare.GrowthLine {
	if g.Lines[0].Source == "abacus" {
		return nil
	}
	return &g.Lines[0]
}

// Crossing says from how many hits on a key of abacus is smaller than one of the log.
func (g *growth) Crossing(ours []int64) string {
	log, from := g.Log().Bytes, len(g.Hits)
	for from > 0 && ours[from-1] < log[from-1] {
		from--
	}
	switch from {
	case 0:
		return "smaller than the log from " + words.Commas(g.Hits[0]) + " hits on, the fewest that were weighed"
	case len(g.Hits):
		return "not smaller than the log up to " + words.Commas(g.Hits[from-1]) + " hits, the most that were weighed"
	}
	return "smaller than the log from " + words.Commas(g.Hits[from]) + " hits on, and not yet at " + words.Commas(g.Hits[from-1])
}
