package limiter

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/tiers"
)

// call is a call as the rules see it: what fallback is told of it, and what is known
// without the store. It is written by asks alone.
type call struct {
	fallback.Call
	of     *eventRules
	n      int64      // hits, but for features with hits of their own
	places string     // of the features of the asks: see placeOf
	bans   []bannable // keys that can be banned

	missing  string        // the kind without a feature, if its rule denies such a call
	denied   bool          // by override
	override *override     // denies the call, or is the first to exempt a feature; nil: none
	kind     string        // of the feature of override
	left     time.Duration // of override, if denied
	limited  bool          // the limits of a key can deny the call
	charged  bool          // a key is charged, in a call that is no Charge
	soft     bool          // the event has soft rules that apply
	counts   bool          // a key is counted without a limit
	softly   []SoftVerdict // of soft rules that deny without a limit
	upTo     bool          // as many hits as have room, at least one
}

// bannable is a key of a call whose rule has a Ban; the key of the ban is the
// next in the call.
type bannable struct {
	ask int
	ban *ban
}

// asks appends what the rules ask of the store, the keys of features with their limits,
// each key once, and writes into c what else depends on the rules. The texts of all keys
// are parts of a single string, for a single allocation. The methods of c that append
// keys see no more than the text of a feature, and no field of c has the asks, so that
// the buffers stay on the stack.
func (c *call) asks(ctx context.Context, asks []counter.Ask, features []feature.Feature) (_ []counter.Ask, err error) {
	var textBuf [128]byte
	var spanBuf [8]span
	var ruleBuf [8]*prepared
	text, spans := textBuf[:0], spanBuf[:0] // asks[i] has the text of spans[i]
	for _, p := range c.of.met(features, ruleBuf[:0]) {
		found, unknown, missing := false, false, &noNote
		for _, kind := range [...]string{p.Kind, p.Else} {
			for j := range features {
				f := &features[j]
				if !f.Of(kind) {
					continue
				}
				by := ownOf(f)
				if want := by.wrong(c.upTo); want != "" {
					return nil, fmt.Errorf("limiter: event %q: Times of a feature of kind %q is %d, want %s", c.of.event, kind, by.n, want)
				}
				if f.Missing() {
					unknown, missing = unknown || f.Unknown(), by
					continue
				}
				found = true
				begin := len(text)
				start := begin + len(p.prefix)
				text = c.of.normalizer.Append(append(text, p.prefix...), f)
				enforced, soft := find(asks, text, spans, start, false), find(asks, text, spans, start, true)
				c.again(asks, enforced, by)
				softly := len(c.softly)
				if c.again(asks, soft, by); soft < 0 {
					if asks, err = c.add(ctx, asks, p, f, by, features, text[start:], enforced); err != nil || c.denied {
						return nil, err
					}
				}
				if len(c.softly) > softly {
					c.softly[softly].Ask = j
				}
				text, spans = spansOf(asks, text, spans, begin, start, j)
			}
			if found || unknown || p.Else == "" {
				break
			}
		}
		if !found && !unknown {
			begin := len(text)
			start := begin + len(p.prefix)
			text = append(append(append(text, p.prefix...), p.Kind...), ':')
			if asks = c.addMissing(asks, p, missing, find(asks, text, spans, start, false)); c.missing != "" {
				return nil, nil
			}
			text, spans = spansOf(asks, text, spans, begin, start, -1)
		}
	}
	c.places = nameAsks(asks, c.of.event, text, spans)
	if !slices.ContainsFunc(c.Rules, func(r *fallback.Rule) bool { return r != nil }) {
		c.Rules = nil
	}
	return asks, nil
}

// met returns the rules that a call with features meets, in order, in the room of none
// if that is large enough.
func (of *eventRules) met(features []feature.Feature, none []*prepared) []*prepared {
	if len(of.always) == len(of.rules) {
		return of.rules
	}
	met := append(none, of.always...)
	for i := range features {
		kind := features[i].Kind()
		for _, p := range [...]*prepared{of.enforced[kind], of.soft[kind]} {
			if p != nil && p.IfMissing == MissingSkip {
				met = append(met, p)
			}
		}
	}
	slices.SortFunc(met, func(a, b *prepared) int { return a.place - b.place })
	return slices.Compact(met)
}

// spansOf appends the spans of the asks that are new, of a feature whose text has begun at
// start, and with the prefix of a ban at begin: a second ask is the ban of the rule, or
// the enforced key of a soft rule. Without new asks the text goes.
func spansOf(asks []counter.Ask, text []byte, spans []span, begin, start, place int) ([]byte, []span) {
	if len(spans) == len(asks) {
		return text[:begin], spans
	}
	spans = append(spans, span{start, len(text), place})
	if len(spans) < len(asks) {
		spans = append(spans, span{begin, len(text), place})
	}
	return text, spans
}

// find returns the index of the enforced or soft ask with the text from start on; -1 if
// there is none. A Counter would merge equal keys too, but take each limit as often as
// its key is given.
func find(asks []counter.Ask, text []byte, spans []span, start int, soft bool) int {
	for i, s := range spans {
		if asks[i].Soft == soft && string(text[s.start:s.end]) == string(text[start:]) {
			return i
		}
	}
	return -1
}

// again has the key of index i, if i is not below zero, asked for by an equal feature
// with the note by.
func (c *call) again(asks []counter.Ask, i int, by *own) {
	if i >= 0 {
		asks[i].N = max(asks[i].N, by.hits(c.n))
	}
}

// ask appends an ask without its key. rule, which may be nil, counts it in this
// process.
func (c *call) ask(asks []counter.Ask, ask counter.Ask, rule *fallback.Rule) []counter.Ask {
	if c.of.local {
		c.Rules = append(c.Rules, rule)
	}
	ask.UpTo = c.upTo
	return append(asks, ask)
}

// add appends the keys of a feature, with this text, unless an Override denies the
// call. plain is the index of its enforced key, -1 if there is none.
func (c *call) add(ctx context.Context, asks []counter.Ask, p *prepared, f *feature.Feature, by *own, features []feature.Feature, text []byte, plain int) ([]counter.Ask, error) {
	o, kind := p.overrides.of(f, text), f.Kind()
	enforced := !p.Soft || p.enforces(text)
	if o != nil && o.Limits == nil {
		switch {
		case o.Denied && enforced:
			c.denied, c.override, c.kind, c.left = true, o, kind, p.overrides.left(o)
		case o.Denied:
			c.soft, c.softly = true, append(c.softly, SoftVerdict{Kind: kind, Denied: true, RetryAfter: p.overrides.left(o)})
		case c.override == nil && !p.Soft:
			c.override, c.kind = o, kind
		}
		return asks, nil
	}
	t, err := p.termsOf(ctx, c.of.event, by.hits(c.n), f, by, features, o)
	if err != nil {
		return asks, err
	}
	return c.addKey(asks, p, t, by, kind, enforced, plain)
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
	for _, plan := range p.plans {
		if slices.Equal(limits, plan.limits) {
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

// fits returns an error if the ladder of the rule does not hold limits. Of a
// derived ladder the finest bucket of a window is at most a twentieth of it.
func (p *prepared) fits(limits counter.Limits) error {
	if err := limits.Check(p.Ladder); err != nil {
		return fmt.Errorf(": %w", err)
	}
	for i, limit := range limits {
		for _, before := range limits[:i] {
			if sameWindow(before, limit) {
				return fmt.Errorf(" has %s and %s, want one limit for each window", before, limit)
			}
		}
		if !limit.Period.IsZero() {
			continue // no bucket of a period counts in part
		}
		finest, _ := p.Ladder.Finest(limit.Per) // checked
		if most, width := max(limit.Per/20, tiers.MinWidth), p.Ladder.At(finest).Width; p.derived && width > most {
			return fmt.Errorf(" has %s, but the ladder %q of the rule has buckets of %s for it, want at most %s: list the limits in Rule.Plans, or set Rule.Ladder", limit, p.Ladder, width, most)
		}
	}
	return nil
}

// sameWindow reports whether a and b are limits for one window.
func sameWindow(a, b counter.Limit) bool { return a.Per == b.Per && a.Period == b.Period }

// addMissing appends what stands for a missing feature, unless the rule denies the
// call.
func (c *call) addMissing(asks []counter.Ask, p *prepared, by *own, plain int) []counter.Ask {
	enforced := !p.Soft || p.Percent == 100
	switch {
	case p.IfMissing == MissingSkip:
	case p.IfMissing == MissingShare:
		asks, _ = c.addKey(asks, p, &p.own, by, p.Kind, enforced, plain) // the limits fit
	case enforced:
		c.missing = p.Kind
	default:
		c.soft, c.softly = true, append(c.softly, SoftVerdict{Ask: -1, Kind: p.Kind, Denied: true, RetryAfter: counter.Never})
	}
	return asks
}

// addKey appends what a rule asks of a feature of the kind.
func (c *call) addKey(asks []counter.Ask, p *prepared, t *terms, by *own, kind string, enforced bool, plain int) ([]counter.Ask, error) {
	switch {
	case !enforced:
		return c.addSoft(asks, p, t, by, kind, plain), nil
	case plain >= 0:
		return asks, c.join(&asks[plain], p, t, kind, plain)
	}
	charge := by.charge && (c.Mode == fallback.Taking || c.Mode == fallback.Peeking) // others charge or credit all keys
	c.limited, c.charged = c.limited || !charge, c.charged || charge
	c.Policy = strictest(c.Policy, p.OnFailure)
	asks = c.ask(asks, counter.Ask{N: by.hits(c.n), Limits: t.limits, On: p.counter, Charge: charge}, t.local)
	if p.ban != nil && !charge {
		c.bans = append(c.bans, bannable{len(asks) - 1, p.ban})
		asks = c.ask(asks, counter.Ask{Limits: p.ban.look, On: p.ban.counter}, p.ban.local)
	}
	return asks, nil
}

// A soft rule counts a soft key of the Counter, under the text of the feature. The
// enforced key of the feature is counted in any case: by the enforced rule of the
// kind, or else for the soft rule, under a limit that denies nothing. So whoever
// enforces the rule, for a share or for all, finds the counts.

// addSoft appends the soft key of a feature, and the enforced key if no one else
// asks for that: plain is -1.
func (c *call) addSoft(asks []counter.Ask, p *prepared, t *terms, by *own, kind string, plain int) []counter.Ask {
	c.soft = true
	asks = c.ask(asks, counter.Ask{N: by.hits(c.n), Limits: t.limits, On: p.counter, Soft: true}, nil)
	if plain < 0 {
		c.counts = true
		of := c.of.counting(kind)
		limits := of.boundless
		if c.Mode == fallback.Crediting { // of the newest hits in the longest window
			all := slices.Concat(of.Limits, of.ElseLimits)
			longest := slices.MaxFunc(all, func(a, b counter.Limit) int { return cmp.Compare(a.Window(), b.Window()) })
			longest.Max = counter.MaxCount
			limits = counter.Limits{longest}
		}
		asks = c.ask(asks, counter.Ask{N: by.hits(c.n), Limits: limits, On: of.counter}, nil)
	}
	return asks
}

// join has the enforced key ask, of index i, judged by the limits of a soft rule
// too.
func (c *call) join(ask *counter.Ask, p *prepared, t *terms, kind string, i int) error {
	by := c.of.counting(kind)
	if same := len(ask.Limits) - len(t.limits); same >= 0 && slices.Equal(ask.Limits[same:], t.limits) {
		return nil // an equal feature came before
	}
	if err := by.fits(t.limits); err != nil { // of a call
		return fmt.Errorf("limiter: event %q, soft limits of the call by %q%w", c.of.event, kind, err)
	}
	ask.Limits = slices.Concat(ask.Limits, t.limits)
	c.Policy = strictest(c.Policy, p.OnFailure)
	if c.of.local && c.Rules[i] != nil {
		c.Rules[i] = by.local.Rule(ask.Limits)
	}
	return nil
}

// countsOnly reports whether a key is asked for under a limit that denies nothing.
func countsOnly(ask *counter.Ask) bool {
	return !ask.Soft && len(ask.Limits) == 1 && ask.Limits[0].Max == counter.MaxCount
}

// strictest is the policy that decides where rules differ.
func strictest(a fallback.Policy, rule OnFailure) fallback.Policy {
	switch {
	case a == fallback.Closed || rule == FailClosed:
		return fallback.Closed
	case a == fallback.Local || rule == FailLocal:
		return fallback.Local
	}
	return fallback.Open
}

// span is the part of the texts of a call that is the text of an ask, and the index of
// its feature in the call, -1 if the feature is missing.
type span struct{ start, end, place int }

// nameAsks writes the keys of asks, and returns what placeOf needs: the texts with their
// spans behind them, or "" if all places are 0.
func nameAsks(asks []counter.Ask, event string, text []byte, spans []span) string {
	placed := slices.ContainsFunc(spans, func(s span) bool { return s.place != 0 })
	if placed {
		for _, s := range spans {
			for _, n := range [...]int{s.start, s.end, s.place} {
				text = binary.LittleEndian.AppendUint32(text, uint32(n))
			}
		}
		text = append(text, byte(len(spans)))
	}
	texts := string(text)
	for i, s := range spans {
		asks[i].Key = counter.Key{Event: event, Feature: texts[s.start:s.end]}
	}
	if !placed {
		return ""
	}
	return texts
}

// own is the note of a feature: what a call says of this feature alone.
type own struct {
	limits counter.Limits // of Under; empty: none
	times  bool           // n is the number of hits
	n      int64
	charge bool
}

// noNote is the note of a feature of which a call says nothing.
var noNote own

// ownOf returns the note of f, which is not to be changed.
func ownOf(f *feature.Feature) *own {
	if o, is := f.Note().(*own); is {
		return o
	}
	return &noNote
}

// Under returns f under limits of the call instead of the limits of the rule, such
// as those of a plan, a tenant or a request:
//
//	v, err := lim.Allow(ctx, "mail", limiter.Under(feature.New("tenant", "7"), pro))
//
// The hits are counted where they always are, so whoever gets other limits keeps the
// usage. The ladder of the rule must keep buckets for the windows of limits: see
// [Rule.Plans]. Without limits those of the rule hold. The limits must not be changed
// while a Verdict of the call is in use. They are in the note of the feature.
func Under(f feature.Feature, limits counter.Limits) feature.Feature {
	o := *ownOf(&f)
	o.limits = limits
	return f.With(&o)
}

// Times returns f with n hits for a call, instead of the n of the call: 0 to
// [counter.MaxCount]. With an n of 0 nothing is counted for f: it denies the call if a
// limit is over already, as in a Peek of 0, and begins no ban.
//
//	v, err := lim.Allow(ctx, "ask", feature.IP(addr), limiter.Times(feature.New("model", "large"), tokens))
//
// If no feature of a call has hits, the call is not counted, and its Verdict cannot be
// refunded. Equal features count once, with the larger n. A missing feature has its n
// under MissingShare. Decision.N remains the n of the call.
//
// A call with an n out of range is an error.
func Times(f feature.Feature, n int64) feature.Feature {
	o := *ownOf(&f)
	o.times, o.n = true, n
	return f.With(&o)
}

// Charged returns f with hits that are counted whatever its limits, in a call that its
// other features may deny; a denied call counts nothing. The limits of f deny no one,
// begin no ban, and heed none. [Verdict.All] has their states: a RetryAfter above 0 is
// the time until a limit that is over has room again. The flat fields of a Verdict
// describe them only if all features are charged. Of equal features the first says
// whether they are charged.
//
// Charged is for a cost that is known next to features that are yet to be admitted;
// [Limiter.Charge] charges all features.
func Charged(f feature.Feature) feature.Feature {
	o := *ownOf(&f)
	o.charge = true
	return f.With(&o)
}

// hits is the number of hits of a feature with the note o, in a call for n.
func (o *own) hits(n int64) int64 {
	if o.times {
		return o.n
	}
	return n
}

// wrong returns the range of the hits of Times if they are out of it.
func (o *own) wrong(upTo bool) string {
	switch {
	case upTo && o.n != 0:
		return "0 in AllowUpTo"
	case o.n < 0 || o.n > counter.MaxCount:
		return fmt.Sprintf("0 to %d", int64(counter.MaxCount))
	}
	return ""
}
