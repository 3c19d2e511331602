package limiter

import (
	"fmt"
	"maps"
	"slices"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/words"
)

// ruleset is the rules of a Limiter from one Replace to the next. Nothing in a
// ruleset changes: a call keeps the ruleset of its beginning.
type ruleset struct {
	generation uint64
	events     map[string]*eventRules
}

// eventRules are the rules of an event: one for each kind, and then the soft
// rules, one for each kind.
type eventRules struct {
	rules []*prepared
	local bool // a rule may count locally
}

// by returns the rule, or the soft rule, by a kind; nil if there is none.
func (of *eventRules) by(kind string, soft bool) *prepared {
	for _, p := range of.rules {
		if p.Kind == kind && p.Soft == soft {
			return p
		}
	}
	return nil
}

// counting returns the rule on whose ladder the enforced key of a kind is counted:
// the enforced rule, or else the soft rule; nil if there is none.
func (of *eventRules) counting(kind string) *prepared {
	for _, p := range of.rules { // the soft rules come last
		if p.Kind == kind || p.Else == kind && kind != "" {
			return p
		}
	}
	return nil
}

// plansBeside are the Plans of the enforced rule beside a soft rule, unless they come
// by LimitsOf: limits that a feature brings hold for both rules.
func (of *eventRules) plansBeside(p *prepared) []counter.Limits {
	if by := of.by(p.Kind, false); p.Soft && by != nil && by.LimitsOf == nil {
		return by.Plans
	}
	return nil
}

// newRuleset checks and prepares rules. before are the rules that are replaced,
// nil if there are none.
func (l *Limiter) newRuleset(rules []Rule, before *ruleset) (*ruleset, error) {
	set := &ruleset{generation: 1, events: map[string]*eventRules{}}
	for i, rule := range rules {
		err := rule.check(rules[:i])
		if err == nil {
			err = l.checkFailure(&rule)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %s: Config.Rules[%d]%w", rule, i, err)
		}
		of := set.events[rule.Event]
		if of == nil {
			of = &eventRules{}
			set.events[rule.Event] = of
		}
		of.rules = merge(of.rules, rule)
	}
	for _, of := range set.events {
		slices.SortStableFunc(of.rules, func(a, b *prepared) int {
			switch {
			case a.Soft == b.Soft:
				return 0
			case b.Soft:
				return -1
			}
			return 1
		})
	}
	for i := range rules {
		of := set.events[rules[i].Event]
		p := of.by(rules[i].Kind, rules[i].Soft)
		if err := p.choose(&l.store, of, before); err != nil {
			return nil, fmt.Errorf("rule %s: Config.Rules[%d]%w", p, i, err)
		}
		if err := p.checkLimits(&rules[i]); err != nil {
			return nil, fmt.Errorf("rule %s: Config.Rules[%d]%w", p, i, err)
		}
		if err := p.except(l); err != nil {
			return nil, fmt.Errorf("rule %s: Config.Rules[%d]%w", p, i, err)
		}
	}
	for _, of := range set.events {
		if err := l.prepare(of); err != nil {
			return nil, err
		}
		for _, p := range of.rules {
			p.keepBans(before)
		}
	}
	return set, nil
}

// prepare prepares the limits of an event.
func (l *Limiter) prepare(of *eventRules) error {
	of.local = slices.ContainsFunc(of.rules, l.countsLocally)
	for _, p := range of.rules {
		if err := p.Limits.Check(p.Ladder); err != nil {
			return fmt.Errorf("rule %s: the Limits of its rules together: %w", p, err)
		}
		for _, limits := range of.plansBeside(p) {
			if err := p.fits(limits); err != nil {
				return fmt.Errorf("rule %s: the Plans of the enforced rule beside the soft rule%w", p, err)
			}
		}
		err := p.bind(&l.store)
		if err == nil && of.local && p.OnFailure != FailClosed && (!p.Soft || p.Percent > 0) {
			err = p.bindLocally(l.local, &l.here)
		}
		if err == nil && p.Percent > 0 {
			err = p.checkShare(of)
		}
		if err != nil {
			return fmt.Errorf("rule %s: %w", p, err)
		}
	}
	return nil
}

// countsLocally tells whether a rule may count locally. Then all rules of the event
// do but those under FailClosed, with which no call is decided locally.
func (l *Limiter) countsLocally(p *prepared) bool {
	return (!p.Soft || p.Percent > 0) && (p.OnFailure == FailLocal || p.OnFailure == FailOpen && l.flying != nil)
}

// checkFailure returns an error for a policy that needs Config.Local, if there is
// none.
func (l *Limiter) checkFailure(r *Rule) error {
	switch {
	case l.local != nil:
	case r.OnFailure == FailLocal:
		return fmt.Errorf(".OnFailure is FailLocal, but Config.Local is nil, want a counter in this process")
	case r.OnFailure == FailOpen && l.flying != nil:
		return fmt.Errorf(".OnFailure is FailOpen and Config.MaxInFlight is %d, but Config.Local is nil, want a counter in this process for calls that get no turn", cap(l.flying.free))
	}
	return nil
}

func (set *ruleset) names() []string { return slices.Sorted(maps.Keys(set.events)) }

func (set *ruleset) noRules(event string) error {
	return fmt.Errorf("limiter: event %q has no rules, which %s have", event, words.Quoted(set.names()))
}

// Events lists the events that have rules, in alphabetical order.
func (l *Limiter) Events() []string { return l.rules.Load().names() }

// Has tells whether event has rules: Allow of an event without rules is an error.
func (l *Limiter) Has(event string) bool { return l.rules.Load().events[event] != nil }

// Rules are the rules of an event now, merged by kind, in the order of
// Config.Rules, the soft rules last, each with the Ladder that its hits are added
// to, and the Former that a Replace has added. Without rules for the event the
// slice is empty.
func (l *Limiter) Rules(event string) []Rule {
	of := l.rules.Load().events[event]
	if of == nil {
		return nil
	}
	var rules []Rule
	for _, p := range of.rules {
		rules = append(rules, p.clone())
	}
	return rules
}

// equalFormer tells whether two former ladders are the same.
func equalFormer(a, b *counter.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Ladder.Equal(b.Ladder) && a.Prefix == b.Prefix && (a.Secret == nil) == (b.Secret == nil) &&
		string(a.Secret) == string(b.Secret) && a.Skew == b.Skew && a.Settle == b.Settle
}
