package limiter

import (
	"fmt"
	"slices"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
)

// A soft rule counts a soft key of the Counter, under the text of the feature. The
// enforced key of the feature is counted in any case: by the enforced rule of the
// kind, or else for the soft rule, under a limit that denies nothing. So whoever
// enforces the rule, for a share or for all, finds the counts.

// addSoft appends the soft key of a feature, and the enforced key if nobody else
// asks for that: plain is -1.
func (c *call) addSoft(asks []counter.Ask, p *prepared, t *terms, kind string, plain int) []counter.Ask {
	c.soft = true
	asks = c.ask(asks, counter.Ask{N: c.N, Limits: t.limits, On: p.on, Soft: true}, nil)
	if plain < 0 {
		c.counts = true
		by := c.of.counting(kind)
		asks = c.ask(asks, counter.Ask{N: c.N, Limits: by.boundless, On: by.on}, nil)
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

// countsOnly tells whether a key is asked for under a limit that denies nothing.
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

// enforces tells whether the rule is enforced for the feature with this text: the
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
func softVerdicts(states []counter.State) (all []SoftVerdict) {
	var last counter.Key
	var remaining int64
	for _, s := range states {
		if !s.Soft {
			continue
		}
		if len(all) == 0 || s.Key != last {
			all = append(all, SoftVerdict{Kind: feature.KindOf(s.Key.Feature), Limit: s.Limit})
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
