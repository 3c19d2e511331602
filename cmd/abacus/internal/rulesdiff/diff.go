// Package rulesdiff compares two sets of rules.
package rulesdiff

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/limiter"
)

// Change is the list of differences of a rule.
type Change struct {
	Rule    string `json:"rule"`
	Changes []Line `json:"changes"`
}

// Line is a difference.
type Line struct {
	Kind string `json:"kind"` // added, removed, raised, lowered, changed, counts, or bans
	Text string `json:"text"`
}

// id is the identity of a rule: a soft rule may stand beside an enforced rule.
type id struct {
	event, kind string
	soft        bool
}

func idOf(r limiter.Rule) id { return id{r.Event, r.Kind, r.Soft} }

func (i id) String() string {
	name := limiter.Rule{Event: i.event, Kind: i.kind}.String()
	if i.soft {
		name += ", soft"
	}
	return name
}

// Diff compares rules as a Limiter has them: merged, and with their ladders.
func Diff(before, after []limiter.Rule) []Change {
	changes := []Change{}
	add := func(id id, lines []Line) {
		if len(lines) > 0 {
			changes = append(changes, Change{id.String(), lines})
		}
	}
	find := func(rules []limiter.Rule, of id) *limiter.Rule {
		i := slices.IndexFunc(rules, func(r limiter.Rule) bool { return idOf(r) == of })
		if i < 0 {
			return nil
		}
		return &rules[i]
	}
	for _, r := range after {
		of := idOf(r)
		if old := find(before, of); old != nil {
			add(of, compare(*old, r))
			continue
		}
		other := of
		other.soft = !of.soft
		lines := []Line{{"added", r.Limits.String()}}
		switch was := find(before, other); {
		case r.Soft:
			lines = append(lines, Line{"counts", "a soft rule counts from zero, on a key of its own"})
		case was == nil:
			lines = append(lines, Line{"counts", "the rule counts from zero"})
		case was.Percent == 0:
			lines = append(lines, Line{"counts", "the rule counts from zero: the soft rule has counted on a key of its own"})
		}
		add(of, lines)
	}
	for _, r := range before {
		if of := idOf(r); find(after, of) == nil {
			lines := []Line{{"removed", r.Limits.String()}}
			if !r.Soft {
				lines = append(lines, Line{"counts", "nothing is added to the counts any more; they end by themselves within " + dur.Format(r.Ladder.At(r.Ladder.Len()-1).Keep)})
			}
			if r.Ban > 0 {
				lines = append(lines, bansEnd)
			}
			add(of, lines)
		}
	}
	return changes
}

// bansEnd is the line of a rule with a changed or removed Ban.
var bansEnd = Line{"bans", "running bans end"}

// compare returns the differences of two rules of the same event and kind.
func compare(a, b limiter.Rule) []Line {
	lines := limits("", a.Limits, b.Limits)
	change := func(name string, from, to any) {
		if !reflect.DeepEqual(from, to) {
			lines = append(lines, Line{"changed", fmt.Sprintf("%s from %v to %v", name, from, to)})
		}
	}
	if !reflect.DeepEqual(a.Plans, b.Plans) {
		change("plans", a.Plans, b.Plans)
	}
	change("else", quoted(a.Else), quoted(b.Else))
	if a.Else == b.Else {
		lines = append(lines, limits("else: ", a.ElseLimits, b.ElseLimits)...)
	}
	change("ban", orNone(a.Ban), orNone(b.Ban))
	change("on_failure", a.OnFailure, b.OnFailure)
	change("if_missing", a.IfMissing, b.IfMissing)
	change("percent", a.Percent, b.Percent)
	lines = append(lines, overrides(a.Overrides, b.Overrides)...)
	counted := len(lines)
	if !a.Ladder.Equal(b.Ladder) {
		lines = append(lines, Line{"changed", fmt.Sprintf("ladder from %q to %q", a.Ladder, b.Ladder)})
		switch {
		case b.Former != nil && b.Former.Ladder.Equal(a.Ladder):
			lines = append(lines, Line{"counts", "counted by both ladders, since former is the ladder until now: nothing is lost"})
		default:
			lines = append(lines, Line{"counts", fmt.Sprintf("Limiter.Replace counts by both ladders; a new process begins at zero, unless former is %q", a.Ladder)})
		}
	} else if counted > 0 {
		lines = append(lines, Line{"counts", "stay"})
	}
	if a.Ban > 0 && a.Ban != b.Ban {
		lines = append(lines, bansEnd)
	}
	return lines
}

func orNone(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return dur.Format(d)
}

func quoted(kind string) string {
	if kind == "" {
		return "none"
	}
	return fmt.Sprintf("%q", kind)
}

// limits compares limits by their windows.
func limits(name string, before, after counter.Limits) (lines []Line) {
	for _, b := range after {
		i := slices.IndexFunc(before, func(a counter.Limit) bool { return a.Per == b.Per })
		switch {
		case i < 0:
			lines = append(lines, Line{"added", name + b.String()})
		case before[i].Max < b.Max:
			lines = append(lines, Line{"raised", fmt.Sprintf("%s%s to %s", name, before[i], b)})
		case before[i].Max > b.Max:
			lines = append(lines, Line{"lowered", fmt.Sprintf("%s%s to %s", name, before[i], b)})
		}
	}
	for _, a := range before {
		if !slices.ContainsFunc(after, func(b counter.Limit) bool { return a.Per == b.Per }) {
			lines = append(lines, Line{"removed", name + a.String()})
		}
	}
	return lines
}

// overrides compares overrides by the features that they are for.
func overrides(before, after []limiter.Override) (lines []Line) {
	find := func(all []limiter.Override, name string) *limiter.Override {
		i := slices.IndexFunc(all, func(o limiter.Override) bool { return o.String() == name })
		if i < 0 {
			return nil
		}
		return &all[i]
	}
	for _, b := range after {
		switch a := find(before, b.String()); {
		case a == nil:
			lines = append(lines, Line{"added", fmt.Sprintf("override of %s: %s", b.String(), Effect(b))})
		case Effect(*a) != Effect(b):
			lines = append(lines, Line{"changed", fmt.Sprintf("override of %s from %s to %s", b.String(), Effect(*a), Effect(b))})
		}
	}
	for _, a := range before {
		if find(after, a.String()) == nil {
			lines = append(lines, Line{"removed", fmt.Sprintf("override of %s: %s", a.String(), Effect(a))})
		}
	}
	return lines
}

// Effect is the meaning of an override, with its end.
func Effect(o limiter.Override) string {
	effect := o.Limits.String()
	switch {
	case o.Exempt:
		effect = "exempt"
	case o.Denied:
		effect = "denied"
	}
	if !o.Until.IsZero() {
		effect += " until " + o.Until.UTC().Format(time.RFC3339)
	}
	return effect
}
