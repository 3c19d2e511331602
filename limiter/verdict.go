package limiter

import (
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// Verdict is the answer of a [Limiter]. The zero Verdict denies: a dropped error
// fails closed.
//
// Key, Limit, Remaining, RetryAfter and ResetAfter are those of the limit that
// binds, and All has all limits, as in counter.Verdict. Where no limit was
// asked (the store failed, a feature is missing, or every rule was skipped) All
// is empty, and of these fields only RetryAfter is set, and only if the call was
// denied: see Degraded and Missing.
type Verdict struct {
	counter.Verdict

	// Degraded is the error of a store that failed, a counter.ErrStore; Allowed
	// is then what the rules' OnFailure decided. If that was to deny, RetryAfter
	// is a random wait between 0.5 and 1.5 seconds: nobody knows when the store
	// will answer again, and callers who come back at once, or all together,
	// would keep it from doing so. If it was to allow, RetryAfter is zero as of
	// any allowed call, and Remaining is zero though nothing was counted.
	Degraded error

	// Missing is the kind of feature that the call lacked, if it was denied
	// for that. No waiting helps: RetryAfter is counter.Never.
	Missing string
}

// Kind is the kind of feature that the limit which binds is for, or that is
// missing. Empty if there is none.
func (v *Verdict) Kind() string {
	if v.Missing != "" {
		return v.Missing
	}
	return KindOf(v.Key)
}

// KindOf is the kind of feature in a key that a [Limiter] has made.
func KindOf(key counter.Key) string {
	kind, _, _ := strings.Cut(key.Feature, ":")
	return kind
}

// Outcome says in a word what was decided.
type Outcome uint8

// What can be decided.
const (
	OutcomeOverLimit    Outcome = iota // denied: a limit has no room
	OutcomeMissing                     // denied: a feature is missing
	OutcomeFailedClosed                // denied: the store failed
	OutcomeAdmitted                    // allowed, and counted
	OutcomeSkipped                     // allowed: every rule was skipped
	OutcomeFailedOpen                  // allowed: the store failed
)

// String is a word to label a metric with: "over-limit", "missing",
// "failed-closed", "admitted", "skipped", "failed-open".
func (o Outcome) String() string {
	return name("Outcome", uint8(o), "over-limit", "missing", "failed-closed", "admitted", "skipped", "failed-open")
}

// Outcome is what v says, in a word.
func (v *Verdict) Outcome() Outcome {
	switch {
	case v.Degraded != nil && v.Allowed:
		return OutcomeFailedOpen
	case v.Degraded != nil:
		return OutcomeFailedClosed
	case v.Missing != "":
		return OutcomeMissing
	case !v.Allowed:
		return OutcomeOverLimit
	case v.Key == counter.Key{}:
		return OutcomeSkipped
	}
	return OutcomeAdmitted
}

// Decision is what Config.Observe is told. No field of it is a visitor's. Event,
// Kind and Outcome have few values, to label metrics with.
type Decision struct {
	Event    string
	Kind     string // of the limit that binds, or that is missing; may be empty
	Outcome  Outcome
	N        int64
	Latency  time.Duration
	Degraded error // as in Verdict
}
