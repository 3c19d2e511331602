// Package cover computes the runs of buckets that touch without gap or overlap
// and fill a span of time. Package tiers shows the result for a window; package
// ticket asks for other spans as well, with the tiers of its choice.
package cover

import (
	"fmt"
	"time"
)

// Append appends to dst the runs from the bucket of tier fine that holds from, to the
// bucket of tier right that holds to. Instants and the widths of the tiers, finest
// first, are nanoseconds. Between the edges Append uses tiers as coarse as top. There
// are at most 2*top-fine-right+1 runs, and Append allocates only if dst has no room
// for them. Want fine <= top, right <= top, from <= to.
func Append[C ~[]R, R ~struct {
	Width    time.Duration
	First, N int64
}](dst C, widths []int64, from, to int64, fine, top, right int) C {
	start := Index(from, widths[fine]) * widths[fine]
	end := (Index(to, widths[right]) + 1) * widths[right]
	for tier := fine; start < end; {
		width, next := widths[tier], int64(0)
		if tier < top {
			// Upwards on the left edge, to the first start of a coarser bucket, if this
			// bucket ends before the right edge.
			coarser := widths[tier+1]
			if next = -Index(-start, coarser) * coarser; next > end-coarser {
				top = tier
				continue
			}
			tier++
		} else {
			// Downwards on the right edge, as far as whole buckets reach.
			next = Index(end, width) * width
			tier--
			top = tier
		}
		if start < next {
			dst = append(dst, R{Width: time.Duration(width), First: start / width, N: (next - start) / width})
			start = next
		}
	}
	return dst
}

// Index is the number of the bucket of the given width that holds the instant
// ns: ns/width, rounded down, also before 1970.
func Index(ns, width int64) int64 {
	q := ns / width
	if ns%width < 0 {
		q--
	}
	return q
}

// MinTime and MaxTime bound the times that buckets are numbered for: nanoseconds
// since 1970 in 63 bits end in 2262, and the longest window must fit on either side.
var (
	MinTime = time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC)
	MaxTime = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)
)

var minUnix, maxUnix = MinTime.Unix(), MaxTime.Unix()

// InRange reports whether t is between [MinTime] and [MaxTime].
func InRange(t time.Time) bool { return t.Unix() >= minUnix && t.Unix() < maxUnix }

// CheckTime returns an error if t is before [MinTime], or not before [MaxTime].
func CheckTime(t time.Time) error {
	if !InRange(t) {
		return fmt.Errorf("tiers: time %v is out of range, want years %d to %d", t, MinTime.Year(), MaxTime.Year())
	}
	return nil
}
