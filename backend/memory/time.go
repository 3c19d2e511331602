package memory

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// Instants are nanoseconds since the Unix epoch.
const (
	never   = math.MinInt64 // before all instants
	forever = math.MaxInt64 // after all instants
)

// begin is the instant of a call's label. An error tells that the call should
// have returned already, or that the label is out of range.
func begin(ctx context.Context, deadline, now time.Time) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return 0, fmt.Errorf("memory: %w", os.ErrDeadlineExceeded)
	}
	if !cover.InRange(now) {
		return 0, fmt.Errorf("memory: %w", cover.CheckTime(now))
	}
	return now.UnixNano(), nil
}

// cutoff is the latest start of a bucket of the given width that lies wholly
// before now-reach: buckets starting after the cutoff count. The result
// saturates: reach and width are zero or more, and of any size.
func cutoff(now, reach, width int64) int64 {
	c := now - reach
	if c > now || c-width > c {
		return never
	}
	return c - width
}

// plus is a+d for d of zero or more, at most forever.
func plus(a, d int64) int64 {
	if s := a + d; s >= a {
		return s
	}
	return forever
}

// bucketAt is the bucket of the given width from start on.
func bucketAt(start, width int64) tiers.Bucket {
	return tiers.Bucket{Width: time.Duration(width), Index: cover.Index(start, width)}
}

// latest is a cache of divisions: the buckets of one layout that held the latest
// label. A label in the same buckets needs no division; three divisions of 64
// bits are 10 ns of a Take's 60.
type latest struct {
	layout *layout
	at     [tiers.MaxTiers]struct{ start, index int64 } // of tier i
}

// additions appends the buckets to dst.
func (l *latest) additions(dst []addition) []addition {
	for i := range l.layout.tiers {
		dst = append(dst, addition{i, l.at[i].start})
	}
	return dst
}

// set makes l the buckets of p that hold now.
func (l *latest) set(p *layout, now int64) {
	fresh := l.layout != p
	l.layout = p
	for i := range p.tiers {
		b, width := &l.at[i], p.tiers[i].width
		if fresh || uint64(now-b.start) >= uint64(width) {
			b.index = cover.Index(now, width)
			b.start = b.index * width
		}
	}
}
