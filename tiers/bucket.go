package tiers

import (
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
