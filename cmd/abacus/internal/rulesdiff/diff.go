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

// pairs calls pair with each of after and its counterpart of before, or nil, and then gone
// with each of before without one.
func pairs[T any](before, after []T, same func(a, b T) bool, pair func(old *T, now T), gone func(old T)) {
	find := func(all []T, one T) *T {
		if i := slices.IndexFunc(all, func(other T) bool { return same(other, one) }); i >= 0 {
			return &all[i]
		}
		return nil
	}
	for _, one := range after {
		pair(find(before, one), one)
	}
	for _, one := range before {
		if find(after, one) == nil {
			gone(one)
		}
	}
}

// Diff compares rules as a Limiter has them: merged, and with their ladders.
func Diff(before, after []limiter.Rule) []Change {
	changes := []Change{}
	add := func(r limiter.Rule, lines []Line) {
		if name := r.String() + map[bool]string{true: ", soft"}[r.Soft]; len(lines) > 0 {
			changes = append(changes, Change{name, lines})
		}
	}
	key := func(a, b limiter.Rule) bool { return a.Event == b.Event && a.Kind == b.Kind }
	// A soft rule may stand beside an enforced rule.
	same := func(a, b limiter.Rule) bool { return key(a, b) && a.Soft == b.Soft }
	pairs(before, after, same, func(old *limiter.Rule, r limiter.Rule) {
		if old != nil {
			add(r, compare(*old, r))
			return
		}
		lines := []Line{{"added", r.Limits.String()}}
		switch other := slices.IndexFunc(before, func(a limiter.Rule) bool { return key(a, r) }); {
		case r.Soft:
			lines = append(lines, Line{"counts", "a soft rule counts from zero, on a key of its own"})
		case other < 0:
			lines = append(lines, Line{"counts", "the rule counts from zero"})
		case before[other].Percent == 0:
			lines = append(lines, Line{"counts", "the rule counts from zero: the soft rule has counted on a key of its own"})
		}
		add(r, lines)
	}, func(r limiter.Rule) {
		lines := []Line{{"removed", r.Limits.String()}}
		if !r.Soft {
			lines = append(lines, Line{"counts", "nothing is added to the counts any more; they end by themselves within " + dur.Format(r.Ladder.At(r.Ladder.Len()-1).Keep)})
		}
		if r.Ban > 0 {
			lines = append(lines, bansEnd)
		}
		add(r, lines)
	})
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
	change("plans", a.Plans, b.Plans)
	change("else", orNone(fmt.Sprintf("%q", a.Else)), orNone(fmt.Sprintf("%q", b.Else)))
	if a.Else == b.Else {
		lines = append(lines, limits("else: ", a.ElseLimits, b.ElseLimits)...)
	}
	change("ban", orNone(dur.Format(a.Ban)), orNone(dur.Format(b.Ban)))
	change("on_failure", a.OnFailure, b.OnFailure)
	change("if_missing", a.IfMissing, b.IfMissing)
	change("percent", a.Percent, b.Percent)
	lines = append(lines, overrides(a.Overrides, b.Overrides)...)
	counted := len(lines)
	if !a.Ladder.Equal(b.Ladder) {
		lines = append(lines, Line{"changed", fmt.Sprintf("ladder from %q to %q", a.Ladder, b.Ladder)})
		counts := fmt.Sprintf("Limiter.Replace counts by both ladders; a new process begins at zero, unless former is %q", a.Ladder)
		if b.Former != nil && b.Former.Ladder.Equal(a.Ladder) {
			counts = "counted by both ladders, since former is the ladder until now: nothing is lost"
		}
		lines = append(lines, Line{"counts", counts})
	} else if counted > 0 {
		lines = append(lines, Line{"counts", "stay"})
	}
	if a.Ban > 0 && a.Ban != b.Ban {
		lines = append(lines, bansEnd)
	}
	return lines
}

// orNone is text, or none for that of the zero value.
func orNone(text string) string {
	if text == `""` || text == "0s" {
		return "none"
	}
	return text
}

// limits compares limits by their windows.
func limits(name string, before, after counter.Limits) (lines []Line) {
	add := func(kind, format string, args ...any) {
		lines = append(lines, Line{kind, name + fmt.Sprintf(format, args...)})
	}
	pairs(before, after, func(a, b counter.Limit) bool { return a.Per == b.Per && a.Period == b.Period }, func(a *counter.Limit, b counter.Limit) {
		switch {
		case a == nil:
			add("added", "%s", b)
		case a.Max < b.Max:
			add("raised", "%s to %s", a, b)
		case a.Max > b.Max:
			add("lowered", "%s to %s", a, b)
		}
	}, func(a counter.Limit) { add("removed", "%s", a) })
	return lines
}

// overrides compares overrides by the features that they are for.
func overrides(before, after []limiter.Override) (lines []Line) {
	add := func(kind, format string, args ...any) {
		lines = append(lines, Line{kind, "override of " + fmt.Sprintf(format, args...)})
	}
	pairs(before, after, func(a, b limiter.Override) bool { return a.String() == b.String() }, func(a *limiter.Override, b limiter.Override) {
		if a == nil {
			add("added", "%s: %s", b.String(), Effect(b))
		} else if Effect(*a) != Effect(b) {
			add("changed", "%s from %s to %s", b.String(), Effect(*a), Effect(b))
		}
	}, func(a limiter.Override) { add("removed", "%s: %s", a.String(), Effect(a)) })
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
