package httplimit

import (
	"slices"

	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// ruled is all that a middleware derives from the rules of its event. Immutable,
// but for the memory of byCall.
type ruled struct {
	generation uint64        // of the rules
	show       []string      // the kinds whose remaining count is told
	fields     *fields       // of the rules' own limits
	byCall     *fieldsByCall // nil: no rule has limits by call
	single     bool          // a verdict has at most one state: of a single feature under a single limit
}

// derive makes the ruled of a generation of the rules, which is read before the
// rules: of rules that change meanwhile the next request derives again.
func (m *middleware) derive(generation uint64) (*ruled, error) {
	rules := m.Limiter.Rules(m.Event)
	d := &ruled{generation: generation, show: m.Show}
	for _, r := range rules {
		if r.Else == feature.KindIP && slices.Contains(m.Show, r.Kind) {
			d.show = append(slices.Clip(d.show), r.Else)
		}
		if r.LimitsOf != nil || r.Else != "" || r.Percent > 0 || slices.ContainsFunc(r.Overrides, func(o limiter.Override) bool { return o.Limits != nil }) {
			d.byCall = &fieldsByCall{}
		}
	}
	policies := policiesOf(rules)
	var err error
	d.fields, err = m.newFields(policies, d.show)
	d.single = len(policies) == 1 && len(m.Features) <= 1 && d.byCall == nil
	return d, err
}

// rulesNow is the ruled of the rules of now. Of rules without names for policies the
// ruled of the rules before holds on.
func (m *middleware) rulesNow() *ruled {
	d := m.ruled.Load()
	generation := m.Limiter.Generation()
	if d.generation == generation {
		return d
	}
	fresh, err := m.derive(generation)
	if err != nil {
		kept := *d
		kept.generation = generation
		fresh = &kept
	}
	m.ruled.Store(fresh)
	return fresh
}

// policiesOf are the policies of the enforced rules, whose calls bring no limits.
func policiesOf(rules []limiter.Rule) (policies []policy) {
	for _, r := range rules {
		if r.Soft {
			continue
		}
		for _, limit := range r.Limits {
			policies = append(policies, policy{kind: r.Kind, limit: limit})
		}
		for _, limit := range r.ElseLimits {
			policies = append(policies, policy{kind: r.Else, limit: limit})
		}
	}
	return policies
}

// newFields makes the fields of policies with the bodies of denials.
func (m *middleware) newFields(policies []policy, show []string) (*fields, error) {
	f, err := newFields(policies, show)
	if err != nil {
		return nil, err
	}
	for i := range f.policies {
		p := &f.policies[i]
		p.denial, p.ban = m.deniedBy([]string{p.name}, false).body(), m.deniedBy([]string{p.name}, true).body()
	}
	return f, nil
}
