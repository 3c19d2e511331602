package limiter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/abacus-go/abacus/counter"
)

// Rule limits an event by a kind of feature: every feature of that kind has
// the Limits to itself. Rules of one event and kind are merged: their limits
// share the same counts, and cost the writes of one.
type Rule struct {
	Event string // what is limited: "signup"; not empty
	Kind  string // what it is limited by: "ip", "user", "email", or any other name of printable ASCII without colon

	// Limits are what one feature is allowed, such as counter.MustLimits("5/m,
	// 20/h, 100/d").
	//
	// A hit leaves the window with its bucket, so callers who always want more
	// get Per / (Per + g + Skew) of Max, g being the width of the finest buckets
	// that the counter's ladder keeps for Per: 0.98 under 5/m on the default
	// ladder, whose buckets are seconds. Under 2/s it is half there, one a
	// second; on tiers.For(time.Second), whose buckets are 100 ms, 0.8 to 0.9.
	Limits counter.Limits

	// OnFailure decides when the store fails. Default: FailClosed. If several
	// rules had to be asked, one that is FailClosed decides.
	OnFailure OnFailure

	// IfMissing decides what becomes of a call without a feature of this kind.
	// Default: MissingDeny.
	IfMissing IfMissing
}

// OnFailure is what a [Rule] decides when the store fails.
type OnFailure uint8

// What a rule can decide when the store fails.
const (
	FailClosed OnFailure = iota // denied: whatever the event costs is dearer than a visitor sent away
	FailOpen                    // allowed: nobody is sent away because of a store, and nobody is limited either, those who have overloaded it included
)

// IfMissing is what a [Rule] decides about a call that lacks its kind of feature.
type IfMissing uint8

// What a rule can decide about a call that lacks its kind of feature.
const (
	MissingDeny  IfMissing = iota // denied
	MissingSkip                   // allowed as far as this rule goes
	MissingShare                  // counted under one key, which all such calls share
)

func (r Rule) String() string { return fmt.Sprintf("%q by %q", r.Event, r.Kind) }

// check names the field of r that is wrong, by itself or beside the rules before.
func (r Rule) check(c *counter.Counter, before []Rule) error {
	switch {
	case r.Event == "":
		return errors.New(`.Event is empty, want a name such as "signup"`)
	case r.Kind == "":
		return errors.New(`.Kind is empty, want a name such as "ip"`)
	case strings.ContainsFunc(r.Kind, func(c rune) bool { return c < ' ' || c > '~' || c == ':' }):
		return fmt.Errorf(".Kind is %q, want printable ASCII without colon", r.Kind)
	case r.OnFailure > FailOpen:
		return fmt.Errorf(".OnFailure is %d, want FailClosed (0) or FailOpen (1)", r.OnFailure)
	case r.IfMissing > MissingShare:
		return fmt.Errorf(".IfMissing is %d, want MissingDeny (0), MissingSkip (1) or MissingShare (2)", r.IfMissing)
	}
	if err := c.Check(r.Limits); err != nil {
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

// merge adds r, which is checked, to rules, which hold one Rule for each event
// and kind.
func merge(rules []Rule, r Rule, c *counter.Counter) ([]Rule, error) {
	for i := range rules {
		same := &rules[i]
		if same.Kind != r.Kind {
			continue
		}
		same.Limits = append(same.Limits[:len(same.Limits):len(same.Limits)], r.Limits...)
		if err := c.Check(same.Limits); err != nil {
			return nil, fmt.Errorf(".Limits, merged with the rules before: %w", err)
		}
		return rules, nil
	}
	r.Limits = append(counter.Limits(nil), r.Limits...)
	return append(rules, r), nil
}

// String is the name of the constant.
func (p OnFailure) String() string { return name("OnFailure", uint8(p), "FailClosed", "FailOpen") }

// String is the name of the constant.
func (p IfMissing) String() string {
	return name("IfMissing", uint8(p), "MissingDeny", "MissingSkip", "MissingShare")
}

// name is the i-th of names. A number without a name can be made, and shown.
func name(kind string, i uint8, names ...string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}
