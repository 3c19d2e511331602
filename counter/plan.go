package counter

import (
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// plan is the pure part of the ticket protocol (docs/design.md): the choice of
// the buckets that a Take reads beside its additions, and of the buckets that
// it reads only afterwards. A plan knows no clock and no store, so that the
// model check runs the very code of the Counter.
//
// Instants are nanoseconds since the Unix epoch. A label is the instant that a
// call has read from its own clock.
type plan struct {
	ladder tiers.Ladder
	tiers  []tiers.Tier // of the ladder
	skew   int64        // largest difference between the clocks of two callers
	settle int64        // longest time of a try, from its label to its last confirmed addition; 0 on a store with an atomic step

	ending  int64 // skew + settle: a bucket that ended so long before a label is settled
	pending int64 // skew + 2 settle: a hit so long before a label may still be taken back
}

func newPlan(ladder tiers.Ladder, skew, settle time.Duration) plan {
	s, t := int64(skew), int64(settle)
	return plan{ladder: ladder, tiers: ladder.Tiers(), skew: s, settle: t, ending: s + t, pending: s + 2*t}
}

// window writes limit into w as a store is asked for it: Max, Reach and Finest,
// with all answers zero. The error is that of a ladder without a tier for the
// limit.
func (p *plan) window(w *backend.Window, limit *Limit) error {
	finest, err := p.ladder.Finest(limit.Per)
	if err != nil {
		return err
	}
	w.Max, w.Reach, w.Finest = limit.Max, p.reach(limit.Per), finest
	w.Count, w.FreedBy, w.Newest = 0, tiers.Bucket{}, tiers.Bucket{}
	return nil
}

// reach is the distance from the label back to the begin of a window of length
// per: Per + Skew, since the labels of two hits that are Per apart in true time
// may be apart by Skew more. By ticket, a limit as wide as its ticket bucket
// reaches further by Settle: the last bucket is read whole until settled,
// Settle after its hits have left the window. Without the longer reach, from
// which RetryAfter is computed as well, a caller would be denied after the
// RetryAfter that an earlier denial told.
func (p *plan) reach(per time.Duration) time.Duration {
	more := p.skew
	if p.settle > 0 {
		w := int64(p.ladder.At(p.ladder.Decision(per)).Width)
		more += max(0, p.settle-(int64(per)-w))
	}
	return per + time.Duration(more)
}

// bounds are the part of the ladder that a limit uses.
type bounds struct {
	reach int64 // from the label back to the begin of the window
	fine  int   // tier of the left edge
	top   int   // decision tier: the coarsest tier of the cover, whose increment is the ticket
}

// boundsOf returns the bounds of a limit of length per whose left edge is read
// from tier fine.
//
// The ticket of a limit is the ticket of its own decision tier, whatever the
// other limits of the call: callers with different limits on a key must get the
// tickets of a shared limit from one queue.
func (p *plan) boundsOf(per time.Duration, fine int) bounds {
	return bounds{reach: int64(p.reach(per)), fine: fine, top: p.ladder.Decision(per)}
}

// settled appends the runs that may be read beside the additions: the cover of
// the limit, from the left edge to the first bucket of the ticket tier that is
// not settled. No hit that will be admitted can still arrive in these runs.
//
// The unsettled part is left to the ticket tier, as a whole. The additions of a
// call land one by one, and only in a single tier, the ticket's, is their order
// the same for all readers. A left edge at Per + Skew suffices only because the
// unsettled part is read in the ticket tier alone.
func (p *plan) settled(dst tiers.Cover, label int64, b bounds) tiers.Cover {
	end := p.settledEnd(label, b)
	return cover.Append(dst, p.tiers, label-b.reach, end-1, b.fine, b.top, b.top)
}

// coarse returns b with the left edge in the ticket tier. The settled part of
// the cover is then a single run, and counts a part of its oldest bucket too
// much.
func (b bounds) coarse() bounds {
	b.fine = b.top
	return b
}

// edge appends the exact left edge of a cover: the runs that the oldest bucket
// of the coarse cover stands for.
func (p *plan) edge(dst tiers.Cover, label int64, b bounds) tiers.Cover {
	end := p.bucketAt(label-b.reach, b.top).End().UnixNano()
	return cover.Append(dst, p.tiers, label-b.reach, end-1, b.fine, b.top, b.top)
}

// lasting tells whether settled buckets that were read at the label may serve
// later calls. The buckets must have ended another Skew before: the clock of
// this process may have been ahead, and set back since by as much as goes
// unnoticed.
func (p *plan) lasting(label int64, b bounds) bool {
	return p.settledEnd(label, b) == p.settledEnd(label-p.skew, b)
}

// settledEnd is the end of the settled buckets of the ticket tier.
func (p *plan) settledEnd(label int64, b bounds) int64 {
	width := p.ladder.At(b.top).Width
	return tiers.Index(label-p.ending, width) * int64(width)
}

// unsettled appends the runs of the ticket tier that must be read after all
// additions are confirmed: the buckets between the settled part and the label's
// own bucket, for which the ticket stands, and the buckets to the right of the
// label's own, as far as another clock may be ahead when the clock of the
// caller reads now. In the steady state both are empty.
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

// whole appends the cover of a call that only reads, at now: all buckets that
// may hold hits by then, by any clock.
func (p *plan) whole(dst tiers.Cover, now int64, b bounds) tiers.Cover {
	return cover.Append(dst, p.tiers, now-b.reach, now+p.skew, b.fine, b.top, b.top)
}

// nearBoundary tells whether a bucket of tier top ends so close to the label,
// before or after, that callers on the two sides of the end can be in flight at
// once.
func (p *plan) nearBoundary(label int64, top int) bool {
	width := p.ladder.At(top).Width
	return tiers.Index(label-p.pending, width) != tiers.Index(label+p.ending, width)
}

// maxPending bounds the buckets read to tell pending hits from older hits.
const maxPending = 64

// pendingRun returns the buckets of the width that may hold hits which, for a call
// with the label, may still be undone at now.
func (p *plan) pendingRun(label, now int64, width time.Duration) tiers.Run {
	first, last := tiers.Index(label-p.pending, width), tiers.Index(now+p.skew, width)
	first = max(first, last-maxPending+1)
	return tiers.Run{Width: width, First: first, N: last - first + 1}
}

// nextKeep returns the number of the first tier that is kept for longer than
// tier i; without one, the number of tiers.
func (p *plan) nextKeep(i int) int {
	keep := p.tiers[i].Keep
	for i < len(p.tiers) && p.tiers[i].Keep == keep {
		i++
	}
	return i
}

// bucketAt returns the bucket of the tier that holds the label.
func (p *plan) bucketAt(label int64, tier int) tiers.Bucket {
	width := p.ladder.At(tier).Width
	return tiers.Bucket{Width: width, Index: tiers.Index(label, width)}
}

// ttl is the life of a bucket of tier t from its first hit on. After Width +
// Keep + Skew + Settle the bucket has left the longest window of the slowest
// clock. Another Skew + Settle serve stores that expire by the clocks of the
// callers, and hits whose additions are late.
func ttl(t tiers.Tier, skew, settle time.Duration) time.Duration {
	return t.Width + t.Keep + 2*(skew+settle)
}
