package memcache

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

// separator stands between key and bucket in the name of an item. Keys may hold
// separators: the last separator counts.
const separator = '|'

const maxKey = 200

// checkKey returns an error for a key that no Counter makes.
func checkKey(key string) error {
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

// checkWidth returns an error for a width that no [tiers.Ladder] has.
func checkWidth(width time.Duration) error {
	if width < tiers.MinWidth {
		return fmt.Errorf("memcache: bucket width is %s, want at least %s", width, tiers.MinWidth)
	}
	return nil
}

// appendStem appends the name of an item of key and width, without the index.
func appendStem(dst []byte, key string, width time.Duration) []byte {
	dst = append(append(dst, key...), separator)
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

// itemName returns the name of the item of a bucket.
func itemName(key string, b tiers.Bucket) string {
	var buf [250]byte
	return string(strconv.AppendInt(appendStem(buf[:0], key, b.Width), b.Index, 10))
}

// parseCount parses the value of an item. A decr may leave trailing spaces. A
// value beyond MaxCount is an addition about to be taken back by its call,
// which has found the answer too large: such an item is full.
func parseCount(value []byte) (int64, error) {
	n, err := strconv.ParseUint(strings.TrimRight(string(value), " "), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("holds %.40q, want a count", value)
	case n > math.MaxInt64:
		return 0, beyond(n)
	}
	return int64(min(n, backend.MaxCount)), nil
}

// beyond is the error of a count that no additions can leave, not even for a
// moment.
func beyond(n uint64) error {
	return fmt.Errorf("holds %d, want at most %d", n, int64(backend.MaxCount))
}

const (
	// clockTick bounds the early expiry of items: memcached reads the clock
	// about once a second, and rounds its own start.
	clockTick = 2 * time.Second

	// maxRelative is the longest TTL that memcached does not read as a date.
	maxRelative = 30 * 24 * time.Hour
)

// standstill is the longest standstill of memcached after which items still
// live for their TTL. When memcached goes on, its clock is late by the
// standstill until the next reading of the machine's clock: an item created in
// between expires too early by as much. Items with a TTL below a minute get the
// same TTL again as a reserve.
const standstill = time.Minute

// slackOf returns the time for which an item lives beyond its TTL, but for the
// rounding to a second.
func slackOf(ttl time.Duration) time.Duration { return min(ttl, standstill) + clockTick }

// expiration returns the time to live to send, so that an item created at now
// lives for at least ttl.
func expiration(ttl time.Duration, now time.Time) (int32, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("memcache: TTL is %s, want above zero", ttl)
	}
	slack := slackOf(ttl)
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
