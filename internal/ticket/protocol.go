// Package ticket is the way in which a Counter takes hits on a store that has no atomic
// step for all keys of a call: key by key, by the ticket protocol, which needs a store
// that can add and read, or by steps for single keys. The package also completes the
// step of a store that has one for all. docs/design.md has the protocol and its proof,
// take.go the numbered steps in their order, and the model check of the tests leaves
// them out one by one.
//
// A Call comes in with its keys, windows and hits, and goes out with what each window
// counted and whether the hits are in. The package knows a store of package backend, a
// [Plan] and a clock; keys, limits and verdicts are those of package counter. All methods may be called by many goroutines at once.
package ticket

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// Protocol takes hits on a store. Its calls may have different Plans.
type Protocol struct {
	Stats
	store   backend.Store
	atomic  backend.Atomic // nil if the store has no atomic step
	now     func() time.Time
	local   bool // the store is in this process
	memory  Memory
	own     *ownHits
	settled *settledCache
	ordered atomic.Bool // the store has read after adding, in its last answer
}

// Stats are counts of rare events.
type Stats struct {
	LateTries, LooksAgain, StaleLabels, TakingBackFailed, BucketsAhead, Guesses, WrongGuesses atomic.Int64
}

// Memory has the knowledge of a process of its earlier calls.
type Memory interface {
	// Recall reports whether an equal call is remembered as denied, and fills in the
	// counts found then.
	Recall(c *Call) bool
	// Record remembers the answer of the store to a call. read says that a denial is
	// by counts that were read, and by hits that stay; contended, that calls of others
	// were seen in flight.
	Record(c *Call, allowed, read, contended bool)
	// Contended reports whether calls of others are in flight on a key, or were a
	// moment ago.
	Contended(key []byte, label int64) bool
}

// New returns the Protocol on a store. skew is the largest that any of its clocks
// may be apart, exact asks for numbers that are no bounds, and now reads the clock.
// Only a store in this process may have no memory.
func New(store backend.Store, skew time.Duration, exact bool, now func() time.Time, memory Memory) *Protocol {
	p := &Protocol{store: store, now: now, memory: memory}
	p.atomic, _ = backend.As[backend.Atomic](store)
	if _, p.local = backend.As[backend.Local](store); p.local {
		exact, p.memory = true, noMemory{}
	} else {
		p.own = newOwnHits()
	}
	if !exact && p.atomic == nil {
		p.settled = &settledCache{skew: skew}
	}
	return p
}

// noMemory is the Memory of a store in this process: to ask again costs no more.
type noMemory struct{}

func (noMemory) Recall(*Call) bool              { return false }
func (noMemory) Record(*Call, bool, bool, bool) {}
func (noMemory) Contended([]byte, int64) bool   { return false }

// Call is a Take, a Peek or a Charge of some keys: the question and the answer. Of a
// Charge all windows have Max MaxCount, but for soft keys.
type Call struct {
	backend.TakeRequest
	Plans  []*Plan   // Plans[i] is the plan of Keys[i]
	Grace  time.Time // by which a refused call has taken back and looked; zero: no bound
	Charge bool      // count in any case

	Unknown     []bool        // filled in: Unknown[i] says that Keys[i], a soft key, was not judged
	RetryWithin time.Duration // filled in, of a denial: by hits that may soon be taken back, the bound of RetryAfter; otherwise zero
	Late        bool          // filled in: a Charge was confirmed later than Settle
}

// Relabel reads the clock for a new label. The error is an [ErrClock].
func (p *Protocol) Relabel(c *Call) (err error) {
	if !p.local || p.atomic == nil {
		c.Labelled = time.Now()
	}
	if c.Now, err = p.Now(); err == nil {
		err = c.Place()
	}
	return err
}

// Place has the windows of calendar periods begin with the periods that hold the label. A
// call with a new label may be in another period.
func (c *Call) Place() error {
	for i := range c.Keys {
		windows := c.Keys[i].Windows
		for j := range windows {
			if windows[j].Period.IsZero() {
				continue
			}
			if err := c.Plans[i].Place(&windows[j], c.Label()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Now reads the clock. The error is an [ErrClock].
func (p *Protocol) Now() (now time.Time, err error) {
	if now = p.now(); !cover.InRange(now) {
		err = fmt.Errorf("%w: %w", ErrClock, cover.CheckTime(now))
	}
	return now, err
}

// ErrClock is the error of a clock that is out of range. It is no error of the store.
var ErrClock = errors.New("Config.Now")

// staleLabel gives c a new label, since the store has dropped buckets of the last. labels
// is the number of the labels until now.
func (p *Protocol) staleLabel(c *Call, labels int) error {
	p.StaleLabels.Add(1)
	before := c.Now
	err := p.Relabel(c)
	c.AnyLabel = labels >= MaxLabels || !c.Now.After(before)
	return err
}

// KeyError is an error of the store for Keys[Key] of a call.
type KeyError struct {
	Key int
	error
}

// Unwrap returns the error of the store.
func (e *KeyError) Unwrap() error { return e.error }

// Elapsed returns the time since a label, by the wall clock or by the monotonic
// clock: the monotonic clock stands still while a machine sleeps, the wall clock may
// have been stepped.
func (p *Protocol) Elapsed(label time.Time) time.Duration {
	now := p.now()
	return max(now.Sub(label), now.Round(0).Sub(label.Round(0)))
}

// TakeBack takes n back from the slots with a confirmed addition, by the deadline,
// and reads the spans of read in the same trip. r is the request of the addition.
// The context of the caller does not stop an undo: a visitor who hangs up would
// leave hits behind. An undo is not repeated. The result is the request with
// its answers.
func (p *Protocol) TakeBack(ctx context.Context, r backend.Request, deadline time.Time, n int64, slots []backend.Slot, read []backend.Span) (*backend.Request, error) {
	r.Deadline, r.N, r.Add, r.Read, r.AnyLabel = deadline, -n, nil, read, true
	for _, slot := range slots {
		if slot.Count > 0 {
			slot.Count = 0
			r.Add = append(r.Add, slot)
		}
	}
	if len(r.Add) == 0 && len(read) == 0 {
		return &r, nil
	}
	err := p.store.Do(context.WithoutCancel(ctx), &r)
	if err != nil && len(r.Add) > 0 {
		p.TakingBackFailed.Add(1)
	}
	return &r, err
}

// Confirmed notes n hits with the label that are confirmed in the store now, or are
// to be undone if n is below zero.
func (p *Protocol) Confirmed(key string, plan *Plan, label time.Time, n int64) {
	p.own.add(key, plan, label.UnixNano(), n)
	if n > 0 && plan.settle > 0 && int64(p.Elapsed(label)) > plan.settle {
		Raise(key)
	}
}

// Lowered notes that counts of the key have fallen.
func (p *Protocol) Lowered(key string) { p.settled.drop(key) }

// Forgotten notes that the key was emptied by a call labelled now.
func (p *Protocol) Forgotten(key string, plan *Plan, now int64) {
	p.own.forget(key, plan, now)
	p.settled.drop(key)
}

// seeAhead counts a call that has found hits in a bucket which begins later than any
// clock within Skew reads. The label may be older than the answer: the clock is read
// again.
func (p *Protocol) seeAhead(c *Call, plan *Plan, b tiers.Bucket) (seen bool) {
	start := b.Index * int64(b.Width)
	seen = start > c.Label()+plan.skew && start > p.now().UnixNano()+plan.skew
	if seen {
		p.BucketsAhead.Add(1)
	}
	return seen
}

// Label is the label of the call, in nanoseconds since the Unix epoch.
func (c *Call) Label() int64 { return c.Now.UnixNano() }
