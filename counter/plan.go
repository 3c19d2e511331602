package counter

import (
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
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
	tiers  []tiers.Tier // of the ladder
	skew   int64        // how far apart the clocks of two callers may be
	settle int64        // how long a try may last, from its label to its last confirmed addition; 0 on a store with an atomic step

	ending  int64 // a bucket is settled when it ended this long before the label: skew + settle
	pending int64 // hits this long before a label may still be taken back: skew + settle, and settle again
}

func newPlan(ladder tiers.Ladder, skew, settle time.Duration) plan {
	s, t := int64(skew), int64(settle)
	return plan{ladder: ladder, tiers: ladder.Tiers(), skew: s, settle: t, ending: s + t, pending: s + 2*t}
}

// window is limit as a store is asked for it. The error is that of a ladder which
// keeps no tier for the limit.
func (p *plan) window(limit Limit) (backend.Window, error) {
	finest, err := p.ladder.Finest(limit.Per)
	if err != nil {
		return backend.Window{}, err
	}
	return backend.Window{Max: limit.Max, Reach: p.reach(limit.Per), Finest: finest}, nil
}

// reach is how far before the label a window of that length begins: Per + Skew,
// since the labels of two hits that are Per apart in true time are apart by Skew
// more. By ticket a limit as wide as its ticket bucket reaches further, by
// Settle: it reads its last bucket whole until that has settled, which is Settle
// after the hits in it have left the window. Without that reach, which
// RetryAfter is told by as well, a caller would be denied after the RetryAfter
// that it was told.
func (p *plan) reach(per time.Duration) time.Duration {
	more := p.skew
	if p.settle > 0 {
		w := int64(p.ladder.At(p.ladder.Decision(per)).Width)
		more += max(0, p.settle-(int64(per)-w))
	}
	return per + time.Duration(more)
}

// bounds are the use that one limit makes of the ladder.
type bounds struct {
	reach int64 // how far before the label the window begins
	fine  int   // the tier of its left edge
	top   int   // its decision tier: the coarsest of its cover, and the one whose increment is its ticket
}

// boundsOf are the bounds of a limit of that length whose left edge is read from
// tier fine.
//
// The ticket of a limit is that of its own decision tier, whatever else a call
// asks: callers with different limits on a key must have the tickets of a limit
// that they share from one queue.
func (p *plan) boundsOf(per time.Duration, fine int) bounds {
	return bounds{reach: int64(p.reach(per)), fine: fine, top: p.ladder.Decision(per)}
}

// settled appends the runs that may be read beside the additions: the limit's
// cover, from its left edge on, up to where buckets of the ticket tier have
// not ended long enough ago. No hit that will be admitted can still arrive in
// them.
//
// What is not settled is left to the ticket tier, whole: a call's additions
// land one by one, and only the order of those in one tier, the ticket's, is
// the same for all who read it. That the unsettled part is read in this tier
// alone is also what makes a left edge at Per + Skew enough.
func (p *plan) settled(dst tiers.Cover, label int64, b bounds) tiers.Cover {
	end := p.settledEnd(label, b)
	return cover.Append(dst, p.tiers, label-b.reach, end-1, b.fine, b.top, b.top)
}

// settledEnd is the end of the settled buckets of the ticket tier.
func (p *plan) settledEnd(label int64, b bounds) int64 {
	width := p.ladder.At(b.top).Width
	return tiers.Index(label-p.ending, width) * int64(width)
}

// unsettled appends the runs of the ticket tier that must be read after all
// additions are confirmed: what is between the settled part and the label's
// own bucket, which the ticket stands for, and what lies right of that, as far
// as another clock may be when ours, at confirmation, is at now. In the steady
// state there are none.
func (p *plan) unsettled(dst tiers.Cover, label, now int64, b bounds) tiers.Cover {
	width := p.ladder.At(b.top).Width
	own := tiers.Index(label, width)
	if first := p.settledEnd(label, b) / int64(width); first < own {
		dst = append(dst, tiers.Run{Width: width, First: first, N: own - first})
	}
	if last := tiers.Index(now+p.skew, width); last > own {
		dst = append(dst, tiers.Run{Width: width, First: own + 1, N: last - own})
	}
	return dst
}

// whole appends the cover of a call that only reads, at now: all that may have
// been counted by then, by whichever clock it was stamped.
func (p *plan) whole(dst tiers.Cover, now int64, b bounds) tiers.Cover {
	return cover.Append(dst, p.tiers, now-b.reach, now+p.skew, b.fine, b.top, b.top)
}

// near tells whether a bucket of tier top ends so close to the label, before or
// after it, that callers on its two sides can be under way at once.
func (p *plan) nearBoundary(label int64, top int) bool {
	width := p.ladder.At(top).Width
	return tiers.Index(label-p.pending, width) != tiers.Index(label+p.ending, width)
}

// bucketAt is the bucket of that tier that holds the label.
func (p *plan) bucketAt(label int64, tier int) tiers.Bucket {
	width := p.ladder.At(tier).Width
	return tiers.Bucket{Width: width, Index: tiers.Index(label, width)}
}

// ttl is how long a bucket of tier t must live from its first hit on. The
// slowest clock's longest window has left it after Width + Keep + Skew + Settle;
// Skew and Settle more serve stores that go by the callers' clocks, and hits
// whose additions are late.
func ttl(t tiers.Tier, skew, settle time.Duration) time.Duration {
	return t.Width + t.Keep + 2*(skew+settle)
}
