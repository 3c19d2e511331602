package memcache

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// separator stands between key and bucket in the name of an item. It may occur
// in keys: what counts is the last one.
const separator = '|'

const maxKey = 200

// checkKey is an error if key is not what a Store is promised.
func checkKey(key string) error {
	if len(key) == 0 || len(key) > maxKey {
		return fmt.Errorf("memcache: a key of %d bytes, want 1 to %d", len(key), maxKey)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return errors.New("memcache: a key with other bytes, want printable ASCII without spaces")
		}
	}
	return nil
}

// checkWidth is an error if width is none of a [tiers.Ladder].
func checkWidth(width time.Duration) error {
	if width < tiers.MinWidth {
		return fmt.Errorf("memcache: a bucket of width %s, want at least %s", width, tiers.MinWidth)
	}
	return nil
}

// appendStem appends the name of the items of key that are of that width,
// without the index.
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

// itemName is the name of the item of a bucket.
func itemName(key string, b tiers.Bucket) string {
	var buf [250]byte
	return string(strconv.AppendInt(appendStem(buf[:0], key, b.Width), b.Index, 10))
}

// parseCount reads the value of an item. decr pads it with spaces. What is beyond
// MaxCount is an addition that is about to be taken back again, by whoever finds
// its answer too large: such an item is full.
func parseCount(value []byte) (int64, error) {
	n, err := strconv.ParseUint(strings.TrimRight(string(value), " "), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("holds %.40q, which is no count", value)
	case n > math.MaxInt64:
		return 0, beyond(n)
	}
	return int64(min(n, backend.MaxCount)), nil
}

// beyond is the error of a count that no additions leave behind, not even for a
// moment.
func beyond(n uint64) error {
	return fmt.Errorf("holds %d, which is beyond %d", n, int64(backend.MaxCount))
}

const (
	// clockTick is how far memcached's clock, which it reads about once a
	// second, and the rounding of its own start may make an item expire early.
	clockTick = 2 * time.Second

	// maxRelative is the longest TTL that memcached does not take for a date.
	maxRelative = 30 * 24 * time.Hour
)

// standstill is how long memcached may stand still without an item living for
// less than its TTL. When it goes on it answers by a clock that is as old as the
// standstill, until it has looked at the machine's: an item made then ends that
// much too early. Items of a TTL below a minute have as much again.
const standstill = time.Minute

// expiration is what memcached is told so that an item made at now lives for
// ttl at least.
func expiration(ttl time.Duration, now time.Time) (int32, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("memcache: TTL %s, want above zero", ttl)
	}
	slack := min(ttl, standstill) + clockTick
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
