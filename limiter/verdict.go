package limiter

import (
	"fmt"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// Verdict is the answer of a [Limiter]. The zero Verdict denies: a dropped
// error fails closed.
//
// Key, Limit, Remaining, RetryAfter and ResetAfter belong to the limit that
// binds, and All has all limits, as in counter.Verdict. If no limit was asked
// (the store failed, a feature is missing, or every rule was skipped) All is
// empty and all of these fields are zero, but for the RetryAfter of a denial:
// see Degraded and Missing.
type Verdict struct {
	counter.Verdict

	// Degraded is the error of a store that failed, a counter.ErrStore; Allowed is
	// then the decision of the rules' OnFailure. Under FailLocal all numbers are
	// of the local counter, or of a denial by the store before the failure; Limit
	// is the rule's, and Remaining is the rest of this process's share. Under the
	// other policies a denial has a random RetryAfter of 0.5 to 1.5 seconds:
	// no one knows when the store will answer again, and callers coming back at
	// once, or all together, would keep the store down. An allowed call has a
	// RetryAfter of zero, as always, and a Remaining of zero though nothing was
	// counted.
	Degraded error

	// Banned is true for a denied call with a banned feature: an earlier call or
	// this call has begun the ban. RetryAfter is the rest of the ban, or the wait for
	// a limit if the wait is longer. See [Rule.Ban].
	Banned bool

	// Missing is the kind of a missing feature, if the call was denied because
	// of MissingDeny. No wait helps: RetryAfter is counter.Never, and String says so.
	Missing string

	// Override is the Override that denied the call, or that exempted a feature of
	// a call without limiting rules; nil otherwise. The Outcome is OutcomeDenied
	// or OutcomeExempt. RetryAfter of such a denial is the time until
	// Override.Until, or counter.Never. Override belongs to the Limiter, and must
	// not be changed.
	Override *Override

	// Soft are the answers of the soft rules to an allowed call, in the order of
	// the rules, one for each key. Empty if the event has no soft rules, and for a
	// soft rule whose store failed.
	Soft []SoftVerdict

	event  string
	n      int64          // of the call, if it is allowed
	places string         // of the features: see placeOf
	free   bool           // no rule limits the call, and hits are counted
	counts bool           // hits are counted under a limit of MaxCount, which is none: see plainly
	kind   string         // of the feature of Override
	local  bool           // decided by the local counter, or by a denial of the store before the failure
	hits   *fallback.Hits // in the local counter; nil: none
	bans   []banned       // the bans that hold
	open   *open          // open hits: of this call, or of others that leave it no room; nil: none
}

// banned is a key with the rest of the key's ban.
type banned struct {
	key  counter.Key
	step counter.Limit // of ban.look
	left time.Duration
}

// N returns the hits that v allows: the n of an allowed call, or fewer after AllowUpTo.
// Next to [Times], it is the n of the first feature with hits. A denied call has 0, but
// for a Charge, which has counted.
func (v Verdict) N() int64 {
	if n := v.Verdict.N(); n > 0 {
		return n
	}
	return v.n
}

// Kind is the kind of feature of the limit that binds, or of Override, or the
// missing kind. Empty if there is none of them.
func (v Verdict) Kind() string { return v.ruleKind() }

func (v *Verdict) ruleKind() string {
	switch {
	case v.Missing != "":
		return v.Missing
	case v.Override != nil:
		return v.kind
	case v.free:
		return ""
	}
	return feature.KindOf(v.Key.Feature)
}

// Rule names the rule of the limit that binds, or of the missing kind, as
// Rule.String does: `"signup" by "ip"`. Empty if there is neither. A Limiter has as
// many names as rules, so that a name can label a metric.
func (v Verdict) Rule() string {
	kind := v.ruleKind()
	if kind == "" {
		return ""
	}
	return Rule{Event: v.event, Kind: kind}.String()
}

// String says v in a line for logs:
// `over-limit "signup" by "ip": 5/h, 0 left, retry in 42s`. The line has the
// outcome, the rule and the numbers of the limit that binds. The line has neither
// the feature, which may be a personal address, nor the text of Degraded.
func (v Verdict) String() string {
	if v.event == "" {
		return "denied" // the zero Verdict
	}
	rule := v.Rule()
	if rule == "" {
		rule = strconv.Quote(v.event)
	}
	s := v.outcome().String() + " " + rule
	if v.Limit != (counter.Limit{}) {
		s += fmt.Sprintf(": %s, %d left", v.Limit, v.Remaining)
	}
	switch v.RetryAfter {
	case 0:
	case counter.Never:
		s += ", no wait will do"
	default:
		s += ", retry in " + v.RetryAfter.String()
	}
	return s
}

// SoftVerdict is the answer of a soft rule. Kind and Limit have few values, as in
// [Decision].
type SoftVerdict struct {
	Ask        int           // index of the feature in the call; of equal features the first; -1: it is missing
	Kind       string        // of the feature
	Denied     bool          // the rule would have denied the call
	Limit      counter.Limit // that has the longest RetryAfter, or else the least Remaining; the zero Limit: no limit was asked, since a feature is missing, or denied by an Override
	Remaining  int64         // of Limit, on the counts of the rule
	RetryAfter time.Duration // that a denial would have told
	ResetAfter time.Duration // of Limit
}

// Outcome is a decision in a word.
type Outcome uint8

// All outcomes.
const (
	OutcomeOverLimit      Outcome = iota // denied: a limit has no room
	OutcomeMissing                       // denied: a feature is missing
	OutcomeFailedClosed                  // denied: the store failed
	OutcomeAdmitted                      // allowed, and counted
	OutcomeSkipped                       // allowed: every rule was skipped
	OutcomeFailedOpen                    // allowed: the store failed
	OutcomeLocalOverLimit                // denied: the store failed, and the local counter has no room
	OutcomeLocalAdmitted                 // allowed: the store failed, and the local counter has counted
	OutcomeBanned                        // denied: a feature is banned, by this call or an earlier call
	OutcomeDenied                        // denied: by an Override, and no store was asked
	OutcomeExempt                        // allowed: an Override exempts a feature, and no other rule applies
	OutcomeForgotten                     // of no call: Forget or Erase has emptied the key; for Config.Observe alone
)

var outcomes = constants{"Outcome", []string{"over-limit", "missing", "failed-closed", "admitted", "skipped", "failed-open", "local-over-limit", "local-admitted", "banned", "denied", "exempt", "forgotten"}}

// String is a label for a metric: "over-limit", "missing",
// "failed-closed", "admitted", "skipped", "failed-open", "local-over-limit",
// "local-admitted", "banned", "denied", "exempt", "forgotten".
func (o Outcome) String() string { return outcomes.text(uint8(o)) }

// MarshalText returns String. A number without a constant is an error.
func (o Outcome) MarshalText() ([]byte, error) { return outcomes.marshal(uint8(o)) }

// UnmarshalText reads what String writes. After an error o is unchanged.
func (o *Outcome) UnmarshalText(text []byte) error { return outcomes.unmarshal(text, (*uint8)(o)) }

// Outcome is the outcome of v.
func (v Verdict) Outcome() Outcome { return v.outcome() }

func (v *Verdict) outcome() Outcome {
	switch {
	case v.local && v.Allowed:
		return OutcomeLocalAdmitted
	case v.local:
		return OutcomeLocalOverLimit
	case v.Degraded != nil && v.Allowed:
		return OutcomeFailedOpen
	case v.Degraded != nil:
		return OutcomeFailedClosed
	case v.Missing != "":
		return OutcomeMissing
	case v.Override != nil && !v.Allowed:
		return OutcomeDenied
	case v.Override != nil:
		return OutcomeExempt
	case v.Banned:
		return OutcomeBanned
	case !v.Allowed:
		return OutcomeOverLimit
	case v.Key == counter.Key{}:
		return OutcomeSkipped
	}
	return OutcomeAdmitted
}

// Decision is the argument of Config.Observe. No field but Key holds data of a
// visitor. Event, Kind, Limit and Outcome have few values, and can label metrics;
// Event and Kind name the rule.
type Decision struct {
	Event    string
	Kind     string        // of the limit that binds, or of the Override, or the missing kind; may be empty
	Limit    counter.Limit // the limit that binds; the zero Limit if no limit was asked
	Outcome  Outcome
	N        int64
	Latency  time.Duration
	Degraded error         // as in Verdict
	Soft     []SoftVerdict // as in Verdict; must not be changed
	Waited   time.Duration // in Wait, before the last question to the store; zero in Allow
	Key      HiddenKey     // whose limit or ban denied the call, or that was forgotten; zero for any other decision
}

// HiddenKey is a counter.Key whose feature, data of a visitor, is neither printed nor
// encoded with the rest of a [Decision]. counter.Key(k) is the key.
type HiddenKey counter.Key

// Format writes "hidden", or nothing for the zero key.
func (k HiddenKey) Format(f fmt.State, _ rune) {
	text, _ := k.MarshalText()
	_, _ = f.Write(text)
}

// MarshalText returns what Format writes.
func (k HiddenKey) MarshalText() ([]byte, error) {
	if k == (HiddenKey{}) {
		return []byte{}, nil
	}
	return []byte("hidden"), nil
}
