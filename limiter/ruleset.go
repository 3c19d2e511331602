package limiter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
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
	rules  []*prepared
	kinds  map[string]kindRules // by Kind and by Else
	always []int                // places of the rules that decide about a call without their features too
	local  bool                 // a rule may count locally
}

// kindRules are the enforced rule and the soft rule by a kind, nil if there is none.
// No kind is Kind or Else of more: see Rule.compare.
type kindRules struct{ enforced, soft *prepared }

func (k kindRules) of(soft bool) *prepared {
	if soft {
		return k.soft
	}
	return k.enforced
}

// fewRules is a number of rules that are asked one by one before a map would have
// found those by the kinds of a call.
const fewRules = 8

// add adds the rule Config.Rules[i], which is checked. Rules of a kind are merged, and
// so are soft rules.
func (of *eventRules) add(r Rule, i int) {
	p := of.by(r.Kind, r.Soft)
	if p == nil {
		p = &prepared{Rule: r.clone()}
		of.rules = append(of.rules, p)
		for _, kind := range p.kinds() {
			k := of.kinds[kind]
			if p.Soft {
				k.soft = p
			} else {
				k.enforced = p
			}
			of.kinds[kind] = k
		}
	} else {
		p.merge(r)
	}
	p.from = append(p.from, i)
}

// near returns the indexes in Config.Rules of the rules before r that have a kind in
// common with r, in order.
func (of *eventRules) near(r *Rule) (indexes []int) {
	for _, kind := range [...]string{r.Kind, r.Else} {
		if p := of.kinds[kind].of(r.Soft); p != nil {
			indexes = append(indexes, p.from...)
		}
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// order puts the soft rules last, and finds the rules that every call meets.
func (of *eventRules) order() {
	slices.SortStableFunc(of.rules, func(a, b *prepared) int {
		switch {
		case a.Soft == b.Soft:
			return 0
		case b.Soft:
			return -1
		}
		return 1
	})
	for i, p := range of.rules {
		p.place = i
		if len(of.rules) <= fewRules || p.IfMissing != MissingSkip {
			of.always = append(of.always, i)
		}
	}
}

// by returns the rule, or the soft rule, by a kind; nil if there is none.
func (of *eventRules) by(kind string, soft bool) *prepared {
	if p := of.kinds[kind].of(soft); p != nil && p.Kind == kind {
		return p
	}
	return nil
}

// counting returns the rule on whose ladder the enforced key of a kind is counted:
// the enforced rule, or else the soft rule; nil if there is none.
func (of *eventRules) counting(kind string) *prepared {
	k := of.kinds[kind]
	return cmp.Or(k.enforced, k.soft)
}

// path is the path of a call through the rules of its event, in their order: the
// places of the rules that are still to come.
type path struct {
	rules  []*prepared
	always []int // rules that every call meets
	found  []int // other rules, by the kinds of the call
}

// path returns the path of a call with features. found is empty, and has room.
func (of *eventRules) path(features []feature.Feature, found []int) path {
	for i := range features {
		if len(of.always) == len(of.rules) {
			break
		}
		k := of.kinds[features[i].Kind()]
		for _, p := range [...]*prepared{k.enforced, k.soft} {
			if p == nil || p.IfMissing != MissingSkip {
				continue
			}
			if at, is := slices.BinarySearch(found, p.place); !is {
				found = slices.Insert(found, at, p.place)
			}
		}
	}
	return path{of.rules, of.always, found}
}

// next returns the next rule, nil after the last.
func (w *path) next() *prepared {
	next := &w.always
	if len(w.found) > 0 && (len(w.always) == 0 || w.found[0] < w.always[0]) {
		next = &w.found
	}
	if len(*next) == 0 {
		return nil
	}
	p := w.rules[(*next)[0]]
	*next = (*next)[1:]
	return p
}

// plansBeside are the Plans of the enforced rule next to a soft rule, unless they come
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
		of := set.events[rule.Event]
		if of == nil {
			of = &eventRules{kinds: map[string]kindRules{}}
			set.events[rule.Event] = of
		}
		err := rule.check()
		if err == nil {
			err = rule.compare(rules, of.near(&rule))
		}
		if err == nil {
			err = l.checkFailure(&rule)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %s: Config.Rules[%d]%w", rule, i, err)
		}
		of.add(rule, i)
	}
	for _, of := range set.events {
		of.order()
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
			err = p.bindLocally(l.taker, &l.here)
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

// countsLocally reports whether a rule may count locally. Then all rules of the event
// do but those under FailClosed, with which no call is decided locally.
func (l *Limiter) countsLocally(p *prepared) bool {
	return (!p.Soft || p.Percent > 0) && (p.OnFailure == FailLocal || p.OnFailure == FailOpen && l.maxInFlight > 0)
}

// checkFailure returns an error for a policy that needs Config.Local, if there is
// none.
func (l *Limiter) checkFailure(r *Rule) error {
	switch {
	case l.here.counter != nil:
	case r.OnFailure == FailLocal:
		return fmt.Errorf(".OnFailure is FailLocal, but Config.Local is nil, want a counter in this process")
	case r.OnFailure == FailOpen && l.maxInFlight > 0:
		return fmt.Errorf(".OnFailure is FailOpen and Config.MaxInFlight is %d, but Config.Local is nil, want a counter in this process for calls that get no turn", l.maxInFlight)
	}
	return nil
}

func (set *ruleset) names() []string { return slices.Sorted(maps.Keys(set.events)) }

func (set *ruleset) noRules(event string) error {
	return fmt.Errorf("limiter: event %q has no rules, which %s have", event, words.Quoted(set.names()))
}

// Events lists the events that have rules, in alphabetical order.
func (l *Limiter) Events() []string { return l.rules.Load().names() }

// Has reports whether event has rules: Allow of an event without rules is an error.
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
