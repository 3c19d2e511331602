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
	"github.com/abacus-go/abacus/limiter/fallback"
)

// ruleset is the rules of a Limiter from one Replace to the next. Nothing in a
// ruleset changes: a call keeps the ruleset of its beginning.
type ruleset struct {
	generation uint64
	events     map[string]*eventRules
}

// eventRules are the rules of an event: one for each kind, and then the soft
// rules, one for each kind. The nil eventRules have none.
type eventRules struct {
	event      string
	rules      []*prepared
	enforced   map[string]*prepared // by Kind and by Else, each of one rule: see Rule.compare
	soft       map[string]*prepared // the soft rules, likewise
	always     []*prepared          // the rules that every call meets
	local      bool                 // a rule may count locally
	normalizer *feature.Normalizer
}

// fewRules is a number of rules that are asked one by one before a map would have
// found those by the kinds of a call.
const fewRules = 8

// byKind returns the rules by their kinds, or the soft rules.
func (of *eventRules) byKind(soft bool) map[string]*prepared {
	if soft {
		return of.soft
	}
	return of.enforced
}

// by returns the rule, or the soft rule, whose Kind is kind; nil if there is none.
func (of *eventRules) by(kind string, soft bool) *prepared {
	if p := of.byKind(soft)[kind]; p != nil && p.Kind == kind {
		return p
	}
	return nil
}

// counting returns the rule on whose ladder the enforced key of a kind is counted:
// the enforced rule, or else the soft rule; nil if there is none.
func (of *eventRules) counting(kind string) *prepared {
	if of == nil {
		return nil
	}
	return cmp.Or(of.enforced[kind], of.soft[kind])
}

// add adds the rule Config.Rules[i], which is checked. Rules of a kind are merged, and
// so are soft rules.
func (of *eventRules) add(r Rule, i int) {
	p := of.by(r.Kind, r.Soft)
	if p == nil {
		p = &prepared{Rule: r.clone()}
		of.rules = append(of.rules, p)
		for _, kind := range p.kinds() {
			of.byKind(p.Soft)[kind] = p
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
		if p := of.byKind(r.Soft)[kind]; p != nil {
			indexes = append(indexes, p.from...)
		}
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// last is 1 for a soft rule, which comes after the others, else 0.
func (p *prepared) last() int {
	if p.Soft {
		return 1
	}
	return 0
}

// order puts the soft rules last, and finds the rules that every call meets.
func (of *eventRules) order() {
	slices.SortStableFunc(of.rules, func(a, b *prepared) int { return a.last() - b.last() })
	for i, p := range of.rules {
		p.place = i
		if len(of.rules) <= fewRules || p.IfMissing != MissingSkip {
			of.always = append(of.always, p)
		}
	}
}

// plansBeside are the Plans of the enforced rule next to a soft rule, unless they come
// by LimitsOf: limits that a feature brings hold for both rules.
func (of *eventRules) plansBeside(p *prepared) []counter.Limits {
	if by := of.by(p.Kind, false); p.Soft && by != nil && by.LimitsOf == nil {
		return by.Plans
	}
	return nil
}

// maker makes rulesets.
type maker struct {
	store       ladders // of the Counter of the Limiter
	here        ladders // of Config.Local, whose counter may be nil
	taker       *fallback.Fallback
	maxInFlight int // zero: unbounded
	normalizer  *feature.Normalizer
	slack       time.Duration // of clocks, for the end of a ban: the window begins, the hit is labelled and the next call comes by clocks Skew apart
}

// ruleset checks and prepares rules that come after the rules before.
func (m *maker) ruleset(rules []Rule, before *ruleset) (*ruleset, error) {
	set := &ruleset{generation: before.generation + 1, events: map[string]*eventRules{}}
	for i, rule := range rules {
		of := set.events[rule.Event]
		if of == nil {
			of = &eventRules{event: rule.Event, enforced: map[string]*prepared{}, soft: map[string]*prepared{}, normalizer: m.normalizer}
			set.events[rule.Event] = of
		}
		err := rule.check()
		if err == nil {
			err = rule.compare(rules, of.near(&rule))
		}
		if err == nil {
			err = m.checkFailure(&rule)
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
		err := m.choose(p, of, before.events[of.event])
		if err == nil {
			err = p.checkLimits(&rules[i])
		}
		if err == nil && len(p.Overrides) > 0 {
			p.overrides, err = newOverrides(p.Overrides, p.kinds(), m.store.counter.Config().Now, m.normalizer)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %s: Config.Rules[%d]%w", p, i, err)
		}
	}
	for _, of := range set.events {
		of.local = slices.ContainsFunc(of.rules, m.countsLocally)
		for _, p := range of.rules {
			if err := m.prepare(p, of); err != nil {
				return nil, fmt.Errorf("rule %s: %w", p, err)
			}
			p.keepBans(before.events[of.event])
		}
	}
	return set, nil
}

// checkFailure returns an error for a policy that needs Config.Local, if there is
// none.
func (m *maker) checkFailure(r *Rule) error {
	switch {
	case m.here.counter != nil:
	case r.OnFailure == FailLocal:
		return fmt.Errorf(".OnFailure is FailLocal, but Config.Local is nil, want a counter in this process, on a memory.Store of its own")
	case r.OnFailure == FailOpen && m.maxInFlight > 0:
		return fmt.Errorf(".OnFailure is FailOpen and Config.MaxInFlight is %d, but Config.Local is nil, want a counter in this process for calls that get no turn", m.maxInFlight)
	}
	return nil
}

// countsLocally reports whether a rule may count locally. Then all rules of the event
// do but those under FailClosed, with which no call is decided locally.
func (m *maker) countsLocally(p *prepared) bool {
	return (!p.Soft || p.Percent > 0) && (p.OnFailure == FailLocal || p.OnFailure == FailOpen && m.maxInFlight > 0)
}

// choose sets the ladder of the rule, once. before are the rules of the event that are
// replaced, or nil.
func (m *maker) choose(p *prepared, of, before *eventRules) (err error) {
	switch store := m.store.counter; {
	case p.counter != nil:
		return nil
	case p.Ladder.Len() > 0:
	case inner(store).LadderSet():
		p.Ladder = store.Config().Ladder
	default:
		all := slices.Concat(of.plansBeside(p)...)
		for _, in := range p.allLimits() {
			all = append(all, in.limits...)
		}
		p.Ladder, p.derived = all.Ladder(), true
	}
	if err := p.follow(of, before); err != nil {
		return err
	}
	if p.counter, err = m.store.on(p.Ladder, p.Former); err != nil { // the ladder alone is no error
		return fmt.Errorf(".Former: %w", err)
	}
	return nil
}

// follow gives p the former ladder, if the hits of its keys were counted by
// another ladder by the rules of before.
func (p *prepared) follow(of *eventRules, before *eventRules) error {
	own, found := p.Former, false
	for _, kind := range p.kinds() {
		old := before.counting(kind)
		if old == nil || of.counting(kind) != p {
			continue
		}
		former, kept, err := p.formerAfter(old, own)
		if err == nil && found && !equalFormer(former, p.Former) {
			err = fmt.Errorf(".Ladder is %q, but hits by %q and by %q were counted by different ladders, want two rules", p.Ladder, p.Kind, p.Else)
		}
		if err != nil {
			return err
		}
		p.Former, p.kept, found = former, kept, true
	}
	return nil
}

// prepare prepares the limits of a rule, all of whose parts have the ladder.
func (m *maker) prepare(p *prepared, of *eventRules) error {
	if err := p.Limits.Check(p.Ladder); err != nil {
		return fmt.Errorf("the Limits of its rules together: %w", err)
	}
	for _, limits := range of.plansBeside(p) {
		if err := p.fits(limits); err != nil {
			return fmt.Errorf("the Plans of the enforced rule beside the soft rule%w", err)
		}
	}
	err := p.bind(&m.store, m.slack)
	if err == nil && of.local && p.OnFailure != FailClosed && (!p.Soft || p.Percent > 0) {
		err = p.bindLocally(m.taker, &m.here)
	}
	if err == nil && p.Percent > 0 {
		err = p.checkShare(of)
	}
	return err
}

// keepBans keeps the bans of other lengths by the rules before, nil if there are none:
// their keys are other keys of the store, and may still be there. It also keeps bans of
// the same length that the local counter knows and those of the rule do not.
func (p *prepared) keepBans(before *eventRules) {
	if p.ban != nil {
		p.bans = []*ban{p.ban}
	}
	for _, kind := range p.kinds() {
		old := before.counting(kind)
		if old == nil {
			continue
		}
		for _, b := range old.bans {
			if !slices.ContainsFunc(p.bans, func(kept *ban) bool { return kept.counter == b.counter && (kept.here != nil || b.here == nil) }) {
				p.bans = append(p.bans, b)
			}
		}
	}
}

// checkShare returns an error if the ladder on which a soft rule is enforced does
// not hold the limits of the rule.
func (p *prepared) checkShare(of *eventRules) error {
	for _, kind := range p.kinds() {
		by := of.counting(kind)
		if by == p {
			continue
		}
		for _, t := range p.terms {
			if err := by.fits(t.limits); err != nil {
				return fmt.Errorf("its Percent is %d, but the limits are to be judged by the counts of the enforced rule by %q, and the soft rule%w", p.Percent, kind, err)
			}
		}
	}
	return nil
}

// of returns the rules of an event. An error is also that of a feature.
func (set *ruleset) of(event string, features []feature.Feature) (*eventRules, error) {
	of := set.events[event]
	if of == nil {
		return nil, fmt.Errorf("limiter: event %q has no rules; there are rules for %s", event, words.Quoted(set.names()))
	}
	for i := range features {
		if err := features[i].Err(); err != nil {
			return nil, fmt.Errorf("limiter: %w, event %q", err, event)
		}
	}
	return of, nil
}

// names are the events that have rules, in alphabetical order.
func (set *ruleset) names() []string { return slices.Sorted(maps.Keys(set.events)) }
