package memory

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/abacus-go/abacus/internal/cover"
)

// Instants are nanoseconds since the Unix epoch.
const (
	never   = math.MinInt64 // before all instants
	forever = math.MaxInt64 // after all instants
)

// begin returns the instant of a call's label. An error says that the call should
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

// cutoff returns the latest start of a bucket of the given width that lies wholly
// before now-reach. The result saturates: reach and width are zero or more, and of
// any size.
func cutoff(now, reach, width int64) int64 {
	c := now - reach
	if c > now || c-width > c {
		return never
	}
	return c - width
}

// plus returns a+d for d of zero or more, at most forever.
func plus(a, d int64) int64 {
	if s := a + d; s >= a {
		return s
	}
	return forever
}

// floor returns the start of the bucket of the given width that holds at.
func floor(at, width int64) int64 { return cover.Index(at, width) * width }
