package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

// Rule limits an event by a kind of feature: every feature of the kind has counts
// of its own under the Limits. Rules of the same event and kind are merged: their
// limits share the counts, and cost the writes of a single rule.
type Rule struct {
	Event string // the name of the event, such as "signup"; not empty
	Kind  string // the kind of the features: "ip", "user", "email", or any other name of printable ASCII without colon

	// Limits are the limits of each feature, such as counter.MustLimits("5/m,
	// 20/h, 1000 per month in Europe/Berlin").
	//
	// A hit leaves the window with its bucket, so callers that always want more
	// get Per / (Per + g + Skew) of Max. g is the width of the finest buckets
	// that the rule's ladder keeps for Per. On the derived ladder g is at most a
	// twentieth of Per: under 5/m the share is 0.98, under 2/s 0.87.
	Limits counter.Limits

	// Plans are other limits that calls may bring, by LimitsOf or
	// [Under]. New checks the Plans, and the rule's ladder keeps buckets
	// for the windows of the Plans. Calls may bring unlisted limits if the ladder
	// keeps buckets for the windows of these limits.
	Plans []counter.Limits `json:",omitempty"`

	// LimitsOf, if set, returns the limits of a feature in a call, such as those
	// of the plan of a user. An empty result stands for the limits of the rule.
	// All limits of a feature share its counts: who changes the plan keeps the
	// usage. Many goroutines call LimitsOf at once, and before the time of
	// DecideWithin begins. LimitsOf is not called for a feature with limits of its
	// own, by [Under]. Default: the limits of the rule.
	LimitsOf func(ctx context.Context, c Call) counter.Limits `json:"-"`

	// Else is the kind that is counted in a call without a feature of Kind, such
	// as feature.KindIP for visitors without a log-in. ElseLimits are the limits of
	// such features; Limits and Plans do not hold for such features, the other fields
	// do. IfMissing decides about a call with neither kind. The event has no other
	// rule by the kind Else. Default: none.
	Else       string         `json:",omitempty"`
	ElseLimits counter.Limits `json:",omitempty"`

	// Ban is the time for which a feature is denied once a call was denied by the
	// feature's limits. Each of these calls is denied, whatever the limits say; none
	// is counted, and none prolongs the ban. A call beyond the limits after the ban
	// begins another ban, so Ban is for limits with a shorter Per. The time is exact
	// to the bucket, as a limit with a Per of Ban. Under FailLocal a ban that this
	// process knows of holds while the store is away: see docs/guarantees.md. Of
	// several times, up to [MaxBans], each ban takes the next, if it begins within
	// twice the longest after the last one has begun, and the first one otherwise. The
	// longest stays. Default: none.
	Ban Bans `json:",omitempty"`

	// Ladder is the set of tiers that the hits of the rule are added to. All limits
	// of the rule must be windows of the ladder. Default: the Ladder of the
	// Counter's Config, if one was set there, and otherwise that of [counter.Limits]
	// for all limits of the rule: Limits, Plans and ElseLimits. It holds a period of the
	// calendar in any zone. A change of ladder loses the counts, unless Former has the
	// former ladder.
	Ladder tiers.Ladder `json:",omitzero"`

	// Former is the ladder that the hits of the rule were added to before, for a
	// change of ladder without a loss: see [counter.Config].Former. Replace adds the
	// former ladder by itself. Default: none.
	Former *counter.Config `json:",omitempty"`

	// Soft makes a rule that denies no one, and reports the calls that the rule
	// would have denied, in Verdict.Soft and Decision.Soft: a new rule, or a
	// tighter rule next to a rule of the same event and kind. A soft rule counts, on
	// a key of its own, the hits that the other rules admit and the soft rule would
	// admit. So the reports are the denials of the rule if the rule were enforced
	// after the other rules. Limits of a call, by Under, hold for the soft rule
	// too, whose ladder has buckets for the Plans of an enforced rule of the kind.
	// While the store fails, a soft rule counts and reports nothing. Default: the rule
	// is enforced.
	Soft bool `json:",omitempty"`

	// Percent enforces a Soft rule for a share of the features, 1 to 100: always
	// the same features in all processes, and with a larger Percent these and
	// more. The features are then judged by the counts of an enforced rule of the
	// event and kind, which has every admitted hit of the feature, whether there
	// is an enforced rule or not: no change of Percent, and no change from soft to
	// enforced or back, loses a hit or counts a hit twice. The limits must be
	// windows of the ladder of the enforced rule alongside, if there is one. A call
	// without a feature is decided by IfMissing at 100 percent only. Default: 0,
	// the rule is enforced for no feature.
	Percent int `json:",omitempty"`

	// Overrides are exceptions by value, network or mail domain, in any order. A
	// rule without Overrides pays nothing; otherwise a call costs a look by value
	// and a look for each length of prefix. Default: none.
	Overrides []Override `json:",omitempty"`

	// OnFailure is the decision while the store fails. Default: FailClosed.
	// Among several rules of a call the strictest decides: FailClosed before
	// FailLocal before FailOpen.
	OnFailure OnFailure

	// IfMissing is the decision about a call without a feature of this kind, and
	// of the kind Else.
	// Default: MissingDeny.
	IfMissing IfMissing
}

// Call is a call of Allow, AllowN or Peek, for [Rule.LimitsOf].
type Call struct {
	Event    string
	N        int64             // hits of Feature
	Feature  feature.Feature   // the feature whose limits are asked for
	Features []feature.Feature // all features of the call; a copy
}

// OnFailure is the policy of a [Rule] for a store that fails.
type OnFailure uint8

// Policies for a store that fails.
const (
	FailClosed OnFailure = iota // denied: right where an event costs more than a visitor turned away
	FailOpen                    // allowed: the store turns no visitor away, and limits no visitor either, not even the visitors who overload the store
	FailLocal                   // counted in this process, and added to the store later: see Config.Local
)

// IfMissing is the policy of a [Rule] for a call without a feature of the
// rule's kind.
type IfMissing uint8

// Policies for a call without a feature of the rule's kind.
const (
	MissingDeny  IfMissing = iota // denied
	MissingSkip                   // the rule does not apply
	MissingShare                  // counted under a single key, shared by all such calls, under Rule.Limits
)

func (r Rule) String() string { return fmt.Sprintf("%q by %q", r.Event, r.Kind) }

// check names the field of r that is wrong by itself. The limits are checked later,
// when the ladder is known.
func (r Rule) check() error {
	switch {
	case r.Event == "":
		return errors.New(`.Event is empty, want a name such as "signup"`)
	case r.Kind == "":
		return errors.New(`.Kind is empty, want a name such as "ip"`)
	case !feature.IsKind(r.Kind):
		return fmt.Errorf(".Kind is %q, want printable ASCII without colon", r.Kind)
	case r.Kind != feature.PlainKind(r.Kind):
		return fmt.Errorf(".Kind is %q, want %q", r.Kind, feature.PlainKind(r.Kind))
	case r.Else != feature.PlainKind(r.Else):
		return fmt.Errorf(".Else is %q, want %q", r.Else, feature.PlainKind(r.Else))
	case r.OnFailure > FailLocal:
		return fmt.Errorf(".OnFailure is %d, want FailClosed (0), FailOpen (1) or FailLocal (2)", r.OnFailure)
	case r.IfMissing > MissingShare:
		return fmt.Errorf(".IfMissing is %d, want MissingDeny (0), MissingSkip (1) or MissingShare (2)", r.IfMissing)
	case r.Else != "" && (r.Else == r.Kind || !feature.IsKind(r.Else)):
		return fmt.Errorf(".Else is %q, want another kind than .Kind, of printable ASCII without colon", r.Else)
	case r.Else == "" && r.ElseLimits != nil:
		return fmt.Errorf(".ElseLimits is %s, but .Else is empty, want the kind to which they apply", r.ElseLimits)
	case r.Ban.wrong() != "":
		return fmt.Errorf(".Ban is %s, want %s", r.Ban, r.Ban.wrong())
	case r.Soft && len(r.Ban) > 0:
		return fmt.Errorf(".Ban is %s, but .Soft is set, want no ban by a rule that denies nobody", r.Ban)
	case r.Percent < 0 || r.Percent > 100:
		return fmt.Errorf(".Percent is %d, want 1 to 100, or 0 for none", r.Percent)
	case r.Percent > 0 && !r.Soft:
		return fmt.Errorf(".Percent is %d, but .Soft is not set, want a soft rule, which is enforced for the share", r.Percent)
	}
	return nil
}

// compare names the field of r that contradicts a rule before, one of those near
// r: of the event, as soft as r, and with a kind of r.
func (r Rule) compare(rules []Rule, near []int) error {
	for _, i := range near {
		var err error
		switch other := &rules[i]; {
		case other.Kind == r.Kind:
			err = r.beside(other, i)
		case r.Else != "" && (r.Else == other.Kind || r.Else == other.Else):
			err = fmt.Errorf(".Else is %q, a kind of Config.Rules[%d], want a kind without another rule for the event", r.Else, i)
		default:
			err = fmt.Errorf(".Kind is %q, the Else of Config.Rules[%d], want a kind without another rule for the event", r.Kind, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beside names the field of r that contradicts a rule before of the same event
// and kind, with which r is to be merged.
func (r Rule) beside(before *Rule, i int) error {
	for _, limit := range r.Limits {
		if j := slices.IndexFunc(before.Limits, func(l counter.Limit) bool { return sameWindow(l, limit) }); j >= 0 {
			if before.Limits[j] == limit {
				return fmt.Errorf(".Limits repeats %s of Config.Rules[%d], want one limit for each window", limit, i)
			}
			return fmt.Errorf(".Limits has %s, but Config.Rules[%d] has %s, want one limit for each window", limit, i, before.Limits[j])
		}
	}
	differ := func(field string, has, other any, want string) error {
		return fmt.Errorf(".%s is %v, but Config.Rules[%d] has %v, want one %s for an event and kind", field, has, i, other, want)
	}
	switch {
	case before.OnFailure != r.OnFailure:
		return differ("OnFailure", r.OnFailure, before.OnFailure, "policy")
	case before.IfMissing != r.IfMissing:
		return differ("IfMissing", r.IfMissing, before.IfMissing, "policy")
	case !slices.Equal(before.Ban, r.Ban):
		return differ("Ban", r.Ban, before.Ban, "ban")
	case !before.Ladder.Equal(r.Ladder):
		return differ("Ladder", strconv.Quote(r.Ladder.String()), strconv.Quote(before.Ladder.String()), "ladder")
	case before.Percent != r.Percent:
		return differ("Percent", r.Percent, before.Percent, "share")
	case !equalFormer(before.Former, r.Former):
		return fmt.Errorf(".Former is not that of Config.Rules[%d], want one former ladder for an event and kind", i)
	case before.LimitsOf != nil || r.LimitsOf != nil:
		return fmt.Errorf(".LimitsOf is set here or in Config.Rules[%d], want a single rule for the event and kind then", i)
	case before.Overrides != nil || r.Overrides != nil:
		return fmt.Errorf(".Overrides is set here or in Config.Rules[%d], want a single rule for the event and kind then", i)
	case before.Else != "" || r.Else != "":
		return fmt.Errorf(".Else is set here or in Config.Rules[%d], want a single rule for the event and kind then", i)
	}
	return nil
}

// former is a Rule.Former in a form that can be compared; zero for nil.
type former struct {
	given, secret       bool
	ladder, prefix, key string
	skew, settle        time.Duration
}

func formerOf(c *counter.Config) former {
	if c == nil {
		return former{}
	}
	return former{true, c.Secret != nil, c.Ladder.String(), c.Prefix, string(c.Secret), c.Skew, c.Settle}
}

// equalFormer reports whether two former ladders are the same.
func equalFormer(a, b *counter.Config) bool { return formerOf(a) == formerOf(b) }

// kinds are the kinds of the features by which the rule counts.
func (r *Rule) kinds() []string {
	if r.Else == "" {
		return []string{r.Kind}
	}
	return []string{r.Kind, r.Else}
}

// enforces reports whether the rule is enforced for the feature with this text: the
// kind, a colon and the canonical value. The choice is the same in all processes,
// and a larger Percent chooses the same features and more.
func (r *Rule) enforces(text []byte) bool {
	if !r.Soft || r.Percent == 0 || r.Percent == 100 {
		return !r.Soft || r.Percent == 100
	}
	x := uint64(14695981039346656037) // FNV-1a
	for _, part := range [...]string{r.Event, "\x00", r.Kind, "\x00"} {
		for i := range len(part) {
			x = (x ^ uint64(part[i])) * 1099511628211
		}
	}
	for _, c := range text {
		x = (x ^ uint64(c)) * 1099511628211
	}
	// The finalizer of MurmurHash3: FNV-1a alone does not mix its low digits.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x%100 < uint64(r.Percent)
}

func (r Rule) clone() Rule {
	r.Limits = slices.Clone(r.Limits)
	r.ElseLimits = slices.Clone(r.ElseLimits)
	r.Plans = clonePlans(r.Plans)
	r.Overrides = slices.Clone(r.Overrides)
	return r
}

func clonePlans(plans []counter.Limits) []counter.Limits {
	plans = slices.Clone(plans)
	for i := range plans {
		plans[i] = slices.Clone(plans[i])
	}
	return plans
}

// fieldLimits are the limits in a field of a rule.
type fieldLimits struct {
	field  string
	limits counter.Limits
}

// allLimits are all limits that the rule names.
func (r *Rule) allLimits() []fieldLimits {
	all := []fieldLimits{{".Limits", r.Limits}}
	for i, limits := range r.Plans {
		all = append(all, fieldLimits{fmt.Sprintf(".Plans[%d]", i), limits})
	}
	if r.Else != "" {
		all = append(all, fieldLimits{".ElseLimits", r.ElseLimits})
	}
	for i := range r.Overrides {
		if limits := r.Overrides[i].Limits; limits != nil {
			all = append(all, fieldLimits{fmt.Sprintf(".Overrides[%d].Limits", i), limits})
		}
	}
	return all
}

// constants are the values of a type, by their text: names[i] is the text of
// the constant i.
type constants struct {
	kind  string
	names []string
}

var (
	onFailures = constants{"OnFailure", []string{"fail-closed", "fail-open", "fail-local"}}
	ifMissings = constants{"IfMissing", []string{"deny", "skip", "share"}}
)

// text is the text of i. A number without a constant can be made, and shown.
func (c *constants) text(i uint8) string {
	if int(i) < len(c.names) {
		return c.names[i]
	}
	return fmt.Sprintf("%s(%d)", c.kind, i)
}

func (c *constants) marshal(i uint8) ([]byte, error) {
	if int(i) >= len(c.names) {
		return nil, fmt.Errorf("limiter: %s is %d, want 0 to %d", c.kind, i, len(c.names)-1)
	}
	return []byte(c.names[i]), nil
}

// unmarshal sets into by its text. After an error into is unchanged.
func (c *constants) unmarshal(text []byte, into *uint8) error {
	i := slices.Index(c.names, string(text))
	if i < 0 {
		return fmt.Errorf("limiter: %s is %q, want one of %s", c.kind, text, words.Quoted(c.names))
	}
	*into = uint8(i)
	return nil
}

// String is "fail-closed", "fail-open" or "fail-local".
func (p OnFailure) String() string { return onFailures.text(uint8(p)) }

// MarshalText returns String. A number without a constant is an error.
func (p OnFailure) MarshalText() ([]byte, error) { return onFailures.marshal(uint8(p)) }

// UnmarshalText reads what String writes. After an error p is unchanged.
func (p *OnFailure) UnmarshalText(text []byte) error { return onFailures.unmarshal(text, (*uint8)(p)) }

// String is "deny", "skip" or "share".
func (p IfMissing) String() string { return ifMissings.text(uint8(p)) }

// MarshalText returns String. A number without a constant is an error.
func (p IfMissing) MarshalText() ([]byte, error) { return ifMissings.marshal(uint8(p)) }

// UnmarshalText reads what String writes. After an error p is unchanged.
func (p *IfMissing) UnmarshalText(text []byte) error { return ifMissings.unmarshal(text, (*uint8)(p)) }
