package limiter

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// asks appends what the rules ask of the store, the keys of features with their limits,
// each key once, and writes into c what else depends on the rules. The texts of all
// keys are parts of a single string, for a single allocation; the methods of c that
// append keys see no more than the text of a feature, and no field of c has the asks, so
// that the buffers stay on the stack.
func (l *Limiter) asks(ctx context.Context, c *call, asks []counter.Ask, features []feature.Feature) (_ []counter.Ask, err error) {
	var textBuf [128]byte
	var endBuf [8]textEnd
	text, ends := textBuf[:0], endBuf[:0] // ends[i] is of asks[i]
	var foundBuf [8]int
	rules := c.of.path(features, foundBuf[:0])
	for p := rules.next(); p != nil; p = rules.next() {
		found, unknown, start, missing := false, false, len(text), &noNote
		for _, kind := range [...]string{p.Kind, p.Else} {
			for j := range features {
				f := &features[j]
				if !f.Of(kind) {
					continue
				}
				by := ownOf(f)
				if by.wrong() {
					return nil, fmt.Errorf("limiter: event %q: Times of a feature of kind %q is %d, want 0 to %d", c.event, kind, by.n, int64(counter.MaxCount))
				}
				if f.Missing() {
					unknown, missing = unknown || f.Unknown(), by
					continue
				}
				found, start = true, len(text)
				text = l.normalizer.Append(text, f)
				enforced, soft := find(asks, text, ends, start, false), -1
				if p.Soft {
					soft = find(asks, text, ends, start, true)
				}
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
				text, ends = appendTexts(asks, text, ends, start, j)
			}
			if found || unknown || p.Else == "" {
				break
			}
		}
		if !found && !unknown {
			text = append(append(text, p.Kind...), ':')
			if asks = c.addMissing(asks, p, missing, find(asks, text, ends, start, false)); c.missing != "" {
				return nil, nil
			}
			text, ends = appendTexts(asks, text, ends, start, -1)
		}
	}
	c.places = nameAsks(asks, c.event, text, ends)
	if !slices.ContainsFunc(c.Rules, func(r *fallback.Rule) bool { return r != nil }) {
		c.Rules = nil
	}
	return asks, nil
}

// textEnd is the end of the text of an ask, and the index of its feature in the call, -1
// if the feature is missing.
type textEnd struct{ at, place int32 }

// appendTexts appends the texts of the asks that are new, of the feature of index place: the first has the text
// from start on, the second the same, or that of a ban.
func appendTexts(asks []counter.Ask, text []byte, ends []textEnd, start, place int) ([]byte, []textEnd) {
	end := len(text)
	if len(ends) == len(asks) {
		return text[:start], ends
	}
	soft := asks[len(ends)].Soft // then the enforced key follows, else the ban
	for i := range asks[len(ends):] {
		if i > 0 {
			if !soft {
				text = append(text, banPrefix...)
			}
			text = append(text, text[start:end]...)
		}
		ends = append(ends, textEnd{int32(len(text)), int32(place)})
	}
	return text, ends
}

// find returns the index of the enforced or soft ask whose text is that from start
// on; -1 if there is none. A Counter would merge equal keys too, but take each limit
// as often as its key is given.
func find(asks []counter.Ask, text []byte, ends []textEnd, start int, soft bool) int {
	from := int32(0)
	for i, end := range ends {
		if asks[i].Soft == soft && string(text[from:end.at]) == string(text[start:]) {
			return i
		}
		from = end.at
	}
	return -1
}

// nameAsks writes the keys of asks, and returns what placeOf needs: the texts with their
// ends and the places of their features behind them, or "" if all places are 0.
func nameAsks(asks []counter.Ask, event string, text []byte, ends []textEnd) string {
	placed := int32(0)
	for _, end := range ends {
		placed |= end.place
	}
	for i := 0; placed != 0 && i < len(ends); i++ {
		text = binary.LittleEndian.AppendUint32(text, uint32(ends[i].at))
		text = binary.LittleEndian.AppendUint32(text, uint32(ends[i].place))
	}
	if placed != 0 {
		text = append(text, byte(len(ends)))
	}
	texts, start := string(text), int32(0)
	for i, end := range ends {
		asks[i].Key = counter.Key{Event: event, Feature: texts[start:end.at]}
		start = end.at
	}
	if placed == 0 {
		return ""
	}
	return texts
}

// placeOf is the index of the feature with this text in the call, by a result of
// nameAsks; -1 if there is none.
func placeOf(places, text string) int {
	if places == "" {
		return 0
	}
	n := int(places[len(places)-1])
	of := []byte(places[len(places)-1-8*n:])
	for from := uint32(0); n > 0; n, of = n-1, of[8:] {
		end := binary.LittleEndian.Uint32(of)
		if places[from:end] == text {
			return int(int32(binary.LittleEndian.Uint32(of[4:])))
		}
		from = end
	}
	return -1
}

// again has the key of index i, if i is not below zero, asked for by an equal feature
// with the note by.
func (c *call) again(asks []counter.Ask, i int, by *own) {
	if i >= 0 {
		asks[i].N = max(asks[i].N, c.hits(by))
	}
}

// ask appends an ask without its key. rule, which may be nil, counts it in this
// process.
func (c *call) ask(asks []counter.Ask, ask counter.Ask, rule *fallback.Rule) []counter.Ask {
	if c.of.local {
		c.Rules = append(c.Rules, rule)
	}
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
			c.denied, c.override, c.kind = true, o, kind
		case o.Denied:
			c.soft, c.softly = true, append(c.softly, SoftVerdict{Kind: kind, Denied: true, RetryAfter: o.left(p.counter)})
		case c.override == nil && !p.Soft:
			c.override, c.kind = o, kind
		}
		return asks, nil
	}
	t, err := p.termsOf(ctx, c.event, c.hits(by), f, by, features, o)
	if err != nil {
		return asks, err
	}
	return c.addKey(asks, p, t, by, kind, enforced, plain)
}

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
	asks = c.ask(asks, counter.Ask{N: c.hits(by), Limits: t.limits, On: p.on, Charge: charge}, t.local)
	if p.ban != nil && !charge {
		c.bans = append(c.bans, bannable{len(asks) - 1, p.ban})
		asks = c.ask(asks, counter.Ask{Limits: p.ban.look, On: p.ban.on}, p.ban.local)
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
	asks = c.ask(asks, counter.Ask{N: c.hits(by), Limits: t.limits, On: p.on, Soft: true}, nil)
	if plain < 0 {
		c.counts = true
		of := c.of.counting(kind)
		limits := of.boundless
		if c.Mode == fallback.Crediting { // of the newest hits in the longest window
			all := slices.Concat(of.Limits, of.ElseLimits)
			longest := slices.MaxFunc(all, func(a, b counter.Limit) int { return cmp.Compare(a.Per, b.Per) })
			limits = counter.Limits{{Max: counter.MaxCount, Per: longest.Per}}
		}
		asks = c.ask(asks, counter.Ask{N: c.hits(by), Limits: limits, On: of.on}, nil)
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
		return fmt.Errorf("limiter: event %q, soft limits of the call by %q%w", c.event, kind, err)
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

// checkShare returns an error if the ladder on which a soft rule is enforced does
// not hold the limits of the rule.
func (p *prepared) checkShare(of *eventRules) error {
	for _, kind := range p.kinds() {
		by := of.counting(kind)
		if by == p {
			continue
		}
		err := p.each(func(t *terms) error { return by.fits(t.limits) })
		if err != nil {
			return fmt.Errorf("its Percent is %d, but the limits are to be judged by the counts of the enforced rule by %q, and the soft rule%w", p.Percent, kind, err)
		}
	}
	return nil
}

// enforces reports whether the rule is enforced for the feature with this text: the
// kind, a colon and the canonical value. The choice is the same in all processes,
// and a larger Percent chooses the same features and more.
func (p *prepared) enforces(text []byte) bool {
	if p.Percent == 0 || p.Percent == 100 {
		return p.Percent == 100
	}
	x := uint64(14695981039346656037) // FNV-1a
	for _, part := range [...]string{p.Event, "\x00", p.Kind, "\x00"} {
		for i := range len(part) {
			x = (x ^ uint64(part[i])) * 1099511628211
		}
	}
	for _, c := range text {
		x = (x ^ uint64(c)) * 1099511628211
	}
	// The finalizer of MurmurHash3: FNV-1a alone does not mix its low digits.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x%100 < uint64(p.Percent)
}

// softVerdicts are the answers of soft rules, from the states of all limits.
func softVerdicts(states []counter.State, places string) (all []SoftVerdict) {
	var last counter.Key
	var remaining int64
	for _, s := range states {
		if !s.Soft {
			continue
		}
		if len(all) == 0 || s.Key != last {
			all = append(all, SoftVerdict{Ask: placeOf(places, s.Key.Feature), Kind: feature.KindOf(s.Key.Feature), Limit: s.Limit})
			last, remaining = s.Key, s.Remaining
		}
		v := &all[len(all)-1]
		switch {
		case s.RetryAfter > v.RetryAfter:
			v.Denied, v.Limit, v.RetryAfter = true, s.Limit, s.RetryAfter
		case !v.Denied && s.Remaining < remaining:
			v.Limit, remaining = s.Limit, s.Remaining
		}
	}
	return all
}
