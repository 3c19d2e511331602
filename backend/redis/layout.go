package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// What is stored, byte by byte: docs/storage.md.
//
// Tiers that are kept equally long are one group. Only the buckets of its
// finest tier are stored, as running sums, so the count of any bucket or window
// of the group is the difference of two of them. They stand in one value, the
// root; the buckets of a busy stretch of time move into a leaf of their own.
// Nothing that is kept is subtracted from what is not: each difference is
// taken within one atomic step.

const (
	perBucket = 8          // positions: the bucket itself, and the kinds of a leaf that ends there
	bias      = 3600 << 32 // added to a bucket's number so that it is above zero from 1700 on, even of a millisecond

	// maxLive is how many buckets there may be from the oldest that is needed to
	// now. Positions in a root are of four bytes, and BACK of root.lua keeps room
	// for so many before a new bucket; what is further back would be dropped.
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

// leafOf is how many buckets a leaf of the tier has: many, so that a root has
// few, but no more than a quarter of what is kept, since it is by a leaf that what
// is stored outlives its last hit. All of them divide bias.
func leafOf(t tiers.Tier) int {
	for _, n := range []int{3600, 600} {
		if int64(t.Keep/t.Width) >= 4*int64(n) {
			return n
		}
	}
	return 60
}

func (g group) leafPositions() uint64 { return uint64(g.leaf) * perBucket }

// rootName is where a group of a key is stored. The braces make Redis Cluster
// keep all that belongs to a key together; a stored key has none itself. The
// letter changes with the format, so that what was written in another one is not
// found: small letters had leaves that did not say their kind.
func (g group) rootName(key string) string {
	return "{" + key + "}" + string(rune('A'+g.number))
}

// position is how bucket number index of the finest tier is written: what stands
// there is said by the three bits that are left.
func position(index int64) uint64 { return uint64(index+bias) * perBucket }

// bucketAt is the number of the bucket at a position.
func bucketAt(position uint64) int64 { return int64(position/perBucket) - bias }

// ttl is how long what is written now must live: as long as the bucket asks
// for, as much longer as it is before the time to live is set anew, and for those
// who are late.
func (g group) ttl(bucket time.Duration) time.Duration {
	return bucket + time.Duration(g.leaf+1)*g.width + g.late()
}

// late is how much longer than a bucket asks for it is kept, for calls whose label
// is behind others': their clocks are, or they are under way for long. A minute is
// the longest that a Counter waits for an answer; where buckets are fine, that would
// be many of them.
func (g group) late() time.Duration {
	return min(max(time.Second, time.Duration(g.leaf)*g.width/4), time.Minute)
}

// fits tells with an error if a root cannot hold all that is needed at a time.
func (g group) fits(ttl time.Duration) error {
	if live := int64((ttl+g.late()+g.coarsest)/g.width) + int64(g.leaf); live > maxLive {
		return fmt.Errorf("%d buckets of %s are needed at a time, want at most %d: keep them for a shorter time", live, g.width, maxLive)
	}
	return nil
}

// stale is before which bucket none is needed any more at now, if each lives for
// ttl, or at a time shortly before now. Those of a coarse bucket go together, as late as the last of them: until
// then it is their sum.
func (g group) stale(now int64, ttl time.Duration) int64 {
	return tiers.Index(now-int64(ttl+g.late()), g.coarsest) * int64(g.coarsest/g.width)
}

// program is what a script is told to do, in one argument. It begins with a byte
// that says what to do with hits, one that is 1 if whatever was dropped does not
// matter, and until when, in microseconds of the server's clock, in seven bytes: 0 is
// at any time.
type program []byte

const (
	modeAt      = 0
	dueAt       = 2
	programHead = 9
)

// What to do with hits: take.lua and do.lua.
const (
	modeCount    = 0
	modePeek     = 1
	modeBack     = 2 // take back what the same program has added
	modePartBack = 3 // the same, but of no soft key
)

// How an answer begins that is one string.
const (
	deniedByte = 0
	takenByte  = 1
	lateByte   = 2
	partByte   = 3 // taken, but not from all soft keys
)

// Flags of a root for take.lua.
const (
	sameKey = 1 // as the root before
	softKey = 2
)

// begin writes the head.
func (p *program) begin(mode byte, any bool) {
	*p = append(*p, mode)
	p.flag(any)
	p.uint(0, 7)
}

// by sets until when hits may be counted.
func (p program) by(due uint64) {
	for i := range 7 {
		p[dueAt+i] = byte(due >> (8 * (6 - i)))
	}
}

func (p *program) uint(n uint64, bytes int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	*p = append(*p, b[8-bytes:]...)
}

func (p *program) flag(b bool) {
	if b {
		*p = append(*p, 1)
	} else {
		*p = append(*p, 0)
	}
}

func (p *program) index(i int64)      { p.uint(position(i), 6) }
func (p *program) ms(d time.Duration) { p.uint(uint64((d+time.Millisecond-1)/time.Millisecond), 6) }

// errDamaged is what is read where somebody else has written.
var errDamaged = errors.New("what is stored for this key was not written by this store")
