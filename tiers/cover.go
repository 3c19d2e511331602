package tiers

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/internal/dur"
)

// Run is a row of adjacent buckets of one width: First, First+1, ... in all N.
type Run struct {
	Width time.Duration // of each bucket
	First int64         // index of the oldest
	N     int64         // how many, above zero
}

// Start is the first instant of r.
func (r Run) Start() time.Time { return Bucket{r.Width, r.First}.Start() }

// End is the first instant after r.
func (r Run) End() time.Time { return Bucket{r.Width, r.First + r.N}.Start() }

// String tells width, number and span, such as
// "1m x 29 [2026-03-01T23:31:00Z, 2026-03-02T00:00:00Z)".
func (r Run) String() string {
	return fmt.Sprintf("%s x %d [%s, %s)", dur.Format(r.Width), r.N,
		r.Start().UTC().Format(time.RFC3339Nano), r.End().UTC().Format(time.RFC3339Nano))
}

// Cover is a handful of runs, oldest first, that touch without overlap or gap.
// The sum of their buckets is the count of the span from the start of the
// first run to the end of the last.
type Cover []Run

// Reads is the number of buckets in the cover.
func (c Cover) Reads() int64 {
	var n int64
	for _, r := range c {
		n += r.N
	}
	return n
}

// Cover is the cover that counts the window of the given length that ends now,
// decision tier and open right edge: from the bucket that holds now-window,
// whole, to the end of the decision tier's bucket that holds now. It has at
// most as many runs as the ladder has tiers. The error is that of
// [Ladder.Finest] or [CheckTime].
func (l Ladder) Cover(now time.Time, window time.Duration) (Cover, error) {
	return l.CoverWithin(now, window, 0)
}

// CoverWithin is [Ladder.Cover] where the clocks of those who count may be
// apart by skew, zero or more: it begins a skew earlier, and ends with the
// bucket of the decision tier that holds now+skew.
func (l Ladder) CoverWithin(now time.Time, window, skew time.Duration) (Cover, error) {
	fine, err := l.check(now, window)
	if err != nil {
		return nil, err
	}
	if skew < 0 || skew > MaxWindow {
		return nil, fmt.Errorf("tiers: skew %s, want 0 to %s", dur.Format(skew), dur.Format(MaxWindow))
	}
	ns, top := now.UnixNano(), l.Decision(window)
	from, to := ns-int64(window)-int64(skew), ns+int64(skew)
	return l.Append(make(Cover, 0, len(l.tiers)), from, to, fine, top, top), nil
}

// Textbook is the cover that textbooks draw: the window is rounded down to
// whole buckets of its finest tier, the last of them the one that holds now,
// and both ragged edges are added up, finer and finer. For a day it reads 141
// buckets where [Ladder.Cover] reads 84, in the mean over all phases of now;
// it drops what lies in the cut bucket at its left edge, and it is not safe to
// decide by while others count: a slow caller does not see what a faster one
// has counted right of its own second.
func (l Ladder) Textbook(now time.Time, window time.Duration) (Cover, error) {
	fine, err := l.check(now, window)
	if err != nil {
		return nil, err
	}
	width := int64(l.tiers[fine].Width)
	last := Index(now.UnixNano(), l.tiers[fine].Width) * width
	from := last - (int64(window)/width-1)*width
	return l.Append(make(Cover, 0, 2*len(l.tiers)-1), from, last, fine, len(l.tiers)-1, fine), nil
}

func (l Ladder) check(now time.Time, window time.Duration) (fine int, err error) {
	if err := CheckTime(now); err != nil {
		return 0, err
	}
	return l.Finest(window)
}

// Append appends to dst the runs from the bucket of tier fine that holds from,
// to the bucket of tier right that holds to; instants are nanoseconds since
// the Unix epoch. Between the edges it uses tiers as coarse as top. It is what
// all covers are made of, and allocates only if dst has no room: there are at
// most 2*top-fine-right+1 runs. Want fine <= top, right <= top, from <= to.
func (l Ladder) Append(dst Cover, from, to int64, fine, top, right int) Cover {
	start := Index(from, l.tiers[fine].Width) * int64(l.tiers[fine].Width)
	end := (Index(to, l.tiers[right].Width) + 1) * int64(l.tiers[right].Width)
	// Upwards on the left edge: each tier runs to where the next coarser one
	// has a bucket that begins, as long as that bucket ends before the edge.
	tier := fine
	for ; tier < top; tier++ {
		coarser := l.tiers[tier+1].Width
		next := -Index(-start, coarser) * int64(coarser) // start, rounded up
		if next > end-int64(coarser) {
			break
		}
		dst, start = l.run(dst, tier, start, next)
	}
	// Downwards on the right edge: each tier as far as its whole buckets go.
	for ; tier >= 0 && start < end; tier-- {
		width := l.tiers[tier].Width
		dst, start = l.run(dst, tier, start, Index(end, width)*int64(width))
	}
	return dst
}

func (l Ladder) run(dst Cover, tier int, start, end int64) (Cover, int64) {
	if start >= end {
		return dst, start
	}
	width := int64(l.tiers[tier].Width)
	return append(dst, Run{l.tiers[tier].Width, start / width, (end - start) / width}), end
}
