// Package history checks the calls and answers of many callers of a store against
// four promises of docs/guarantees.md:
//
//  1. The label of an admitted hit is a reading of the caller's clock between
//     the call and its return.
//  2. No window of a limit's Per holds more than Max of admitted hits, by their
//     labels as read and by the instants in true time at which the labels were
//     read; and no period of the calendar by their labels.
//  3. A call that begins after the return of an admitted call counts its hits.
//  4. A denial has its reason: hits that were admitted, added or under way, as
//     many as leave no room.
//
// Where a history leaves open whether something happened (a refund that failed, a
// call of a process that was killed), every rule assumes the explanation: a
// [Finding] is a break in any case. The package is pure: no clock, no I/O.
package history

import (
	"math"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Kind is the method of a Counter that a [Call] called.
type Kind uint8

// The kinds of calls. A TakeAll is a Take with several Asks.
const (
	Take Kind = iota
	Peek
	Add
	Count
	Refund
	Forget
	Kinds // number of kinds
)

// Outcome is the result of a [Call] as its caller knows it.
type Outcome uint8

// The outcomes of a call.
const (
	Open   Outcome = iota // the process died before the call returned
	Failed                // an error: what the store did is unknown
	Denied                // a Take or a Peek that was not allowed
	Done                  // a Take or a Peek that was allowed, any other call that succeeded
)

// Call is a call of a Counter. Instants are nanoseconds since 1970: of true time, a
// single clock for the whole history, or as a caller's own clock read.
type Call struct {
	ID              uint64
	Kind            Kind
	Outcome         Outcome
	Process, Caller int

	Began, Ended int64 // true time; of an Open call Ended is when its process was dead
	Lo, Hi       int64 // the least and the greatest reading of the caller's clock between the two
	Paused       bool  // the caller stood still in the middle, like a process without a processor
	Beyond       bool  // the clock was further off than the promises allow at some time of the call

	N     int64
	Asks  []Ask  // of a Count: one Limit, whose Per is the window
	Of    uint64 // of a Refund: the ID of the Take
	Error string // of a Failed call

	Label     int64   // Verdict.At of a Take that is Done
	True      int64   // the instant in true time at which the clock read Label; 0 if it never did
	Remaining []int64 // of a Peek and of a Take that is Done: Verdict.All, in the order of Asks
	High      int64   // of a Count
}

// Ask is a key of a [Call], with the limits of the call.
type Ask struct {
	Key    string
	Limits []counter.Limit
}

// Fault is a disturbance of the store. Its effect is possible from From to To,
// in true time.
type Fault struct {
	Name     string
	From, To int64
	Severs   bool // connections were lost: a hit whose caller was told of a failure may stay
	Loses    Loss
	Since    int64                 // of a loss of the Latest: begin of the time whose calls may be lost
	Bucket   [2]int64              // of a loss of a Bucket: the least label in the bucket, and the least after the bucket
	Parts    bool                  // other parts of a key may be left, and count longer than they should
	Keys     func(key string) bool // keys that the loss concerns; nil: all keys
}

// Loss is the part of its counts that a store loses in a [Fault].
type Loss uint8

// The losses.
const (
	Nothing    Loss = iota
	Everything      // all hits of before
	Moved           // the same, but the counts may return by another such fault: a Forget need not last
	Latest          // effects of the calls from Since to To, Refunds and Forgets included, from From on
	Bucket          // hits with a label in a bucket, from From on
)

// Config is common to all calls of a history.
type Config struct {
	Ladder tiers.Ladder
	Skew   time.Duration // how far apart two callers' clocks are, at most, unless a call is Beyond
	Settle time.Duration // by ticket: counter.Config.Settle; 0 with an atomic step
	Ticket bool          // the store has no atomic step: denied calls add and take back
	Apart  bool          // the atomic step is for one key: a denied call of several keys adds and takes back

	// Remember is the time for which a process may answer by a remembered denial:
	// the reason of the denial holds for as long.
	Remember time.Duration

	// Lives is the time, from its first call to its last, for which a key under a limit
	// by the calendar is called. The clocks of such a key may be ahead of true time.
	Lives time.Duration

	// Late is the time after a failed call, or the death of its process, in which
	// the store may still execute the request.
	Late time.Duration
}

// far is the instant of what has not happened.
const far = math.MaxInt64

// record is a Call with what became of it later.
type record struct {
	*Call
	gone int64 // begin of a Refund of the hit: from then on the hit need not be counted
	back int64 // success of a Refund: from then on the hit may not be counted

	refund *Call // the Refund of the call, if there is any

	disturbed, severed *bool // of Checker.disturbed; nil: not known yet
}

// admitted reports whether r is a hit that was admitted.
func (r *record) admitted() bool { return r.Kind == Take && r.Outcome == Done }

// counted reports whether r is a hit that the store counted for certain.
func (r *record) counted() bool { return r.Outcome == Done && (r.Kind == Take || r.Kind == Add) }

// adds reports whether r may have added to the store at all.
func (r *record) adds() bool { return r.Kind == Take || r.Kind == Add }

// labels are the least and the greatest label that the hits of r can have.
func (r *record) labels() (lo, hi int64) {
	if r.admitted() {
		return r.Label, r.Label
	}
	return r.Lo, r.Hi
}

// hit is the effect of a Call on a key.
type hit struct {
	*record
	forgotten int64 // begin of a Forget of the key that may have come upon the hit
	erased    int64 // success of a Forget after the hit
	marked    bool  // a Forget came after the hit, or so shortly before that a Refund of the hit may do nothing
	lost      int64 // begin of a loss of the Latest, or of a Bucket, that may have come upon the hit
	void      bool  // the hit, or a Forget of the hit, may be lost: a Refund may take another hit
}

func newHit(r *record) *hit { return &hit{record: r, forgotten: far, erased: far, lost: far} }

// goneAt is the instant from which on h need not be counted.
func (h *hit) goneAt() int64 { return min(h.gone, h.forgotten) }

// backAt is the instant from which on h may not be counted.
func (h *hit) backAt() int64 {
	if h.marked {
		return h.erased
	}
	return min(h.back, h.erased)
}

// weight returns the certain weight of h at an instant after the call.
func (h *hit) weight(now int64) int64 {
	if h.lost <= now {
		return 0
	}
	return h.admittedWeight(now)
}

// admittedWeight is weight, whether or not the store lost h.
func (h *hit) admittedWeight(now int64) int64 {
	if h.goneAt() <= now {
		return 0
	}
	return h.N
}
