package history

import (
	"fmt"
	"slices"
	"sort"

	"github.com/abacus-go/abacus/counter"
)

// Rule 2. A line holds the hits of a key that were admitted under a limit, and on a
// store with an atomic step also the hits under a limit at least as strict: less in
// a longer window. The hit that was counted last was admitted by Max at most, and
// counted all other hits in a window of Per before its label. By ticket the
// argument holds only for hits under the limit itself: a limit with a longer window
// can have its tickets from another tier, and two callers under way at once, each
// under a limit of its own, need not see each other.
//
// A hit is put in when its call has ended. All hits in the line without a begun
// refund were counted at the same time; so their weight is at most Max in any
// window, however the calls overlapped.
type line [len(axes)][]*hit

var axes = [...]struct {
	name string
	at   func(h *hit) int64
}{
	{"labels as read", func(h *hit) int64 { return h.Label }},
	{"labels in true time", func(h *hit) int64 { return h.True }},
}

// put puts h in its place on both axes.
func (l *line) put(h *hit) {
	for a, axis := range axes {
		i := sort.Search(len(l[a]), func(i int) bool { return axis.at(l[a][i]) > axis.at(h) })
		l[a] = slices.Insert(l[a], i, h)
	}
}

func (l *line) drop(before int64) {
	for a := range l {
		l[a] = dropBefore(l[a], before)
	}
}

// line is the line of a limit, which is made of the calls so far if there is none.
func (c *Checker) line(k *key, limit counter.Limit, upTo int64) *line {
	l := k.lines[limit]
	if l == nil {
		l = &line{}
		k.lines[limit] = l
		for _, h := range k.calls {
			if h.admitted() && h.Ended < upTo && c.under(h.record, k.name, limit) {
				l.put(h)
			}
		}
	}
	return l
}

// under reports whether r belongs into the line of limit.
func (c *Checker) under(r *record, key string, limit counter.Limit) bool {
	for _, ask := range r.Asks {
		if ask.Key != key {
			continue
		}
		for _, l := range ask.Limits {
			if l == limit || !c.cfg.Ticket && l.Period == limit.Period && l.Max <= limit.Max && l.Per >= limit.Per {
				return true
			}
		}
	}
	return false
}

// over puts the admitted call r into its lines, and checks the windows around r.
func (c *Checker) over(r *record) {
	for _, ask := range r.Asks {
		k := c.key(ask.Key)
		i := len(k.calls) - 1
		for k.calls[i].record != r { // one of the latest
			i--
		}
		x := k.calls[i]
		for _, limit := range ask.Limits {
			c.line(k, limit, r.Ended)
		}
		for limit, l := range k.lines {
			if !c.under(r, k.name, limit) {
				continue
			}
			l.put(x)
			for a, axis := range axes {
				c.windows(k, limit, axis.name, l[a], axis.at, x)
				if !limit.Period.IsZero() {
					break // a period is promised by labels
				}
			}
		}
	}
}

// windows finds the fullest window that holds x.
func (c *Checker) windows(k *key, limit counter.Limit, axis string, hits []*hit, at func(*hit) int64, x *hit) {
	here, now := at(x), x.Ended
	if x.admittedWeight(now) == 0 {
		return // forgotten while under way
	}
	worst, oldest := fullest(hits, at, here, limit, func(h *hit) int64 { return h.weight(now) })
	oldest = min(oldest, x.Began)
	c.Report.Windows++
	if worst == limit.Max {
		c.Report.Full++
	}
	tainted := c.taint(k, now, c.length(limit))
	// A bucket made anew after a loss has its former name: a late taking back takes
	// from the new bucket.
	since := oldest - int64(c.widest(c.length(limit))+c.cfg.Late)
	losses, some := k.lost(since, now)
	// The hits that a loss of some hits may have come upon have no weight. With these
	// hits a window still holds no more than Max, and Max more for each loss.
	gross := worst
	if some > 0 {
		gross, _ = fullest(hits, at, here, limit, func(h *hit) int64 { return h.admittedWeight(now) })
	}
	switch {
	case tainted:
		c.Report.Beyond++
		if worst > limit.Max {
			c.Report.BeyondOver++
		}
		return
	case losses > 0 || gross > worst:
		c.Report.Lossy++
		if gross > limit.Max {
			c.Report.LossyOver++
		}
	}
	over := max(worst-limit.Max*(1+losses), gross-limit.Max*(1+losses+some))
	switch {
	case over <= 0:
	case over <= c.halves(k, since, now):
		c.Report.HalfForgotten++
	default:
		c.Report.Over++
		c.find(2, k.name, limit, x.record, fmt.Sprintf("%d under %v by %s, %d losses of the store in it, and %d with the hits that %d losses of some hits may have come upon",
			worst, limit, axis, losses, gross, some))
	}
}

// fullest returns the weight of the fullest window of a limit that holds the instant
// here, and the begin of the window's earliest call with a weight.
func fullest(hits []*hit, at func(*hit) int64, here int64, limit counter.Limit, weight func(*hit) int64) (worst, oldest int64) {
	lo, per := sort.Search(len(hits), func(i int) bool { return at(hits[i]) >= start(limit, here) }), int64(limit.Per)
	if !limit.Period.IsZero() {
		_, end := limit.Period.Span(here)
		hits = hits[:sort.Search(len(hits), func(i int) bool { return at(hits[i]) >= end })]
		per = int64(limit.Window())
	}
	var sum int64
	first, last := lo, lo // of the fullest window
	for from, to := lo, lo; from < len(hits) && at(hits[from]) <= here; from++ {
		for ; to < len(hits) && at(hits[to]) <= at(hits[from])+per; to++ {
			sum += weight(hits[to])
		}
		if sum > worst {
			worst, first, last = sum, from, to
		}
		sum -= weight(hits[from])
	}
	oldest = far
	for _, h := range hits[first:last] {
		if weight(h) > 0 {
			oldest = min(oldest, h.Began)
		}
	}
	return worst, oldest
}
