package limiter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/abacus-go/abacus/counter"
)

// Rule limits an event by a kind of feature: every feature of the kind has the
// Limits to itself. Rules of one event and kind are merged: their limits share
// the counts, and cost the writes of a single rule.
type Rule struct {
	Event string // the name of the event, such as "signup"; not empty
	Kind  string // the kind of the features: "ip", "user", "email", or any other name of printable ASCII without colon

	// Limits are the limits of each feature, such as counter.MustLimits("5/m,
	// 20/h, 100/d").
	//
	// A hit leaves the window with its bucket, so callers who always want more
	// get Per / (Per + g + Skew) of Max, g being the width of the finest
	// buckets that the counter's ladder keeps for Per: 0.98 under 5/m on the
	// default ladder, whose buckets are seconds. Under 2/s the share is half, a
	// hit a second; on tiers.For(time.Second), whose buckets are 100 ms, 0.8 to
	// 0.9.
	Limits counter.Limits

	// OnFailure is the decision while the store fails. Default: FailClosed.
	// Among several rules of a call the strictest decides: FailClosed before
	// FailLocal before FailOpen.
	OnFailure OnFailure

	// IfMissing is the decision about a call without a feature of this kind.
	// Default: MissingDeny.
	IfMissing IfMissing
}

// OnFailure is the policy of a [Rule] for a store that fails.
type OnFailure uint8

// Policies for a store that fails.
const (
	FailClosed OnFailure = iota // denied: right where an event costs more than a visitor turned away
	FailOpen                    // allowed: the store turns no visitor away, and limits no visitor either, not even the visitors who overload the store
	FailLocal                   // counted in this process, and added to the store when it answers again: see Config.Local
)

// IfMissing is the policy of a [Rule] for a call without a feature of the
// rule's kind.
type IfMissing uint8

// Policies for a call without a feature of the rule's kind.
const (
	MissingDeny  IfMissing = iota // denied
	MissingSkip                   // the rule does not apply
	MissingShare                  // counted under a single key, shared by all such calls
)

func (r Rule) String() string { return fmt.Sprintf("%q by %q", r.Event, r.Kind) }

// check names the wrong field of r, which is wrong by itself or beside the
// rules before.
func (r Rule) check(c *counter.Counter, before []Rule) error {
	switch {
	case r.Event == "":
		return errors.New(`.Event is empty, want a name such as "signup"`)
	case r.Kind == "":
		return errors.New(`.Kind is empty, want a name such as "ip"`)
	case strings.ContainsFunc(r.Kind, func(c rune) bool { return c < ' ' || c > '~' || c == ':' }):
		return fmt.Errorf(".Kind is %q, want printable ASCII without colon", r.Kind)
	case r.OnFailure > FailLocal:
		return fmt.Errorf(".OnFailure is %d, want FailClosed (0), FailOpen (1) or FailLocal (2)", r.OnFailure)
	case r.IfMissing > MissingShare:
		return fmt.Errorf(".IfMissing is %d, want MissingDeny (0), MissingSkip (1) or MissingShare (2)", r.IfMissing)
	}
	if err := c.CheckLimits(r.Limits); err != nil {
		return fmt.Errorf(".Limits: %w", err)
	}
	for i, a := range r.Limits {
		for _, b := range r.Limits[:i] {
			if a.Per == b.Per {
				return fmt.Errorf(".Limits has %s and %s, want one limit for each window", b, a)
			}
		}
	}
	for i, same := range before {
		if same.Event != r.Event || same.Kind != r.Kind {
			continue
		}
		for _, a := range same.Limits {
			for _, b := range r.Limits {
				if a.Per == b.Per {
					return fmt.Errorf(".Limits has %s, but Config.Rules[%d] has %s, want one limit for each window", b, i, a)
				}
			}
		}
		if same.OnFailure != r.OnFailure {
			return fmt.Errorf(".OnFailure is %s, but Config.Rules[%d] has %s, want one policy for an event and kind", r.OnFailure, i, same.OnFailure)
		}
		if same.IfMissing != r.IfMissing {
			return fmt.Errorf(".IfMissing is %s, but Config.Rules[%d] has %s, want one policy for an event and kind", r.IfMissing, i, same.IfMissing)
		}
	}
	return nil
}

// merge adds r, which is checked, to rules, which hold a single Rule for each
// kind.
func merge(rules []Rule, r Rule, c *counter.Counter) ([]Rule, error) {
	for i := range rules {
		same := &rules[i]
		if same.Kind != r.Kind {
			continue
		}
		same.Limits = append(same.Limits[:len(same.Limits):len(same.Limits)], r.Limits...)
		if err := c.CheckLimits(same.Limits); err != nil {
			return nil, fmt.Errorf(".Limits, merged with the rules before: %w", err)
		}
		return rules, nil
	}
	r.Limits = append(counter.Limits(nil), r.Limits...)
	return append(rules, r), nil
}
