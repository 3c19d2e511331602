// Package backend defines a store of buckets, for authors of stores.
//
// Here the way of a call ends: a request names stored keys, with buckets to add to and
// windows to read, and the store writes the counts into it. What the counts mean, and who
// asks, a store does not know.
//
// The package is to [github.com/abacus-go/abacus/counter] what
// database/sql/driver is to database/sql: users of a Counter never need it. A
// store implements [Store], with the help of [FromDo] where it can only add and
// read; [Atomic], [Local] and [Placer] are optional. A store imports this package
// and tiers, and never the counter.
//
// The page docs/backends.md is the guide, and package backendtest the suite
// that a store has to pass. [Wrap] puts measurements, traces or a breaker
// around any store, and [As] finds the optional interfaces of a wrapped one.
package backend

import (
	"context"
	"errors"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// ErrStore is the error of a failing store: the store could not be reached,
// answered late or wrongly, or has no room. A Counter adds ErrStore to all
// errors of a store; a store need not.
var ErrStore = errors.New("the store failed")

// ErrStaleLabel is the error of a [Store] that drops buckets by the labels of its
// callers, for a label before the dropped buckets of the key: the store cannot
// tell the counts of the label's window. Nothing was added. The Counter reads its
// clock again and asks with the new label. A store whose buckets are kept for their
// TTL by the clock of a server has the error for a Take that is made too long after
// its label was read: see [TakeRequest].Labelled.
var ErrStaleLabel = errors.New("the label is older than what the store has dropped of the key")

// ErrMaxCount is the error of a [Store] for an addition after which the store
// would count more than [MaxCount] of the key. Nothing was added to that
// bucket; the other Slots tell their additions, as with any error. The Counter
// turns the error into a denial.
var ErrMaxCount = errors.New("the count would exceed 2^53-1")

// MaxCount is the largest count of a bucket, and the largest addition: float64,
// the number of Redis scripts, holds every whole number up to MaxCount.
const MaxCount = 1<<53 - 1

// Store is the interface of all stores. A store adds to buckets, reads buckets,
// forgets keys, and reports on its servers. [FromDo] makes a Store of Do alone.
//
// The methods are called by many goroutines at once.
type Store interface {
	// Do adds r.N to each bucket of r.Add and reads the runs of r.Read, all for
	// r.Key and all in one round trip. Additions and reads may happen in any
	// order, each bucket by itself, but each addition is atomic: no two
	// additions that succeed return the same count.
	//
	// Do must return promptly when ctx is done, and by r.Deadline, with an
	// error; when either has passed already, Do sends nothing. Do must never
	// return nil unless every addition was made and every bucket was read: a
	// bucket that could not be read is an error, not a zero. After an error, a
	// Slot whose Count is above zero was added to for certain, nothing is known
	// of any other Slot, and no Span may be used. An addition without an answer
	// must not be sent again. A store that gets the answer to an addition after
	// Do has returned an error may take the addition back, once.
	//
	// r, its slots and its spans belong to the caller as soon as Do returns: a
	// goroutine that goes on works on a copy, and without ctx, whose type may be
	// the caller's own.
	Do(ctx context.Context, r *Request) error

	// Forget remembers r.Label for r.Remember, and then sets all counts of r.Key
	// to zero, of every tier of r.Ladder and of any label. The label is on the
	// key's own server, under a name that does not show the feature, and is the
	// newest given. At the end the label is set to r.Latest, or under the lock
	// that empties the key, since hits from in between may be forgotten as well.
	// A key of any size is emptied in bounded steps; between two steps the server
	// answers other callers. The oldest buckets of the finest tier go first, and
	// the buckets that lead to finer buckets last: a second call after an error
	// finds all remaining buckets. For context, deadline and ownership see Do.
	// A nil error means that all hits are gone that were there when the call
	// began; for r.Erase see there.
	Forget(ctx context.Context, r *ForgetRequest) error

	// Forgotten returns the newest remembered Label of r.Key, 0 if none is
	// remembered. Label, Clock and Erase of r mean nothing here.
	Forgotten(ctx context.Context, r *ForgetRequest) (label int64, err error)

	// CheckServers asks every server of the store, side by side: whether the server
	// answers, takes an addition, has a clock within r.Skew of r.Now, and keeps
	// its counts. The addition is to a key beginning with r.Key, and is removed
	// again. CheckServers fills in r.Servers, of the answering servers. The error
	// joins all findings, each with the name of the server, the value found and the
	// value expected; findings that leave hits countable are an [ErrCondition].
	// For context, deadline and ownership see Do.
	CheckServers(ctx context.Context, r *CheckRequest) error

	// Report returns the numbers of the store since its creation, and asks no
	// server.
	Report() Report
}

// Request is a round trip to a [Store], for one key.
type Request struct {
	Key      string       // printable ASCII without spaces and braces, 1 to 200 bytes, made by the Counter
	Ladder   tiers.Ladder // the ladder of the key, always the same for a key
	Now      time.Time    // the label: the clock of the caller, by which a store without a clock of its own expires buckets
	Deadline time.Time    // by which Do must have returned, on the machine's clock; zero: the store's own timeout, if any

	// N is added to each bucket of Add: 1 to MaxCount. Below zero N takes back,
	// down to -MaxCount: a bucket stops at 0, and a missing bucket stays
	// missing. A bucket counts to MaxCount: an addition beyond is an error,
	// never a smaller number.
	//
	// A caller that adds to a bucket adds as much to the buckets of all tiers
	// that hold the same instant. So a store may keep the finer buckets and
	// compute the coarser from them, and may refuse an addition that takes the
	// sum over all kept buckets of a key beyond MaxCount. An undo may
	// name some tiers only; the hits must be gone when all tiers were named.
	N   int64
	Add []Slot // each bucket once

	// Age is above zero in an addition into the past: Now, the label of the hits,
	// is older by Age than the clock of the caller. An addition into the past is
	// made as an addition by a caller who stood still for Age after reading the
	// clock, but Deadline is the deadline of the call. Tiers that are not kept for
	// so long are left out; of tiers with the same Keep all are named, or none.
	// See [Request.Life].
	Age time.Duration

	// AnyLabel asks a store that knows [ErrStaleLabel] to go by the buckets
	// that the store still has: the caller's clock stands still, or was set
	// back.
	AnyLabel bool

	Read    []Span
	Ordered bool // filled in: every bucket of Read was read after all additions were executed
}

// Life returns the time for which a store with a clock of its own keeps the
// bucket of slot, if the bucket is created now.
func (r *Request) Life(slot *Slot) time.Duration {
	if r.Age <= 0 {
		return slot.TTL
	}
	return max(slot.TTL-r.Age, tiers.MinWidth)
}

// Slot is a bucket to add to.
type Slot struct {
	tiers.Bucket
	TTL   time.Duration // life of the bucket from Request.Now on, if created now, above zero; a store adds its server's own rounding
	Count int64         // filled in, zeroed first: hits of the bucket after the addition
}

// Span is a run of adjacent buckets to read.
type Span struct {
	Width  time.Duration // of each bucket
	First  int64         // index of the oldest
	Counts []int64       // filled in, every one: Counts[i] is bucket First+i; a missing bucket is 0
}

// Atomic is a [Store] that can check and add in one step. The interface is
// optional: a Counter counts by tickets on a store without Atomic.
type Atomic interface {
	Store

	// Take finds the count of every Window of every key: the sum of the buckets
	// of tier Window.Finest from the bucket that holds Now-Reach on, without an
	// upper end. A key fits if each of its Windows has room for the key's N. If
	// all keys fit that are not Soft, and r is no Peek, Take adds N to the
	// bucket of each tier of the key's Ladder that holds Now, for every key
	// that fits; otherwise Take writes nothing. A Take is a single atomic step.
	// Additions and undos by Do count like those of Take.
	//
	// For context, deadline and ownership see [Store.Do]; the caller will write
	// to the keys again. After an error no field filled in by Take may be used;
	// the hits may or may not have been added, and the step must not be sent
	// again.
	Take(ctx context.Context, r *TakeRequest) error

	// Together reports whether Take can check and add all keys in one step.
	Together(keys []TakeKey) bool
}

// TakeRequest is an atomic step of an [Atomic] store.
//
// Buckets live for their TTL from the first hit on. A step that is made more than
// the finest Width later than Labelled may miss buckets of its window that have
// expired meanwhile: the caller stood still, or the request was on its way for long.
// A store with an expiry of its own keeps buckets for longer than their TTL, and
// answers [ErrStaleLabel] to a step that comes later by more.
type TakeRequest struct {
	Now      time.Time
	Deadline time.Time // as in Request
	Peek     bool      // find out, but write nothing
	AnyLabel bool      // as in Request
	Labelled time.Time // an instant before Now was read, on the machine's clock; zero: not known
	Exact    bool      // Counts are exact in every case; without Exact a step that is allowed may tell upper bounds
	Keys     []TakeKey // each key once
	Allowed  bool      // filled in: all keys fit that are not Soft

	// Times above 1 asks for the N of each key up to Times times, as often as all keys
	// have room: a step that is allowed adds Fitting times N to each key, and fills in
	// Taken. FreedBy is that of N, and no key is Soft. A store that leaves Taken at 0
	// has added N once.
	Times, Taken int64
}

// Fitting returns how often the N of every key has room by the Counts, 1 to Times, in a
// step that is allowed.
func (r *TakeRequest) Fitting() int64 {
	times := r.Times
	for i := 0; i < len(r.Keys) && times > 1; i++ {
		key := &r.Keys[i]
		for j := 0; j < len(key.Windows) && key.N > 0 && !key.Soft; j++ {
			times = min(times, (key.Windows[j].Max-key.Windows[j].Count)/key.N)
		}
	}
	return max(1, times)
}

// TakeKey is a key of a [TakeRequest], with its windows.
type TakeKey struct {
	Key     []byte          // as Request.Key
	N       int64           // hits to add, 0 to MaxCount; of 0 the windows are judged and nothing is added
	Ladder  tiers.Ladder    // as in Request; the keys of a step may have different ladders
	TTLs    []time.Duration // TTLs[i] belongs to tier i, as in Slot
	Soft    bool            // judged and reported, denying nobody; added to only if the key fits and the step is allowed
	Windows []Window
	Fits    bool // filled in: every window has room for N
}

// Window is a limit of a [TakeKey], and the answer of the store.
type Window struct {
	Max    int64         // hits that the window may hold, 0 to MaxCount
	Reach  time.Duration // from Now back: the length of the limit, and the difference between the callers' clocks
	Finest int           // the tier of the oldest bucket

	// Period is the period of a limit by the calendar; zero: the window slides. Reach
	// is then the time since the start of the period that holds Now. A store need not
	// look at Period.
	Period tiers.Period

	Count   int64        // filled in: the hits in the window before this step, however many; in a step that is Allowed, and neither a Peek nor Exact, a store may tell more, if N has room by that number too
	FreedBy tiers.Bucket // filled in if Count+N > Max: the bucket of tier Finest that must leave the window, with all older buckets, until N fits, or, for N above Max, until the window is empty; the zero Bucket if nothing was counted
	Newest  tiers.Bucket // filled in: the newest bucket of tier Finest in the window that is not empty, after the step; the zero Bucket if all are empty
}

// ForgetRequest is a call of Forget or Forgotten of a [Store].
type ForgetRequest struct {
	Key      string
	Ladder   tiers.Ladder
	TTLs     []time.Duration // TTLs[i] belongs to tier i, as in Slot
	Now      time.Time
	Deadline time.Time     // as in Request
	Label    int64         // in nanoseconds since 1970
	Remember time.Duration // for this time at least, from Now on

	Clock func() time.Time // the clock of Label; nil: none

	// Erase asks the store to delete instead of setting to zero: after a nil
	// error no name and no value in the store has the text of Key, or a part of
	// the text, if all calls for the key had ended when Forget began. Buckets
	// that count 0, buckets that no other bucket leads to, and buckets beyond
	// their TTL are deleted too. The label is remembered under a digest of Key.
	// A store without an atomic step may delete hits of calls under way.
	Erase bool
}

// Latest returns the label to remember at this moment: Label, or the reading of
// Clock if later. The caller may have stood still since reading the clock.
func (r *ForgetRequest) Latest() int64 {
	if r.Clock == nil {
		return r.Label
	}
	return max(r.Label, r.Clock().UnixNano())
}

// Placer is a [Store] that names the server of a key. The interface is optional.
type Placer interface {
	Store

	// ServerOf returns a name of the server that holds the buckets of key, a
	// [Request.Key], or "" if there is one server, or the server is not known. It
	// asks no server.
	ServerOf(key string) string
}

// Local is a [Store] in the caller's own process. The interface is optional. There
// is one clock and no network: the Skew, Settle and Patience of a Counter are zero
// unless they are set, and denials are not remembered, since asking again costs no
// more.
type Local interface {
	Store

	// Keeps reports whether the store never removes hits that still count: a call
	// that finds no memory is then an error.
	Keeps() bool

	// Bind prepares the admissions of keys that begin with t.Key and have the
	// Ladder, the TTLs and the Windows of t: what is the same for all keys of an
	// event is looked up once, and most admissions need no [TakeRequest]. Bind
	// returns nil if the store has no fast path for these windows, or if the
	// store is not asked: a struct with an embedded Local has its Bind, and may
	// have a Take of its own, which Admit would pass by. asked is the store of
	// the Counter. A Counter gets the same verdicts without the fast path.
	Bind(asked Store, t *TakeKey) Quota
}

// As returns s as a T, one of the optional interfaces, and reports whether s is
// one. Of a store that [Wrap] has made, As asks the store inside: the wrapped store
// has the methods of all, and a type assertion would always succeed.
func As[T Store](s Store) (t T, ok bool) {
	if w, is := s.(*wrapped); is {
		if _, ok := As[T](w.store); !ok {
			return t, false
		}
	}
	t, ok = s.(T)
	return t, ok
}
