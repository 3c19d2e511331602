package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// Reason is the kind of hits without which a denial would not be explained.
type Reason uint8

// The reasons of a denial, each with all those before it.
const (
	Counted    Reason = iota // hits that were admitted or added
	UnderWay                 // hits of calls that were under way at the same time
	Remembered               // what was a reason when the process was last denied
	Severed                  // hits of calls that failed when connections were lost
	Told                     // hits of calls that failed though connections held
	None                     // the denial is wrong
	Reasons                  // number of reasons
)

// reason is rule 4: the least reason that explains the denial d.
func (c *Checker) reason(d *record) {
	best, parts := None, false
	for _, ask := range d.Asks {
		k := c.key(ask.Key)
		parts = parts || slices.ContainsFunc(k.losses, func(f Fault) bool { return f.Parts && f.From <= d.Ended })
		for _, limit := range ask.Limits {
			if c.taint(k, d.Ended, c.length(limit)) {
				c.Report.BeyondDenied++
				return
			}
			best = min(best, c.explains(k, d, limit))
		}
	}
	if best == None && parts {
		c.Report.Left++
		return
	}
	c.Report.Reasons[best]++
	if best == None {
		ask := d.Asks[0]
		c.find(4, ask.Key, ask.Limits[0], d, fmt.Sprintf("denied %d, and all that was admitted, added, under way or failed leaves room in every limit", d.N))
	}
}

// explains finds the least reason for which limit had no room for d at k.
func (c *Checker) explains(k *key, d *record, limit counter.Limit) Reason {
	room := limit.Max - d.N
	if room < 0 {
		return Counted
	}
	since := start(limit, d.Lo) - 1
	if limit.Period.IsZero() {
		since -= int64(c.beyond(limit.Per)) - 1
	}
	inWindow := func(h *hit) bool {
		_, hi := h.labels()
		return hi > since && h.Began < d.Ended && h.record != d
	}
	var sum int64
	for _, h := range slices.Backward(k.calls) { // most denials need no more than the latest hits
		if h.counted() && h.backAt() > d.Began && inWindow(h) {
			if sum += h.N; sum > room {
				return Counted
			}
		}
	}
	var sums [None]int64
	for _, h := range k.calls {
		if inWindow(h) {
			if why, may := c.mayCount(h, d); may {
				sums[why] += h.N
			}
		}
	}
	sum = 0
	for why := range None {
		if sum += sums[why]; sum > room {
			return why
		}
	}
	return None
}

// beyond is the reach of a window beyond Per, with the whole bucket at the edge.
func (c *Checker) beyond(per time.Duration) time.Duration {
	further := c.finest(per) + c.cfg.Skew
	if c.cfg.Ticket {
		further += max(0, c.cfg.Settle-(per-c.widest(per)))
	}
	return further
}

// mayCount reports whether the store may have counted the hits of h when d was
// denied, and if so for which reason.
func (c *Checker) mayCount(h *hit, d *record) (Reason, bool) {
	remembered := d.Began - int64(c.cfg.Remember)
	switch {
	case h.counted() && h.backAt() > d.Began:
		return Counted, true
	case h.counted():
		return Remembered, h.backAt() > remembered
	case h.Outcome == Denied && !c.cfg.Ticket && (!c.cfg.Apart || len(h.Asks) == 1):
		return None, false // it wrote nothing
	case h.Ended >= d.Began:
		return UnderWay, true
	case h.Outcome == Denied && (h.Paused || c.disturbed(h.record, d, false)):
		return Severed, true // its taking back may have failed
	case h.Outcome == Denied:
		return Remembered, h.Ended > remembered
	case h.backAt() <= remembered:
		return None, false
	case h.Outcome == Open || c.disturbed(h.record, d, true):
		return Severed, true
	}
	return Told, true
}

// disturbed reports whether a fault came upon the call r, or upon the rest of its
// requests in the store, before d ended. With severs only faults that lose
// connections count.
func (c *Checker) disturbed(r, d *record, severs bool) bool {
	known := &r.disturbed
	if severs {
		known = &r.severed
	}
	if *known != nil {
		return **known
	}
	last := r.Ended + int64(c.cfg.Late)
	is := slices.ContainsFunc(c.faults, func(f Fault) bool {
		return f.From <= min(last, d.Ended) && r.Began <= f.To && (f.Severs || !severs)
	})
	if is || last <= d.Ended { // no later fault changes that
		*known = &is
	}
	return is
}
