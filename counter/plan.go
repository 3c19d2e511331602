package counter

import (
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// plan is the pure part of the ticket protocol (docs/design.md): which buckets
// a Take reads beside its additions, which ones only after them. It knows no
// clock and no store, so that the model check can run the very code that the
// Counter runs.
//
// Instants are nanoseconds since the Unix epoch. A label is the stamp that a
// call has read from its own clock.
type plan struct {
	ladder tiers.Ladder
	settle int64 // a bucket is settled when it ended this long before the label: skew + budget
	left   int64 // how much further back a window reaches: skew + budget
	right  int64 // how far beyond the confirming clock reading others may have stamped: skew
}

func newPlan(ladder tiers.Ladder, skew, budget time.Duration) plan {
	return plan{ladder: ladder, settle: int64(skew + budget), left: int64(skew + budget), right: int64(skew)}
}

// reach is how one limit uses the ladder.
type reach struct {
	per    int64
	fine   int // the tier of its left edge
	top    int // its decision tier, the coarsest in its cover
	ticket int // the tier whose increment is its ticket
}

// reaches finds the tiers of limits. All limits of a key share one ticket
// tier, the coarsest that is no wider than the shortest window: with tickets in
// different tiers, two racers can each be ahead in one and both be refused.
// Where the ladder drops that tier before the next coarser bucket is full, a
// longer window cannot be summed up from it, and keeps its own decision tier:
// as safe, but such racers may both be refused.
func (p *plan) reaches(dst []reach, limits Limits) ([]reach, error) {
	shared := p.ladder.Len()
	for _, l := range limits {
		fine, err := p.ladder.Finest(l.Per)
		if err != nil {
			return nil, err
		}
		top := p.ladder.Decision(l.Per)
		dst = append(dst, reach{per: int64(l.Per), fine: fine, top: top})
		shared = min(shared, top)
	}
	for i := range dst {
		r := &dst[i]
		r.ticket = shared
		for t := shared; t < r.top; t++ {
			if p.ladder.At(t).Keep < p.ladder.At(t+1).Width {
				r.ticket = r.top
				break
			}
		}
	}
	return dst, nil
}

// settled appends the runs that may be read beside the additions: the limit's
// cover, from label-per-left on, up to where buckets of the ticket tier have
// not ended long enough ago. No hit that will be admitted can still arrive in
// them.
//
// What is not settled is left to the ticket tier, even where a coarser bucket
// has ended: a call's additions land one by one, and only the order of those in
// one tier, the ticket's, is the same for all who read it.
func (p *plan) settled(dst tiers.Cover, label int64, r reach) tiers.Cover {
	end := p.settledEnd(label, r)
	return p.ladder.Append(dst, label-r.per-p.left, end-1, r.fine, r.top, r.ticket)
}

// settledEnd is where the settled buckets of the ticket tier end.
func (p *plan) settledEnd(label int64, r reach) int64 {
	width := p.ladder.At(r.ticket).Width
	return tiers.Index(label-p.settle, width) * int64(width)
}

// unsettled appends the runs of the ticket tier that must be read after all
// additions are confirmed: what is between the settled part and the label's
// own bucket, which the ticket stands for, and what lies right of that, as far
// as another clock may be when ours, at confirmation, is at now. In the steady
// state there are none.
func (p *plan) unsettled(dst tiers.Cover, label, now int64, r reach) tiers.Cover {
	width := p.ladder.At(r.ticket).Width
	own := tiers.Index(label, width)
	if first := p.settledEnd(label, r) / int64(width); first < own {
		dst = append(dst, tiers.Run{Width: width, First: first, N: own - first})
	}
	if last := tiers.Index(now+p.right, width); last > own {
		dst = append(dst, tiers.Run{Width: width, First: own + 1, N: last - own})
	}
	return dst
}

// whole appends the cover of a call that only reads, at now: all that may have
// been counted by then, whoever's clock it was stamped by.
func (p *plan) whole(dst tiers.Cover, now int64, r reach) tiers.Cover {
	return p.ladder.Append(dst, now-r.per-p.left, now+p.left, r.fine, r.top, r.top)
}

// ttl is how long a bucket of tier t must live from its first hit on: until the
// slowest clock's longest window has left it.
func (p *plan) ttl(t tiers.Tier) time.Duration {
	return t.Width + t.Keep + 2*time.Duration(p.left)
}
