package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/tiers"
)

// prepared is the Rule of an event and kind, merged, with its ladder.
type prepared struct {
	Rule
	place     int              // in the rules of the event
	from      []int            // the indexes in Config.Rules of the rules that were merged
	counter   *counter.Counter // counts on the ladder of the rule
	on        *counter.Counter // counter, or nil if that is the Limiter's
	derived   bool             // the ladder was derived from the limits
	kept      bool             // Former is not the rule's own: a Replace has added it
	here      *counter.Counter // counts locally on the ladder of the rule; nil: the rule never does
	local     *fallback.Ladder // of here; nil too
	own       terms            // Limits
	other     terms            // ElseLimits
	plans     []terms          // Plans
	overrides *overrides       // nil: none
	boundless counter.Limits   // a limit that denies nothing
	ban       *ban             // nil: none
	bans      []*ban           // ban, and those of the rules replaced by this one, for Forget and Erase
}

// terms are the limits of a call, prepared for a rule.
type terms struct {
	limits counter.Limits
	local  *fallback.Rule // nil: never counted locally
}

// Call is a call of Allow, AllowN or Peek, for [Rule.LimitsOf].
type Call struct {
	Event    string
	N        int64             // hits of Feature
	Feature  feature.Feature   // the feature whose limits are asked for
	Features []feature.Feature // all features of the call; a copy
}

// merge adds a rule of the same event and kind, which is checked.
func (p *prepared) merge(r Rule) {
	p.Limits = append(p.Limits, r.Limits...)
	p.Plans = append(p.Plans, clonePlans(r.Plans)...)
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

// windows are the lengths of all windows that the rule names.
func (r *Rule) windows() []time.Duration {
	windows := append(r.Limits.Windows(), r.ElseLimits.Windows()...)
	for _, limits := range r.Plans {
		windows = append(windows, limits.Windows()...)
	}
	for i := range r.Overrides {
		windows = append(windows, r.Overrides[i].Limits.Windows()...)
	}
	return windows
}

// ladders makes one Counter for each ladder.
type ladders struct {
	counter *counter.Counter
	more    map[laddered]*counter.Counter
}

type laddered struct {
	ladder string
	former former
}

// on returns a Counter on the ladder, nil for the Counter given.
func (l *ladders) on(ladder tiers.Ladder, former *counter.Config) (*counter.Counter, error) {
	if former == nil && ladder.Equal(l.counter.Config().Ladder) {
		return nil, nil
	}
	key := laddered{ladder.String(), formerOf(former)}
	if c := l.more[key]; c != nil {
		return c, nil
	}
	c, err := l.counter.With(ladder, former)
	if err != nil {
		return nil, err
	}
	if l.more == nil {
		l.more = map[laddered]*counter.Counter{}
	}
	l.more[key] = c
	return c, nil
}

// choose sets the ladder of the rule, once. before are the rules that are
// replaced, nil if there are none.
func (p *prepared) choose(l *ladders, of *eventRules, before *ruleset) (err error) {
	switch {
	case p.counter != nil:
		return nil
	case p.Ladder.Len() > 0:
	case inner(l.counter).LadderSet():
		p.Ladder = l.counter.Config().Ladder
	default:
		windows := p.windows()
		for _, limits := range of.plansBeside(p) {
			windows = append(windows, limits.Windows()...)
		}
		p.Ladder, p.derived = tiers.For(windows...), true
	}
	if err := p.follow(of, before); err != nil {
		return err
	}
	if p.on, err = l.on(p.Ladder, p.Former); err != nil { // the ladder alone is no error
		return fmt.Errorf(".Former: %w", err)
	}
	p.counter = cmp.Or(p.on, l.counter)
	return nil
}

// checkLimits names the wrong limits of r, which was merged into p.
func (p *prepared) checkLimits(r *Rule) error {
	if err := p.fits(r.Limits); err != nil {
		return fmt.Errorf(".Limits%w", err)
	}
	for i, limits := range r.Plans {
		if err := p.fits(limits); err != nil {
			return fmt.Errorf(".Plans[%d]%w", i, err)
		}
	}
	if r.Else != "" {
		if err := p.fits(r.ElseLimits); err != nil {
			return fmt.Errorf(".ElseLimits%w", err)
		}
	}
	for i := range r.Overrides {
		if limits := r.Overrides[i].Limits; limits != nil {
			if err := p.fits(limits); err != nil {
				return fmt.Errorf(".Overrides[%d].Limits%w", i, err)
			}
		}
	}
	return nil
}

// bind prepares the limits that the rule names, and the ban.
func (p *prepared) bind(l *ladders) (err error) {
	if p.Ban > 0 {
		if p.ban, err = newBan(p.Ban, l); err != nil {
			return err
		}
	}
	p.boundless = counter.Limits{{Max: counter.MaxCount, Per: p.Limits[0].Per}}
	p.own.limits, p.other.limits, p.plans = p.Limits, p.ElseLimits, make([]terms, len(p.Plans))
	for i, limits := range p.Plans {
		p.plans[i].limits = limits
	}
	return nil
}

// bindLocally prepares the limits that the rule names for the local counter.
func (p *prepared) bindLocally(taker *fallback.Fallback, l *ladders) error {
	var former *counter.Config
	if f := p.Former; f != nil && f.Ladder.Len() > 0 && !f.Ladder.Equal(p.Ladder) {
		former = &counter.Config{Ladder: f.Ladder}
	}
	here, err := l.on(p.Ladder, former)
	if err != nil {
		return err
	}
	p.here = cmp.Or(here, l.counter)
	p.local = taker.Ladder(p.counter, p.here)
	if p.ban != nil {
		on, err := l.on(tiers.For(p.Ban), nil)
		if err != nil {
			return err
		}
		p.ban.here = cmp.Or(on, l.counter)
		p.ban.local = taker.Ladder(p.ban.counter, p.ban.here).Look(p.ban.look)
	}
	return p.each(func(t *terms) error {
		t.local = p.local.Rule(t.limits)
		return nil
	})
}

// each calls f with all terms that the rule names.
func (p *prepared) each(f func(t *terms) error) error {
	all := []*terms{&p.own}
	if p.Else != "" {
		all = append(all, &p.other)
	}
	for i := range p.plans {
		all = append(all, &p.plans[i])
	}
	all = append(all, p.overrides.terms()...)
	for _, t := range all {
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// fits returns an error if the ladder of the rule does not hold limits. Of a
// derived ladder the finest bucket of a window is at most a twentieth of it.
func (p *prepared) fits(limits counter.Limits) error {
	if err := limits.Check(p.Ladder); err != nil {
		return fmt.Errorf(": %w", err)
	}
	for i, limit := range limits {
		for _, before := range limits[:i] {
			if before.Per == limit.Per {
				return fmt.Errorf(" has %s and %s, want one limit for each window", before, limit)
			}
		}
		finest, _ := p.Ladder.Finest(limit.Per) // checked
		if most, width := max(limit.Per/20, tiers.MinWidth), p.Ladder.At(finest).Width; p.derived && width > most {
			return fmt.Errorf(" has %s, but the ladder %q of the rule has buckets of %s for it, want at most %s: list the limits in Rule.Plans, or set Rule.Ladder", limit, p.Ladder, width, most)
		}
	}
	return nil
}

// termsOf returns the limits of a feature in a call: the limits of o, else of the
// feature, else of LimitsOf, else of the rule.
func (p *prepared) termsOf(ctx context.Context, event string, n int64, f *feature.Feature, by *own, features []feature.Feature, o *override) (*terms, error) {
	if o != nil {
		return &o.terms, nil
	}
	byRule := &p.own
	if !f.Of(p.Kind) {
		byRule = &p.other
	}
	limits := by.limits
	if len(limits) == 0 && p.LimitsOf != nil {
		limits = p.LimitsOf(ctx, Call{event, n, *f, slices.Clone(features)})
	}
	if len(limits) == 0 || slices.Equal(limits, byRule.limits) {
		return byRule, nil
	}
	for i := range p.plans {
		if plan := &p.plans[i]; slices.Equal(limits, plan.limits) {
			return plan, nil
		}
	}
	if err := p.fits(limits); err != nil {
		return nil, fmt.Errorf("limiter: event %q, limits of the call by %q%w", event, f.Kind(), err)
	}
	t := &terms{limits: limits}
	if p.local != nil {
		t.local = p.local.Rule(limits)
	}
	return t, nil
}
