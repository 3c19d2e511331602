// Package cover computes the runs of buckets that touch without gap or overlap
// and fill a span of time. Package tiers shows the result for a window; package
// counter asks for other spans as well, with the tiers of its choice.
package cover

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Tier is the shape of tiers.Tier.
type Tier interface {
	~struct{ Width, Keep time.Duration }
}

// Run is the shape of tiers.Run.
type Run interface {
	~struct {
		Width    time.Duration
		First, N int64
	}
}

// Append appends to dst the runs from the bucket of tier fine that holds from,
// to the bucket of tier right that holds to; instants are nanoseconds since the
// Unix epoch. Between the edges Append uses tiers as coarse as top. There are at
// most 2*top-fine-right+1 runs, and Append allocates only if dst has no room for
// them. Want fine <= top, right <= top, from <= to.
func Append[C ~[]R, R Run, T Tier](dst C, tiers []T, from, to int64, fine, top, right int) C {
	start := Index(from, width(tiers, fine)) * width(tiers, fine)
	end := (Index(to, width(tiers, right)) + 1) * width(tiers, right)
	// Upwards on the left edge: each tier runs to the first beginning of a bucket
	// of the next coarser tier, if this bucket ends before the right edge.
	tier := fine
	for ; tier < top; tier++ {
		coarser := width(tiers, tier+1)
		next := -Index(-start, coarser) * coarser // start, rounded up
		if next > end-coarser {
			break
		}
		dst, start = run(dst, width(tiers, tier), start, next)
	}
	// Downwards on the right edge: each tier as far as whole buckets reach.
	for ; tier >= 0 && start < end; tier-- {
		w := width(tiers, tier)
		dst, start = run(dst, w, start, Index(end, w)*w)
	}
	return dst
}

func width[T Tier](tiers []T, i int) int64 {
	return int64((struct{ Width, Keep time.Duration })(tiers[i]).Width)
}

func run[C ~[]R, R Run](dst C, width, start, end int64) (C, int64) {
	if start >= end {
		return dst, start
	}
	return append(dst, R{Width: time.Duration(width), First: start / width, N: (end - start) / width}), end
}

// Merge sorts runs by width and first bucket, makes one run of the runs that touch
// or overlap, and returns the beginning of runs that holds the result: each bucket
// once.
func Merge[C ~[]R, R Run](runs C) C {
	type row = struct {
		Width    time.Duration
		First, N int64
	}
	slices.SortFunc(runs, func(a, b R) int {
		return cmp.Or(cmp.Compare(row(a).Width, row(b).Width), cmp.Compare(row(a).First, row(b).First))
	})
	merged := runs[:0]
	for _, r := range runs {
		next := row(r)
		if n := len(merged); n > 0 {
			last := row(merged[n-1])
			if last.Width == next.Width && next.First <= last.First+last.N {
				last.N = max(last.N, next.First+next.N-last.First)
				merged[n-1] = R(last)
				continue
			}
		}
		merged = append(merged, r)
	}
	return merged
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

// InRange tells whether t is between [MinTime] and [MaxTime].
func InRange(t time.Time) bool { return t.Unix() >= minUnix && t.Unix() < maxUnix }

// CheckTime returns an error if t is before [MinTime], or not before [MaxTime].
func CheckTime(t time.Time) error {
	if !InRange(t) {
		return fmt.Errorf("tiers: time %v is out of range, want years %d to %d", t, MinTime.Year(), MaxTime.Year())
	}
	return nil
}
