package limiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/inside"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/tiers"
)

// prepared is the Rule of an event and kind, merged, with its ladder.
type prepared struct {
	Rule
	place     int              // in the rules of the event
	from      []int            // the indexes in Config.Rules of the rules that were merged
	counter   *counter.Counter // counts on the ladder of the rule
	derived   bool             // the ladder was derived from the limits
	kept      bool             // Former is not the rule's own: a Replace has added it
	here      *counter.Counter // counts locally on the ladder of the rule; nil: the rule never does
	local     *fallback.Ladder // of here; nil too
	own       terms            // Limits
	other     terms            // ElseLimits
	plans     []*terms         // Plans
	terms     []*terms         // all of these, and those of Overrides
	overrides *overrides       // nil: none
	boundless counter.Limits   // a limit that denies nothing
	ban       *ban             // nil: none
	prefix    string           // banPrefix, with a ban: the text of its key ends with that of the feature
	bans      []*ban           // ban, and those of the rules replaced by this one, for Forget and Erase
}

// merge adds a rule of the same event and kind, which is checked.
func (p *prepared) merge(r Rule) {
	p.Limits = append(p.Limits, r.Limits...)
	p.Plans = append(p.Plans, clonePlans(r.Plans)...)
}

// checkLimits names the wrong limits of r, which was merged into p.
func (p *prepared) checkLimits(r *Rule) error {
	for _, in := range r.allLimits() {
		if err := p.fits(in.limits); err != nil {
			return fmt.Errorf("%s%w", in.field, err)
		}
	}
	return nil
}

// bind prepares the limits that the rule names, and the ban, to count on store.
func (p *prepared) bind(store *ladders) (err error) {
	p.boundless = counter.Limits{{Max: counter.MaxCount, Per: p.Limits[0].Window()}}
	p.own.limits, p.other.limits = p.Limits, p.ElseLimits
	for _, limits := range p.Plans {
		p.plans = append(p.plans, &terms{limits: limits})
	}
	p.terms = append(slices.Clip(p.plans), &p.own)
	if p.Else != "" {
		p.terms = append(p.terms, &p.other)
	}
	if p.overrides != nil {
		for i := range p.overrides.all {
			if o := &p.overrides.all[i]; o.Limits != nil {
				p.terms = append(p.terms, &o.terms)
			}
		}
	}
	if p.Ban > 0 {
		p.prefix = banPrefix
		p.ban, err = newBan(p.Ban, store)
	}
	return err
}

// bindLocally prepares what bind has prepared for the local counter.
func (p *prepared) bindLocally(taker *fallback.Fallback, local *ladders) (err error) {
	var former *counter.Config
	if f := p.Former; f != nil && f.Ladder.Len() > 0 && !f.Ladder.Equal(p.Ladder) {
		former = &counter.Config{Ladder: f.Ladder}
	}
	if p.here, err = local.on(p.Ladder, former); err != nil {
		return err
	}
	p.local = taker.Ladder(p.counter, p.here)
	for _, t := range p.terms {
		t.local = p.local.Rule(t.limits)
	}
	if p.ban != nil {
		err = p.ban.bindLocally(taker, local)
	}
	return err
}

// formerAfter is the former ladder of p after the rule old. own is the former
// ladder that the rule of p names, or nil; kept reports whether the former ladder
// is another.
func (p *prepared) formerAfter(old *prepared, own *counter.Config) (former *counter.Config, kept bool, err error) {
	switch {
	case p.Ladder.Equal(old.Ladder):
		if former, kept = own, false; own == nil && old.kept {
			former, kept = old.Former, true
		}
		if old.kept && !equalFormer(former, old.Former) {
			err = fmt.Errorf(".Former has the ladder %q, but hits are counted by %q and still by %q, want %q", own.Ladder, old.Ladder, old.Former.Ladder, old.Former.Ladder)
		}
	case old.Former != nil && !equalFormer(old.Former, &counter.Config{Ladder: p.Ladder}):
		err = fmt.Errorf(".Ladder is %q, but hits are counted by %q and still by the former ladder %q, want one of these: drop the former first, see Replace", p.Ladder, old.Ladder, old.Former.Ladder)
	default:
		before := &counter.Config{Ladder: old.Ladder}
		if own != nil && !equalFormer(own, before) {
			err = fmt.Errorf(".Former has the ladder %q, but hits are counted by %q, want that", own.Ladder, old.Ladder)
		}
		former, kept = before, own == nil
	}
	return former, kept, err
}

// ladders makes one Counter for each ladder.
type ladders struct {
	counter *counter.Counter
	more    map[laddered]*counter.Counter // with other ladders
}

type laddered struct {
	ladder string
	former former
}

func newLadders(c *counter.Counter) ladders {
	return ladders{c, map[laddered]*counter.Counter{}}
}

// on returns a Counter on the ladder.
func (l *ladders) on(ladder tiers.Ladder, former *counter.Config) (*counter.Counter, error) {
	if former == nil && ladder.Equal(l.counter.Config().Ladder) {
		return l.counter, nil
	}
	key := laddered{ladder.String(), formerOf(former)}
	if c := l.more[key]; c != nil {
		return c, nil
	}
	c, err := l.counter.With(ladder, former)
	if err == nil {
		l.more[key] = c
	}
	return c, err
}

// ban is the Ban of a rule. A feature is banned while the key of the ban holds a
// hit. Each call looks at the key of the ban in the step that judges the feature:
// no hits under a Max of zero. A call denied by the feature's limits takes the
// only hit that fits under a Max of 1. So one of several racing calls begins the
// ban, and none prolongs the ban.
type ban struct {
	counter    *counter.Counter // counts on the ladder of the ban
	look, take counter.Limits
	here       *counter.Counter // counts the bans that this process knows of, on the local counter; nil if the rule never counts locally
	local      *fallback.Rule   // look, on here; nil too
}

// banPrefix begins the Feature of a ban's key, before the text of the feature.
// No kind is empty, so no feature has such a key.
const banPrefix = ":ban:"

// newBan returns a ban of a length, on the counters of store.
func newBan(per time.Duration, store *ladders) (*ban, error) {
	c, err := store.on(tiers.For(per), nil)
	return &ban{counter: c, look: counter.Limits{{Max: 0, Per: per}}, take: counter.Limits{{Max: 1, Per: per}}}, err
}

// bindLocally prepares the ban for the local counter.
func (b *ban) bindLocally(taker *fallback.Fallback, local *ladders) (err error) {
	if b.here, err = local.on(b.counter.Config().Ladder, nil); err == nil {
		b.local = taker.Ladder(b.counter, b.here).Look(b.look)
	}
	return err
}

// key is the key of the ban of a feature, from the feature's own key.
func (b *ban) key(of counter.Key) counter.Key {
	return counter.Key{Event: of.Event, Feature: banPrefix + of.Feature}
}

// inner returns what a Limiter needs of a Counter and users do not.
func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}
