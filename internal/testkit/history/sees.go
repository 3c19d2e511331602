package history

import (
	"fmt"
	"time"
)

// sees is rule 3: what r counted is no less than what had been admitted, or
// added, by calls that had returned before r began.
func (c *Checker) sees(r *record) {
	i := 0
	for _, ask := range r.Asks {
		k := c.key(ask.Key)
		for _, limit := range ask.Limits {
			label := r.Hi // the least that any label of r can count
			if r.Kind == Take {
				label = r.Label
			}
			if c.taint(k, r.Ended, c.length(limit)) {
				c.Report.BeyondSeen++
				i++
				continue
			}
			least := c.before(k, r, start(limit, label), c.length(limit))
			if least > 0 {
				least = max(0, least-c.halves(k, r.Began-c.reach(c.length(limit)), r.Ended))
			}
			c.Report.Seen++
			if r.Kind == Count {
				if r.High < least {
					c.Report.Unseen++
					c.find(3, k.name, limit, r, fmt.Sprintf("counted %d at most, and %d had returned before it began", r.High, least))
				}
				continue
			}
			if r.Kind == Take {
				least += r.N
			}
			if i < len(r.Remaining) && r.Remaining[i] > max(0, limit.Max-least) {
				c.Report.Unseen++
				c.find(3, k.name, limit, r, fmt.Sprintf("has %d remaining, and %d are counted, those that had returned before it began", r.Remaining[i], least))
			}
			i++
		}
	}
}

// before is the weight of the hits of k, labelled since an instant, that r must
// have counted.
func (c *Checker) before(k *key, r *record, since int64, per time.Duration) int64 {
	var n int64
	for _, h := range k.calls {
		if !h.counted() || h.Ended >= r.Began || h.weight(r.Ended) == 0 {
			continue
		}
		if lo, _ := h.labels(); lo < since {
			continue
		}
		if all, _ := k.lost(h.Began-int64(c.widest(per)+c.cfg.Late), r.Ended); all > 0 {
			continue
		}
		n += h.N
	}
	return n
}
