package main

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// ruleChange is the list of differences of a rule.
type ruleChange struct {
	Rule    string       `json:"rule"`
	Changes []changeLine `json:"changes"`
}

// changeLine is a difference.
type changeLine struct {
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

// diffRules compares rules as a Limiter has them: merged, and with their ladders.
func diffRules(before, after []limiter.Rule) []ruleChange {
	changes := []ruleChange{}
	add := func(r limiter.Rule, lines []changeLine) {
		if name := r.String() + map[bool]string{true: ", soft"}[r.Soft]; len(lines) > 0 {
			changes = append(changes, ruleChange{name, lines})
		}
	}
	key := func(a, b limiter.Rule) bool { return a.Event == b.Event && a.Kind == b.Kind }
	// A soft rule may stand beside an enforced rule.
	same := func(a, b limiter.Rule) bool { return key(a, b) && a.Soft == b.Soft }
	pairs(before, after, same, func(old *limiter.Rule, r limiter.Rule) {
		if old != nil {
			add(r, compareRules(*old, r))
			return
		}
		lines := []changeLine{{"added", r.Limits.String()}}
		switch other := slices.IndexFunc(before, func(a limiter.Rule) bool { return key(a, r) }); {
		case r.Soft:
			lines = append(lines, changeLine{"counts", "a soft rule counts from zero, on a key of its own"})
		case other < 0:
			lines = append(lines, changeLine{"counts", "the rule counts from zero"})
		case before[other].Percent == 0:
			lines = append(lines, changeLine{"counts", "the rule counts from zero: the soft rule has counted on a key of its own"})
		}
		add(r, lines)
	}, func(r limiter.Rule) {
		lines := []changeLine{{"removed", r.Limits.String()}}
		if !r.Soft {
			lines = append(lines, changeLine{"counts", "nothing is added to the counts any more; they end by themselves within " + dur.Format(r.Ladder.At(r.Ladder.Len()-1).Keep)})
		}
		if len(r.Ban) > 0 {
			lines = append(lines, bansEnd)
		}
		add(r, lines)
	})
	return changes
}

// bansEnd is the line of a rule with a changed or removed Ban.
var bansEnd = changeLine{"bans", "running bans end"}

// banLadder is the ladder of the counts of bans: see docs/storage.md.
func banLadder(bans limiter.Bans) tiers.Ladder {
	if last := len(bans) - 1; last > 0 {
		bans = append(slices.Clip(bans), 2*bans[last])
	}
	return tiers.For(bans...)
}

// compareRules returns the differences of two rules of the same event and kind.
func compareRules(a, b limiter.Rule) []changeLine {
	lines := diffLimits("", a.Limits, b.Limits)
	change := func(name string, from, to any) {
		if !reflect.DeepEqual(from, to) {
			lines = append(lines, changeLine{"changed", fmt.Sprintf("%s from %v to %v", name, from, to)})
		}
	}
	change("plans", a.Plans, b.Plans)
	change("else", orNone(fmt.Sprintf("%q", a.Else)), orNone(fmt.Sprintf("%q", b.Else)))
	if a.Else == b.Else {
		lines = append(lines, diffLimits("else: ", a.ElseLimits, b.ElseLimits)...)
	}
	change("ban", orNone(a.Ban.String()), orNone(b.Ban.String()))
	change("on_failure", a.OnFailure, b.OnFailure)
	change("if_missing", a.IfMissing, b.IfMissing)
	change("percent", a.Percent, b.Percent)
	lines = append(lines, diffOverrides(a.Overrides, b.Overrides)...)
	counted := len(lines)
	if !a.Ladder.Equal(b.Ladder) {
		lines = append(lines, changeLine{"changed", fmt.Sprintf("ladder from %q to %q", a.Ladder, b.Ladder)})
		counts := fmt.Sprintf("Limiter.Replace counts by both ladders; a new process begins at zero, unless former is %q", a.Ladder)
		if b.Former != nil && b.Former.Ladder.Equal(a.Ladder) {
			counts = "counted by both ladders, since former is the ladder until now: nothing is lost"
		}
		lines = append(lines, changeLine{"counts", counts})
	} else if counted > 0 {
		lines = append(lines, changeLine{"counts", "stay"})
	}
	switch {
	case len(a.Ban) == 0 || slices.Equal(a.Ban, b.Ban):
	case len(b.Ban) > 0 && banLadder(a.Ban).Equal(banLadder(b.Ban)):
		lines = append(lines, changeLine{"bans", "running bans go on, by the new times"})
	default:
		lines = append(lines, bansEnd)
	}
	return lines
}

// orNone is text, or none for that of the zero value.
func orNone(text string) string {
	if text == `""` || text == "" {
		return "none"
	}
	return text
}

// diffLimits compares limits by their windows.
func diffLimits(name string, before, after counter.Limits) (lines []changeLine) {
	add := func(kind, format string, args ...any) {
		lines = append(lines, changeLine{kind, name + fmt.Sprintf(format, args...)})
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

// diffOverrides compares overrides by the features that they are for.
func diffOverrides(before, after []limiter.Override) (lines []changeLine) {
	add := func(kind, format string, args ...any) {
		lines = append(lines, changeLine{kind, "override of " + fmt.Sprintf(format, args...)})
	}
	pairs(before, after, func(a, b limiter.Override) bool { return a.String() == b.String() }, func(a *limiter.Override, b limiter.Override) {
		if a == nil {
			add("added", "%s: %s", b.String(), effectOf(b))
		} else if effectOf(*a) != effectOf(b) {
			add("changed", "%s from %s to %s", b.String(), effectOf(*a), effectOf(b))
		}
	}, func(a limiter.Override) { add("removed", "%s: %s", a.String(), effectOf(a)) })
	return lines
}

// effectOf is the meaning of an override, with its end.
func effectOf(o limiter.Override) string {
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
