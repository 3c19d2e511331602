package ticket

import (
	"fmt"
	"math"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// Plan is the pure part of the protocol (docs/design.md): the choice of the
// buckets that a Take reads next to its additions, and of the buckets that it reads
// only afterwards; and the decision rule, [Excess]. A Plan knows no clock and no
// store, so that the model check runs the very code of a Take.
//
// Instants are nanoseconds since the Unix epoch. A label is the instant that a
// call has read from its own clock. A Plan is immutable.
type Plan struct {
	Ladder tiers.Ladder
	TTLs   []time.Duration // TTLs[i] is the life of a bucket of tier i from its first hit on

	tiers   []tiers.Tier // of the ladder
	widths  []int64      // of the tiers
	skew    int64        // largest difference between the clocks of two callers
	settle  int64        // longest time of a try, from its label to its last confirmed addition; 0 on a store with an atomic step
	ending  int64        // skew + settle: a bucket that ended so long before a label is settled
	pending int64        // skew + 2 settle: a hit so long before a label may still be taken back
}

// NewPlan returns the plan of a ladder. atomic says that the store has an atomic
// step: a try then has no end by which its additions must be confirmed.
func NewPlan(ladder tiers.Ladder, skew, settle time.Duration, atomic bool) Plan {
	p := Plan{Ladder: ladder, tiers: ladder.Tiers(), skew: int64(skew)}
	for _, t := range p.tiers {
		// After Width + Keep + Skew + Settle the bucket has left the longest window of
		// the slowest clock. Another Skew + Settle serve stores that expire by the
		// clocks of the callers, and hits whose additions are late.
		p.TTLs = append(p.TTLs, t.Width+t.Keep+2*(skew+settle))
		p.widths = append(p.widths, int64(t.Width))
	}
	if !atomic {
		p.settle = int64(settle)
	}
	p.ending, p.pending = p.skew+p.settle, p.skew+2*p.settle
	return p
}

// Excess is the decision rule: how many hits must leave w until n more have room.
// At zero or below, the n hits have room now: the count with them is at most Max.
func Excess(w *backend.Window, n int64) int64 { return Plus(w.Count, n) - w.Max }

// Plus adds counts, neither below zero, without wrapping.
func Plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Window writes a limit of at most most hits in any window of length per into w, as
// a store is asked for it: Max, Reach and Finest, with all answers zero. The error
// is that of a ladder without a tier for the limit.
func (p *Plan) Window(w *backend.Window, most int64, per time.Duration) error {
	finest, err := p.Ladder.Finest(per)
	if err == nil {
		*w = backend.Window{Max: most, Reach: p.reach(per), Finest: finest}
	}
	return err
}

// reach is the distance from the label back to the start of a window of length
// per: Per + Skew, since the labels of two hits that are Per apart in true time
// may be apart by Skew more. By ticket, a limit as wide as its ticket bucket
// reaches further by Settle: the last bucket is read whole until settled,
// Settle after its hits have left the window. Without the longer reach, from
// which RetryAfter is computed as well, a caller would be denied after the
// RetryAfter that an earlier denial told.
func (p *Plan) reach(per time.Duration) time.Duration {
	more := p.skew
	if p.settle > 0 {
		w := int64(p.Ladder.At(p.Ladder.Decision(per)).Width)
		more += max(0, p.settle-(int64(per)-w))
	}
	return per + time.Duration(more)
}

// Place sets the Reach of a window of a calendar period: from the label back to the start
// of the period that holds it. An error is an [ErrClock]: at this time, the ladder has no
// buckets that begin with the period, or keeps them for less.
func (p *Plan) Place(w *backend.Window, label int64) error {
	t := p.tiers[w.Finest]
	start, fits := w.Period.Start(label, t)
	if w.Reach = time.Duration(label - start); !fits {
		return fmt.Errorf("%w reads %v: the %s from %v on is no window of tier %s of ladder %q", ErrClock, time.Unix(0, label).UTC(), w.Period, time.Unix(0, start).UTC(), t, p.Ladder)
	}
	return nil
}

// bounds are the part of the ladder that a limit uses.
type bounds struct {
	reach int64 // from the label back to the begin of the window
	fine  int   // the finest tier
	left  int   // tier of the left edge: the finest, or of a coarse cover the decision tier
	top   int   // decision tier, whose increment is the ticket
	whole int   // coarsest tier of the settled part of the cover

	calendar bool
	end      int64 // of the calendar period
}

// bounds returns the bounds of a limit for a call with the label.
//
// The ticket of a limit is the ticket of its own decision tier, whatever the
// other limits of the call: callers with different limits on a key must get the
// tickets of a shared limit from one queue.
func (p *Plan) bounds(w *backend.Window, label int64) bounds {
	if !w.Period.IsZero() {
		start, end := w.Period.Span(label)
		return p.within(w.Finest, label, start, end)
	}
	b := bounds{reach: int64(w.Reach), fine: w.Finest, left: w.Finest, top: len(p.tiers) - 1}
	// By reach, the coarsest tier no wider than the reach without Skew and Settle is
	// the coarsest tier no wider than the window.
	for b.top > b.fine && int64(p.tiers[b.top].Width)+p.ending > b.reach {
		b.top--
	}
	b.whole = b.top
	return b
}

// within returns the bounds of a limit for a call with a label in the calendar period
// from start to end.
//
// The window begins with the period, whatever the clocks of other callers read: a hit
// belongs to the period of its label. So the cover has no partial bucket, and the
// decision tier is the coarsest whose buckets begin with the period: the same for all
// labels of the period. The settled part of the cover may be read in coarser tiers too,
// since all tiers have its hits.
func (p *Plan) within(fine int, label, start, end int64) bounds {
	b := bounds{reach: label - start, fine: fine, top: len(p.tiers) - 1, whole: len(p.tiers) - 1, calendar: true, end: end}
	for b.top > fine && (start%p.widths[b.top] != 0 || p.widths[b.top] > end-start) {
		b.top--
	}
	b.left = b.top
	return b
}

// coarse returns b with the left edge in the ticket tier. The settled part of
// the cover is then a single run, and counts a part of its oldest bucket too
// much.
func (b bounds) coarse() bounds {
	b.left = b.top
	return b
}

// Cover appends the runs from the bucket of tier fine that holds the instant from to
// the bucket of tier top that holds to.
func (p *Plan) Cover(dst tiers.Cover, from, to int64, fine, top int) tiers.Cover {
	return cover.Append(dst, p.widths, from, to, fine, top, top)
}

// settled appends the runs that may be read next to the additions: the cover of
// the limit, from the left edge to the first bucket of the ticket tier that is
// not settled. No hit that will be admitted can still arrive in these runs.
//
// The unsettled part is left to the ticket tier, as a whole. The additions of a
// call land one by one, and only in a single tier, the ticket's, is their order
// the same for all readers. A left edge at Per + Skew suffices only because the
// unsettled part is read in the ticket tier alone.
func (p *Plan) settled(dst tiers.Cover, label int64, b bounds) tiers.Cover {
	end := p.settledEnd(label, b) // early in a calendar period before its start
	return cover.Append(dst, p.widths, label-b.reach, end-1, b.left, b.whole, b.top)
}

// edge appends the exact left edge of a cover: the runs that the oldest bucket
// of the coarse cover stands for.
func (p *Plan) edge(dst tiers.Cover, label int64, b bounds) tiers.Cover {
	end := p.bucketAt(label-b.reach, b.top).End().UnixNano()
	return p.Cover(dst, label-b.reach, end-1, b.left, b.top)
}

// lasting reports whether settled buckets that were read at the label may serve
// later calls. The buckets must have ended another Skew before: the clock of
// this process may have been ahead, and set back since by as much as goes
// unnoticed.
func (p *Plan) lasting(label int64, b bounds) bool {
	return p.settledEnd(label, b) == p.settledEnd(label-p.skew, b)
}

// settledEnd is the end of the settled buckets of the ticket tier.
func (p *Plan) settledEnd(label int64, b bounds) int64 {
	width := p.tiers[b.top].Width
	return tiers.Index(label-p.ending, width) * int64(width)
}

// unsettled appends the runs of the ticket tier that must be read after all
// additions are confirmed: the buckets between the settled part and the label's
// own bucket, for which the ticket stands, and the buckets to the right of the
// label's own, as far as another clock may be ahead when the clock of the
// caller reads now. In the steady state both are empty. Hits from before a calendar
// period are settled or not, and no part of it.
func (p *Plan) unsettled(dst tiers.Cover, label, now int64, b bounds) tiers.Cover {
	own := p.bucketAt(label, b.top)
	if first := tiers.Index(p.openStart(label, b), own.Width); first < own.Index {
		dst = append(dst, tiers.Run{Width: own.Width, First: first, N: own.Index - first})
	}
	if last := tiers.Index(now+p.skew, own.Width); last > own.Index {
		dst = append(dst, tiers.Run{Width: own.Width, First: own.Index + 1, N: last - own.Index})
	}
	return dst
}

// whole appends the cover of a call that only reads, at now: all buckets that
// may hold hits by then, by any clock.
func (p *Plan) whole(dst tiers.Cover, now int64, b bounds) tiers.Cover {
	if b.calendar { // coarser tiers have settled hits only
		dst = p.settled(dst, now, b)
		return p.Cover(dst, p.openStart(now, b), now+p.skew, b.top, b.top)
	}
	return p.Cover(dst, now-b.reach, now+p.skew, b.left, b.top)
}

// openStart is the end of the settled part of a window, and the start of the part that is
// not settled.
func (p *Plan) openStart(label int64, b bounds) int64 {
	return max(p.settledEnd(label, b), label-b.reach)
}

// nearBoundary reports whether a bucket of tier top ends so close to the label,
// before or after, that callers on the two sides of the end can be in flight at
// once.
func (p *Plan) nearBoundary(label int64, top int) bool {
	return p.bucketAt(label-p.pending, top) != p.bucketAt(label+p.ending, top)
}

// maxYoung bounds the buckets read to tell young hits from older hits.
const maxYoung = 64

// young returns the buckets of a tier that may hold hits which, for a call with
// the label, may still be undone at now.
func (p *Plan) young(label, now int64, tier int) tiers.Run {
	first, last := p.bucketAt(label-p.pending, tier), p.bucketAt(now+p.skew, tier)
	first.Index = max(first.Index, last.Index-maxYoung+1)
	return tiers.Run{Width: first.Width, First: first.Index, N: last.Index - first.Index + 1}
}

// NextKeep returns the number of the first tier that is kept for longer than
// tier i; without one, the number of tiers.
func (p *Plan) NextKeep(i int) int {
	keep := p.tiers[i].Keep
	for i < len(p.tiers) && p.tiers[i].Keep == keep {
		i++
	}
	return i
}

// bucketAt returns the bucket of the tier that holds the label.
func (p *Plan) bucketAt(label int64, tier int) tiers.Bucket {
	width := p.tiers[tier].Width
	return tiers.Bucket{Width: width, Index: tiers.Index(label, width)}
}

// last returns the bucket of the tier that ends together with at, or that holds at,
// if at is finer.
func (p *Plan) last(at tiers.Bucket, tier int) tiers.Bucket {
	return p.bucketAt(at.End().UnixNano()-1, tier)
}

// Slots returns the buckets that hold the label: with a count of 0 to be added to, and
// with another as confirmed additions, to be undone.
func (p *Plan) Slots(label, count int64) []backend.Slot {
	slots := make([]backend.Slot, len(p.tiers))
	for i := range slots {
		slots[i] = backend.Slot{Bucket: p.bucketAt(label, i), TTL: p.TTLs[i], Count: count}
	}
	return slots
}

// Young is the time for which hits of calls in flight may refuse other calls: Skew +
// Settle.
func (p *Plan) Young() time.Duration { return time.Duration(p.ending) }
