package counter

import (
	"context"
	"errors"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// ErrStore is what [errors.Is] finds in an error that is the store's: it could
// not be reached, answered too late or wrongly, or has no room. Any other
// error of a [Counter] is the caller's mistake or the caller's context.
var ErrStore = errors.New("the store failed")

// ErrStaleLabel is the error of a [Store] that drops buckets by the labels of
// its callers, and is asked with a label before what it has dropped of the key:
// it cannot tell what that label's window held. Nothing was added. The Counter
// reads its clock again and asks with the new label. A store that keeps each
// bucket for its TTL by the clock of a server has no use for it.
var ErrStaleLabel = errors.New("the label is older than what the store has dropped of the key")

// ErrMaxCount is the error of a [Store] for an addition after which it would
// count more than [MaxCount] of the key. Nothing was added to that bucket; the
// Slots of others tell whether they were added to, as with any error. The
// Counter makes a denial of it.
var ErrMaxCount = errors.New("the count would exceed 2^53-1")

// Store is where the buckets are. Most readers want [New] with one of the
// packages under backend/ and can look away from here; docs/backends.md is for
// those who write a store of their own.
//
// A Store is used by many goroutines at once.
type Store interface {
	// Do adds op.N to each bucket of op.Add and reads the runs of op.Read, all
	// for op.Key and all in one round trip; additions and reads may happen in
	// any order, each bucket by itself, but each addition is atomic: no two
	// that succeed return the same place.
	//
	// It must return promptly when ctx is done, and by op.Deadline, with an
	// error; when either has passed already, it sends nothing. It must never
	// return nil unless every addition was made and every bucket was read: a
	// bucket that could not be read is an error, not a zero. If it returns an
	// error, a Slot whose Count is above zero was added to for certain, of any
	// other Slot nothing is known, and no Span may be used. An addition without
	// an answer must not be sent again. A store that hears the answer to an
	// addition after Do has returned an error may take it back, once.
	//
	// op and all that it points to belong to the caller as soon as Do returns:
	// what a goroutine still needs by then must be a copy. The Counter wraps
	// errors in ErrStore; a store need not.
	Do(ctx context.Context, op *Op) error
}

// Op is one round trip to a [Store], for one key.
type Op struct {
	Key      string       // printable ASCII without spaces and braces, 1 to 200 bytes, made by the Counter
	Ladder   tiers.Ladder // that the key is counted on, always the same one for a key
	Now      time.Time    // the caller's clock, which decides what has expired in a store without a clock of its own
	Deadline time.Time    // when Do must have returned, on the machine's clock; zero: the store's own timeout, if it has one

	// N is added to each bucket of Add: 1 to MaxCount. Below zero it takes
	// back, down to -MaxCount: a bucket stops at 0, and one that is not there
	// stays away. A bucket counts to MaxCount: an addition beyond is an error,
	// never a smaller number.
	//
	// Who adds to a bucket of one tier adds as much to those of all tiers that
	// hold the same instant, so a store may keep the finer and work out the
	// coarser from them, and may refuse an addition that takes the sum over all
	// that it keeps of a key beyond MaxCount. What is taken back may be named in
	// some tiers only; it must be gone when all tiers were named.
	N   int64
	Add []Slot // each bucket once

	// AnyLabel asks a store that knows [ErrStaleLabel] to go by what it still
	// has: the caller's clock stands still, or was set back.
	AnyLabel bool

	Read []Span
}

// Slot is a bucket to add to.
type Slot struct {
	tiers.Bucket
	TTL   time.Duration // how long the bucket must live from Op.Now on if it is created now, above zero; a store adds its server's own rounding
	Count int64         // filled in, zeroed first: what the bucket holds after the addition
}

// Span is a run of adjacent buckets to read.
type Span struct {
	Width  time.Duration // of each bucket
	First  int64         // index of the oldest
	Counts []int64       // filled in, every one: Counts[i] is bucket First+i; one that is missing is 0
}

// Taker is a [Store] that can check and add in one atomic step. It is optional:
// a Counter uses it where it is there.
type Taker interface {
	Store

	// Take finds the count of every Window of every Demand: the sum of the
	// buckets of tier Window.Finest from the one that holds Now-Per-Slack on,
	// at least as far as the one that holds Now+Slack, better without an upper
	// end. If all of them have room for N, and it is no Peek,
	// it adds N to the bucket of each tier of the Ladder that holds Now, for
	// every Demand; otherwise it writes nothing. All of that is one atomic
	// step. Additions and takings back by Do count like its own.
	//
	// Context, deadline and ownership are those of [Store.Do]; the keys are
	// buffers that the caller will write to again. If Take returns an error,
	// nothing that it filled in may be used; the hits may or may not have been
	// added, and the step must not be sent again.
	Take(ctx context.Context, t *Taking) error

	// Together tells whether Take can do all these demands in one step.
	Together(demands []Demand) bool
}

// Taking is one atomic step of a [Taker].
type Taking struct {
	Now      time.Time
	Deadline time.Time       // as in Op
	Ladder   tiers.Ladder    // the tiers to add to
	TTLs     []time.Duration // TTLs[i] is that of tier i, as in Slot
	Slack    time.Duration   // by which each window reaches further back than Per: the callers' skew
	N        int64           // one or more, at most the Max of every Window
	Peek     bool            // find out, but write nothing
	AnyLabel bool            // as in Op
	Demands  []Demand        // each with a key of its own
	Allowed  bool            // filled in: every window has room for N
}

// Demand is what is asked of one key.
type Demand struct {
	Key     []byte // as Op.Key
	Windows []Window
}

// Window is one limit on a key in a [Taking], and what was found.
type Window struct {
	Limit
	Finest   int // the tier that the window's edge is read from
	Decision int // the window's decision tier: no need to look at coarser ones

	Count  int64        // filled in: the hits in the window before this step, however many
	Leaves tiers.Bucket // filled in if Count+N > Max: the bucket of tier Finest that must leave the window, with all older ones, until what stays and N are at most Max
	Newest tiers.Bucket // filled in: the newest bucket of tier Finest in the window that is not empty, as the step leaves it; the zero Bucket if there is none
}

// Forgetter is a [Store] that can forget a key. It is optional: without it a
// Counter takes back bucket by bucket what it finds, and remembers that in
// buckets, to the width of the finest.
type Forgetter interface {
	Store

	// Forget remembers f.Label for f.Remember, and then sets all counts of
	// f.Key to zero, of every tier of f.Ladder and of any label. What is
	// remembered stands on the key's own server, under a name that does not
	// show the feature, and is the newest that it was given; at the end it is set
	// to f.Latest once more, or under the lock that empties the key, since hits
	// that came meanwhile may be forgotten as well. A key of
	// any size is emptied in steps, each bounded, between which the server
	// answers others; the oldest buckets of the finest tier go first and what
	// leads to the others last, so that a call that fails in the middle can be
	// made again and finds all that is left. Context, deadline and ownership
	// are those of [Store.Do]; a nil error means that all is gone that was
	// there when the call began.
	Forget(ctx context.Context, f *Forgetting) error

	// Forgotten is the newest Label that is remembered of key, 0 if there is
	// none.
	Forgotten(ctx context.Context, key string, now, deadline time.Time) (label int64, err error)
}

// Forgetting is what a [Forgetter] is asked for.
type Forgetting struct {
	Key      string
	Ladder   tiers.Ladder
	TTLs     []time.Duration // TTLs[i] is that of tier i, as in Slot
	Now      time.Time
	Deadline time.Time     // as in Op
	Label    int64         // in nanoseconds since 1970
	Remember time.Duration // how long at least, from Now on

	Clock func() time.Time // reads the clock that Label was read from; nil: none does
}

// Latest is the label to remember at this moment: Label, or what Clock says if
// it is later. The caller may have stood still since it read its clock.
func (f *Forgetting) Latest() int64 {
	if f.Clock == nil {
		return f.Label
	}
	return max(f.Label, f.Clock().UnixNano())
}

// Local is a [Store] in the caller's own process. There is one clock and no
// network: Config.Skew and Config.Timeout are zero unless they are set, and
// denials are not remembered, since asking again costs no more.
type Local interface {
	Store
	Local()
}
