package limiter

import (
	"context"
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
func (p *prepared) bind(store *ladders, slack time.Duration) (err error) {
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
		p.ban, err = newBan(p.Ban, store, slack)
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

// ban is the Ban of a rule. A feature is banned while the key of the ban holds a hit.
// Each call looks at the key of the ban in the step that judges the feature: no hits
// under a Max of zero. A call denied by the feature's limits takes the only hit that has
// room then. So one of several racing calls begins the ban, and none prolongs the ban.
//
// With several times the call that has taken the hit adds the weight of its step, which
// is never undone: step i holds while its window has that weight, as all before weigh
// less together, and so do the hits of racing calls, which may be undone.
type ban struct {
	counter *counter.Counter // counts on the ladder of the ban
	look    counter.Limits   // the windows of the steps
	seen    counter.Limits   // look, and with several steps the time for which a ban is remembered, without a bound
	take    counter.Limits   // seen, with room for a hit if no ban holds
	slack   time.Duration    // of clocks, for the end of a ban
	here    *counter.Counter // counts the bans that this process knows of, on the local counter; nil if the rule never counts locally
	local   *fallback.Rule   // look, on here; nil too
}

// weight is the number of hits of a step. Bans of one step that several processes begin
// without the store, or that are carried twice, weigh less than the next step.
func (b *ban) weight(step int) int64 {
	if len(b.look) == 1 {
		return 1
	}
	return 1 << (7 * (step + 1))
}

// banPrefix begins the Feature of a ban's key, before the text of the feature.
// No kind is empty, so no feature has such a key.
const banPrefix = ":ban:"

// newBan returns a ban with these steps, on the counters of store.
func newBan(steps Bans, store *ladders, slack time.Duration) (_ *ban, err error) {
	b := &ban{look: make(counter.Limits, len(steps)), slack: slack}
	for i, per := range steps {
		if b.look[i].Per = per; i > 0 {
			b.look[i].Max = b.weight(i) - 1
		}
	}
	if b.seen = slices.Clip(b.look); len(steps) > 1 {
		b.seen = append(b.seen, counter.Limit{Max: counter.MaxCount, Per: steps.memory()})
	}
	b.take = slices.Clone(b.seen)
	for i := range b.look {
		b.take[i].Max++
	}
	b.counter, err = store.on(b.seen.Ladder(), nil)
	return b, err
}

// begin begins the next step of the ban of key, by until, and in this process if taker is
// nil. The step and the time that is left are those of the ban that holds now, which
// another call may have begun; 0: none. A ban that comes later holds too.
func (b *ban) begin(ctx context.Context, taker *fallback.Fallback, key counter.Key, until time.Time) (step int, left time.Duration) {
	ask, on := b.local.Begin, b.here
	if taker != nil {
		on = b.counter
		ask = func(m fallback.Mode, key counter.Key, n int64, limits counter.Limits) (v counter.Verdict, ok bool) {
			c := &fallback.Call{Mode: m, Policy: fallback.Open, Until: until}
			by, err := taker.Take(ctx, c, []counter.Ask{{Key: key, N: n, Limits: limits, On: on}}, &v)
			return v, err == nil && by.Degraded == nil
		}
	}
	v, ok := ask(fallback.Taking, key, 1, b.take)
	if !ok || !v.Allowed {
		return b.holds(&v)
	}
	if last := len(b.look) - 1; last > 0 {
		if seen, ok := ask(fallback.Peeking, key, 0, b.seen); ok {
			next := min(b.reached(&seen), last)
			if charged, ok := ask(fallback.Charging, key, b.weight(next), b.seen); ok {
				step, v = next, charged
			}
		}
	}
	return step, v.All()[step].ResetAfter + on.Config().Skew // as RetryAfter: the next call may come from the slowest clock
}

// holds returns the step that holds by v, an answer under seen or take, and the time that
// is left; 0: none holds.
func (b *ban) holds(v *counter.Verdict) (step int, left time.Duration) {
	for i, s := range v.All() {
		if rest := leftOf(&s, b.slack); i < len(b.look) && rest > left {
			step, left = i, rest
		}
	}
	return step, left
}

// leftOf is the time for which a ban holds by a state of its key. A state may have the hits
// in a coarse bucket alone: no ban holds for longer than if it had just begun.
func leftOf(s *counter.State, slack time.Duration) time.Duration {
	return min(s.RetryAfter, s.Limit.Per+s.Limit.Per/20+slack)
}

// reached is the number of the steps that are remembered by v, an answer under seen.
func (b *ban) reached(v *counter.Verdict) (steps int) {
	states := v.All()
	all := &states[len(states)-1]
	for steps < len(b.look) && all.Limit.Max-all.Remaining >= b.weight(steps) {
		steps++
	}
	return steps
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
