// Package item defines the item of a bucket on memcached: its name, its value
// and its expiry. The two stores on memcached have it in common, so that one
// reads what the other has counted.
package item

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Separator stands between key and bucket in the name of an item. Keys may hold
// separators: the last separator counts.
const Separator = '|'

// MaxName is the longest name of an item of memcached, in bytes.
const MaxName = 250

const maxKey = 200

// Begin checks a request, and clears what a store is to fill in.
func Begin(r *backend.Request) error {
	r.Ordered = false
	for i := range r.Add {
		r.Add[i].Count = 0
	}
	if err := CheckKey(r.Key); err != nil {
		return err
	}
	if n := r.N; len(r.Add) > 0 && (n == 0 || n > backend.MaxCount || n < -backend.MaxCount) {
		return fmt.Errorf("memcache: Request.N is %d, want 1 to %d, or the same below zero", n, int64(backend.MaxCount))
	}
	for i := range r.Add {
		if err := CheckWidth(r.Add[i].Width); err != nil {
			return err
		}
	}
	for i := range r.Read {
		span := &r.Read[i]
		if err := CheckWidth(span.Width); err != nil {
			return err
		}
		if n := int64(len(span.Counts)); span.First > math.MaxInt64-n {
			return fmt.Errorf("memcache: Span of %d buckets from index %d, want indexes of 64 bits", n, span.First)
		}
	}
	return nil
}

// CheckKey returns an error for a key that no Counter makes.
func CheckKey(key string) error {
	if len(key) == 0 || len(key) > maxKey {
		return fmt.Errorf("memcache: Key has %d bytes, want 1 to %d", len(key), maxKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return fmt.Errorf("memcache: Key has byte %#02x at index %d, want printable ASCII without spaces", key[i], i)
		}
	}
	return nil
}

// CheckWidth returns an error for a width that no [tiers.Ladder] has.
func CheckWidth(width time.Duration) error {
	if width < tiers.MinWidth {
		return fmt.Errorf("memcache: bucket width is %s, want at least %s", width, tiers.MinWidth)
	}
	return nil
}

// AppendStem appends the name of an item of key and width, without the index.
func AppendStem(dst []byte, key string, width time.Duration) []byte {
	dst = append(append(dst, key...), Separator)
	switch width {
	case time.Second:
		return append(dst, "1s"...)
	case time.Minute:
		return append(dst, "1m"...)
	case time.Hour:
		return append(dst, "1h"...)
	}
	return append(dst, dur.Format(width)...)
}

// AppendName appends the name of the item of a bucket.
func AppendName(dst []byte, key string, b tiers.Bucket) []byte {
	return strconv.AppendInt(AppendStem(dst, key, b.Width), b.Index, 10)
}

// Name returns the name of the item of a bucket.
func Name(key string, b tiers.Bucket) string {
	var buf [MaxName]byte
	return string(AppendName(buf[:0], key, b))
}

// Bucket returns the text of the bucket in the name of an item. The key before
// it may hold a personal address, so only the bucket is put into errors.
func Bucket(name string) string { return name[strings.LastIndexByte(name, Separator)+1:] }

// Count parses the value of an item. A decr may leave trailing spaces. A value
// beyond MaxCount is an addition about to be undone by its call, which has found
// the answer too large: such an item is full.
func Count(value []byte) (int64, error) {
	n, err := strconv.ParseUint(strings.TrimRight(string(value), " "), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("holds %.40q, want a count", value)
	}
	return Rest(n)
}

// Rest returns the count of an item that holds n.
func Rest(n uint64) (int64, error) {
	if n > math.MaxInt64 { // no additions can leave so much, not even for a moment
		return 0, fmt.Errorf("holds %d, want at most %d", n, int64(backend.MaxCount))
	}
	return int64(min(n, backend.MaxCount)), nil
}

// errHuge is the error of a count that no additions of stores can reach.
var errHuge = fmt.Errorf("held a number of 2^63 or more, want a count of at most %d", int64(backend.MaxCount))

// Sum returns the count after an addition of n whose answer is sum. memcached
// knows no MaxCount, and wraps to zero at 2^64. If made is true next to an error,
// the addition was made and must be undone.
func Sum(n int64, sum uint64) (count int64, made bool, err error) {
	switch {
	case sum < uint64(n) || sum > math.MaxInt64:
		return 0, false, errHuge
	case sum > backend.MaxCount:
		return 0, true, fmt.Errorf("would hold %d: %w", sum, backend.ErrMaxCount)
	}
	return int64(sum), true, nil
}

const (
	// clockTick bounds the early expiry of items: memcached reads the clock
	// about once a second, and rounds its own start.
	clockTick = 2 * time.Second

	// maxRelative is the longest TTL that memcached does not read as a date.
	maxRelative = 30 * 24 * time.Hour
)

// Standstill is the longest standstill of memcached after which items still
// live for their TTL. When memcached goes on, its clock is late by the
// standstill until the next reading of the machine's clock: an item created in
// between expires too early by as much. Items with a TTL below a minute get the
// same TTL again as a reserve.
const Standstill = time.Minute

// Slack returns the time for which an item lives beyond its TTL, but for the
// rounding to a second.
func Slack(ttl time.Duration) time.Duration { return min(ttl, Standstill) + clockTick }

// Expiry returns the time to live to send, so that an item created at now lives
// for at least ttl: in seconds, or a date beyond 30 days.
func Expiry(ttl time.Duration, now time.Time) (int32, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("memcache: TTL is %s, want above zero", ttl)
	}
	slack := Slack(ttl)
	if ttl <= maxRelative-slack {
		return int32((ttl + slack + time.Second - 1) / time.Second), nil
	}
	ends := now.Add(ttl).Add(slack + time.Second - 1).Unix()
	if ends > math.MaxInt32 {
		return 0, fmt.Errorf("memcache: TTL %s ends after %s, the last date that a memcached item can have",
			dur.Format(ttl), time.Unix(math.MaxInt32, 0).UTC().Format(time.DateOnly))
	}
	return int32(ends), nil
}
