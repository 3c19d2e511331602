// Package promise holds promises of a Counter as cases. The conformance suite tries
// the cases on a store under test, and the program tries them on a store in use.
package promise

import (
	"context"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Case is one promise. Cases are data: whoever tries a case words the result.
type Case struct {
	Name    string // one word
	Promise string // in few words
	Rule    string // in the words of the contract
	Try     func(context.Context, *Subject) (Finding, error)
}

// Finding is the result of a case. The promise holds if Broken is empty and not all
// calls failed.
type Finding struct {
	Seen   string // what was done and counted
	Broken string // what is wrong, and what follows from it
	Failures
}

// Failures counts the calls of a case. Only calls without an error are held to the
// promise.
type Failures struct {
	Calls, Failed, Late int
	Last                error
}

// All reports whether every call failed.
func (f *Failures) All() bool { return f.Failed > 0 && f.Failed == f.Calls }

// Subject is a store on which a case is tried.
type Subject struct {
	// Counter makes a Counter that knows of no other. The Patience of a patient
	// Counter is Patience.
	Counter func(l tiers.Ladder, patient bool) (*counter.Counter, error)

	// Patience bounds the time after which a case is not begun again.
	Patience time.Duration

	// Reach is the time that the Counters look back beyond the length of a window.
	Reach time.Duration

	// Round, if not nil, is called before each round of a race.
	Round func(context.Context) error

	// Judge, if not nil, changes the error of a call that began then, and tells
	// whether the call failed for want of time. Such a call says nothing about what
	// the store counts.
	Judge func(began time.Time, err error) (late bool, judged error)
}

// judged makes a call whose error is judged.
func judged[T any](s *Subject, call func() (T, error)) (v T, late bool, err error) {
	began := time.Now()
	if v, err = call(); err != nil && s.Judge != nil {
		late, err = s.Judge(began, err)
	}
	return v, late, err
}

// take is a Take whose error is judged.
func (s *Subject) take(ctx context.Context, c *counter.Counter, key counter.Key, n int64, limits counter.Limits) (v counter.Verdict, late bool, err error) {
	return judged(s, func() (counter.Verdict, error) { return c.Take(ctx, key, n, limits) })
}

// count is a Count of a day whose error is judged.
func (s *Subject) count(ctx context.Context, c *counter.Counter, key counter.Key) (n counter.Count, late bool, err error) {
	return judged(s, func() (counter.Count, error) { return c.Count(ctx, key, 24*time.Hour) })
}

// Add counts a call that ended with err.
func (f *Failures) Add(late bool, err error) {
	f.Calls++
	if err == nil {
		return
	}
	f.Failed++
	f.Last = err
	if late {
		f.Late++
	}
}
