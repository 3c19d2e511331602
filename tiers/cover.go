package tiers

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/dur"
)

// Bucket is the span [Index*Width, (Index+1)*Width) since the Unix epoch.
type Bucket struct {
	Width time.Duration // length of the span, above zero
	Index int64         // how many widths after the epoch it starts; negative before 1970
}

// Start is the first instant of b.
func (b Bucket) Start() time.Time { return time.Unix(0, b.Index*int64(b.Width)) }

// End is the first instant after b.
func (b Bucket) End() time.Time { return time.Unix(0, (b.Index+1)*int64(b.Width)) }

// String names b by its width and its start in UTC, such as "1m@2026-03-01T23:30:00Z".
func (b Bucket) String() string {
	return dur.Format(b.Width) + "@" + b.Start().UTC().Format(time.RFC3339Nano)
}

// Index is the number of the bucket of the given width that holds the instant
// ns, in nanoseconds since the Unix epoch: ns/width, rounded down, also before
// 1970.
func Index(ns int64, width time.Duration) int64 { return cover.Index(ns, int64(width)) }

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

// Cover is a list of runs, oldest first, that touch without overlap or gap. The
// sum of all buckets is the count of the span from the start of the first run to
// the end of the last.
type Cover []Run

// Reads is the number of buckets in the cover.
func (c Cover) Reads() int64 {
	var n int64
	for _, r := range c {
		n += r.N
	}
	return n
}

// Cover is the cover of the window of the given length that ends now: from the
// bucket of the finest tier that holds now-window-skew to the end of the decision
// tier's bucket that holds now+skew. Both buckets are read whole. There is at most
// one run for each tier.
//
// Skew is the distance that the clocks of the callers that count may have, zero
// for one clock. Cover returns an error for a time before the year 1700 or after
// 2249, for a window that [Ladder.Finest] has no tier for, and for a skew below
// zero or above [MaxWindow].
func (l Ladder) Cover(now time.Time, window, skew time.Duration) (Cover, error) {
	if err := cover.CheckTime(now); err != nil {
		return nil, err
	}
	fine, err := l.Finest(window)
	if err != nil {
		return nil, err
	}
	if skew < 0 || skew > MaxWindow {
		return nil, fmt.Errorf("tiers: skew %s, want 0 to %s", dur.Format(skew), dur.Format(MaxWindow))
	}
	widths := make([]int64, len(l.tiers))
	for i, t := range l.tiers {
		widths[i] = int64(t.Width)
	}
	ns, top := now.UnixNano(), l.Decision(window)
	from, to := ns-int64(window)-int64(skew), ns+int64(skew)
	return cover.Append(make(Cover, 0, len(l.tiers)), widths, from, to, fine, top, top), nil
}
