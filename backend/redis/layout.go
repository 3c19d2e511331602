package redis

import (
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// docs/storage.md shows every stored byte.
//
// Tiers that are kept equally long are one group. Only the buckets of a group's
// finest tier are stored, as running sums, so the count of any bucket or window
// of the group is the difference of two sums. The sums stand in one value, the
// root; the buckets of a busy stretch of time move into a leaf of their own.
// Both sums of a difference are read in the same atomic step.

const (
	perBucket = 8          // positions: of the bucket, and of the kinds of a leaf that ends there
	bias      = 3600 << 32 // added to a bucket's number: the sum is positive from 1700 on, even of a millisecond

	// maxLive is the most buckets from the oldest that is needed to now. Positions in
	// a root have four bytes, and a new root begins so many buckets before the first;
	// a bucket before the beginning would be dropped.
	maxLive = 3456000000 / perBucket
)

// group is a run of tiers with one Keep: first is the finest.
type group struct {
	number      int
	first, last int           // tiers
	width       time.Duration // of the finest
	coarsest    time.Duration // width
	leaf        int           // buckets of a stretch that can have a leaf
}

// groupsOf appends the groups of a ladder.
func groupsOf(dst []group, l tiers.Ladder) []group {
	for i := range l.Len() {
		t := l.At(i)
		if l.Base(i) < i {
			g := &dst[len(dst)-1]
			g.last, g.coarsest = i, t.Width
			continue
		}
		dst = append(dst, group{number: len(dst), first: i, last: i, width: t.Width, coarsest: t.Width, leaf: leafOf(t)})
	}
	return dst
}

// leafOf returns the number of buckets in a leaf of the tier: many, so that a root has
// few entries, but at most a quarter of all kept buckets, since a value outlives the
// last hit by the length of a leaf. Each number divides bias.
func leafOf(t tiers.Tier) int {
	for _, n := range []int{3600, 600} {
		if int64(t.Keep/t.Width) >= 4*int64(n) {
			return n
		}
	}
	return 60
}

func (g group) leafPositions() uint64 { return uint64(g.leaf) * perBucket }

// rootName returns the stored key of a group. The braces make Redis Cluster keep all
// values of a key together; the key itself has no braces. The letter changes with the
// format, so that values of another format are not found: small letters had leaves
// without their kind in the name, and A to H had no head.
func (g group) rootName(key string) string {
	return "{" + key + "}" + string(rune('P'+g.number))
}

// position returns the position of a bucket of the finest tier. The last three bits
// are free for the kind of an entry.
func position(index int64) uint64 { return uint64(index+bias) * perBucket }

// bucketAt returns the index of the bucket at a position, of whatever kind.
func bucketAt(position uint64) int64 { return int64(position/perBucket) - bias }

// ttl returns the time to live that a write gives a value: the time to live of a bucket,
// the time until a write renews the value's, and the time of late calls.
func (g group) ttl(bucket time.Duration) time.Duration {
	return bucket + time.Duration(g.leaf+1)*g.width + g.late()
}

// late returns the time for which a bucket is kept beyond its time to live, for calls
// with an older label than the newest: the caller's clock is behind, or the call took
// long. A minute is the longest wait of a Counter for an answer; of fine buckets, a
// minute would be many, and a step that comes later gets another label.
func (g group) late() time.Duration {
	return min(max(time.Second, time.Duration(g.leaf)*g.width/4), maxLate)
}

const maxLate = time.Minute

// fits returns an error if a root cannot hold all buckets that are needed at a time.
func (g group) fits(ttl time.Duration) error {
	if live := int64((ttl+g.late()+g.coarsest)/g.width) + int64(g.leaf); live > maxLive {
		return fmt.Errorf("%d buckets of %s are needed at a time, want at most %d: keep them for a shorter time", live, g.width, maxLive)
	}
	return nil
}

// stale returns the first bucket that may still be needed at now, or at a time shortly
// before now, if each lives for ttl. The buckets in a coarse bucket are dropped
// together, as late as the last, since the coarse bucket's count is the sum of the
// buckets' counts.
func (g group) stale(now int64, ttl time.Duration) int64 {
	return tiers.Index(now-int64(ttl+g.late()), g.coarsest) * int64(g.coarsest/g.width)
}

// errDamaged is the error for a value of another shape than this store writes.
var errDamaged = errors.New("what is stored for this key was not written by this store")
