package memory

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// late is the error of a call that should have returned already.
func late(ctx context.Context, deadline time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return fmt.Errorf("memory: %w", os.ErrDeadlineExceeded)
	}
	return nil
}

var minUnix, maxUnix = cover.MinTime.Unix(), cover.MaxTime.Unix()

// instant is t in nanoseconds since the Unix epoch.
func instant(t time.Time) (int64, error) {
	if sec := t.Unix(); sec < minUnix || sec >= maxUnix {
		if err := cover.CheckTime(t); err != nil {
			return 0, fmt.Errorf("memory: %w", err)
		}
	}
	return t.UnixNano(), nil
}

// inRange is an error if the span of b does not lie within 63 bits of
// nanoseconds.
func inRange(b tiers.Bucket) error {
	if b.Width <= 0 {
		return fmt.Errorf("memory: a bucket of width %s, want above zero", b.Width)
	}
	if w := int64(b.Width); b.Index > math.MaxInt64/w-1 || b.Index < math.MinInt64/w+1 {
		return fmt.Errorf("memory: bucket %d of width %s is out of range", b.Index, b.Width)
	}
	return nil
}

// full is the error of an addition of n to a bucket of a tier whose buckets
// would then hold more than MaxCount: an ErrMaxCount.
func full(width, sum, n int64) error {
	return fmt.Errorf("memory: the key's buckets of %s hold %d, %d more is beyond %d: %w", time.Duration(width), sum, n, int64(backend.MaxCount), backend.ErrMaxCount)
}

// bucket is the bucket of that width that starts at start.
func bucket(start, width int64) tiers.Bucket {
	return tiers.Bucket{Width: time.Duration(width), Index: floorDiv(start, width)}
}
