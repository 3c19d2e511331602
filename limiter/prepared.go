package limiter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
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
	if len(p.Ban) > 0 {
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

// ban is the Ban of a rule. The key of the ban counts the bans of a feature: 1 for the
// first, and 256 times as many for each step further, so that the bans of a step, also
// those of processes that had no store, are fewer than one of the next. A feature is
// banned while the window of a step has as many as a ban of the step. Each call looks at
// the key in the step that judges the feature, under a Max of one less for each window. A
// call denied by the feature's limits takes a ban with room for one only, above those it
// has seen. So one of several racing calls begins the ban, and none prolongs it.
type ban struct {
	counter *counter.Counter // counts on the ladder of the ban
	look    counter.Limits   // a window for each step
	memory  time.Duration    // from the beginning of a ban, for the next to go a step further
	here    *counter.Counter // counts the bans that this process knows of, on the local counter; nil if the rule never counts locally
	local   *fallback.Rule   // look, on here; nil too
}

// banPrefix begins the Feature of a ban's key, before the text of the feature.
// No kind is empty, so no feature has such a key.
const banPrefix = ":ban:"

// newBan returns bans of these lengths, on the counters of store.
func newBan(lengths Bans, store *ladders) (*ban, error) {
	b := &ban{memory: lengths.memory()}
	for i, per := range lengths {
		b.look = append(b.look, counter.Limit{Max: 1<<(8*i) - 1, Per: per})
	}
	var err error
	b.counter, err = store.on(append(b.look, counter.Limit{Per: b.memory}).Ladder(), nil)
	return b, err
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

// MaxBans is the largest number of times of a Rule.Ban.
const MaxBans = 6

// Bans are the lengths of the bans of a feature, from the first to the longest, which is
// also that of all later bans.
type Bans []time.Duration

// String returns the lengths as a rules file has them: "10m", or "1m, 10m, 1h".
func (b Bans) String() string {
	var all []string
	for _, length := range b {
		all = append(all, dur.Format(length))
	}
	return strings.Join(all, ", ")
}

// memory is the time from the beginning of a ban for which the next goes a step further.
func (b Bans) memory() time.Duration {
	if longest := b[len(b)-1]; len(b) > 1 {
		return 2 * longest
	}
	return b[0]
}

// wrong returns what is wanted of b, if it is wrong.
func (b Bans) wrong() string {
	if len(b) > MaxBans {
		return fmt.Sprintf("at most %d lengths", MaxBans)
	}
	for i, length := range b {
		switch {
		case length < tiers.MinWindow || length > tiers.MaxWindow:
			return fmt.Sprintf("%s to %s, or none", dur.Format(tiers.MinWindow), dur.Format(tiers.MaxWindow))
		case i > 0 && length <= b[i-1]:
			return "each length above the one before"
		}
	}
	if len(b) > 0 && b.memory() > tiers.MaxWindow {
		return fmt.Sprintf("at most %s, if there are several", dur.Format(tiers.MaxWindow/2))
	}
	return ""
}

// inner returns what a Limiter needs of a Counter and users do not.
func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}
