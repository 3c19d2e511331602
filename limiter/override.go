package limiter

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// Override is an exception to a [Rule] for certain features: for a value, for the
// addresses of a network, or for the addresses of a mail domain. Of several
// fitting Overrides the most particular holds: Value, then the Network with the
// longest prefix or the Domain. An Override stands before the limits of a call,
// by LimitsOf or [Under].
//
// Exactly one of Value, Network and Domain is set, and exactly one of Limits,
// Exempt and Denied.
type Override struct {
	Value   string       // of a feature of Rule.Kind, in any form that makes an equal key: "Ada@Example.org" is "ada@example.org", and "2001:db8::1" is all of its /64
	Network netip.Prefix `json:",omitzero"`  // of addresses, for a rule by feature.KindIP; not of addresses that stand for IPv4 addresses: see feature.IP
	Domain  string       `json:",omitempty"` // of e-mail addresses without subdomains, for a rule by feature.KindEmail

	Limits counter.Limits `json:",omitempty"` // in place of Rule.Limits, on the same counts; windows of the rule's ladder
	Exempt bool           `json:",omitempty"` // the rule does not apply to the feature, and counts nothing for it
	Denied bool           `json:",omitempty"` // a call with the feature is denied, and no store is asked

	Until   time.Time `json:",omitzero"`  // the end of the Override, by the clock of the Counter; zero: none
	Comment string    `json:",omitempty"` // a note for the people of the service
}

// String names the features of o: `value "7"`, `network 192.0.2.0/24` or
// `domain "example.org"`.
func (o *Override) String() string {
	switch {
	case o.Network.IsValid():
		return "network " + o.Network.String()
	case o.Domain != "":
		return fmt.Sprintf("domain %q", o.Domain)
	}
	return fmt.Sprintf("value %q", o.Value)
}

// override is an Override, prepared for a rule.
type override struct {
	*Override
	terms terms // of Limits
}

// terms are the limits of a call, prepared for a rule.
type terms struct {
	limits counter.Limits
	local  *fallback.Rule // nil: never counted locally
}

// overrides finds the Override of a feature. The nil overrides have none.
type overrides struct {
	now      func() time.Time
	all      []override
	values   map[string]*override // by the text of the key
	networks map[netip.Prefix]*override
	lengths  [2][]int             // of the networks of IPv4 and of IPv6, longest first
	domains  map[string]*override // of e-mail addresses
}

// newOverrides prepares the Overrides of a rule by these kinds, Kind first.
func newOverrides(of []Override, kinds []string, now func() time.Time, n *feature.Normalizer) (*overrides, error) {
	if len(of) == 0 {
		return nil, nil
	}
	all := &overrides{now: now, all: make([]override, len(of)), values: map[string]*override{}, networks: map[netip.Prefix]*override{}, domains: map[string]*override{}}
	for i := range of {
		o := &all.all[i]
		o.Override, o.terms.limits = &of[i], of[i].Limits
		if err := all.add(o, kinds, n); err != nil {
			return nil, fmt.Errorf(".Overrides[%d]%w", i, err)
		}
	}
	for prefix := range all.networks {
		lengths := &all.lengths[familyOf(prefix.Addr())]
		if at, is := slices.BinarySearchFunc(*lengths, prefix.Bits(), func(a, b int) int { return b - a }); !is {
			*lengths = slices.Insert(*lengths, at, prefix.Bits())
		}
	}
	return all, nil
}

// add adds o, and the error names its wrong field.
func (all *overrides) add(o *override, kinds []string, n *feature.Normalizer) error {
	switch {
	case trues(o.Value != "", o.Network.IsValid(), o.Domain != "") != 1:
		return fmt.Errorf(" has Value %q, Network %q and Domain %q, want one of them", o.Value, prefixText(o.Network), o.Domain)
	case trues(o.Limits != nil, o.Exempt, o.Denied) != 1:
		return fmt.Errorf(" of %s has Limits %q, Exempt %t and Denied %t, want one of them", o, o.Limits, o.Exempt, o.Denied)
	case o.Value != "":
		f := feature.New(kinds[0], o.Value)
		if f.Err() != nil || f.Missing() {
			return fmt.Errorf(".Value is %q, want a value of kind %q", o.Value, kinds[0])
		}
		return put(all.values, string(n.Append(nil, &f)), o)
	case o.Domain != "":
		f := feature.Email("any@" + o.Domain)
		if f.Err() != nil || !slices.Contains(kinds, feature.KindEmail) {
			return fmt.Errorf(".Domain is %q, want the domain of e-mail addresses, in a rule by %q", o.Domain, feature.KindEmail)
		}
		return put(all.domains, domainOf(n.Append(nil, &f)), o)
	}
	prefix := o.Network
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if prefix != prefix.Masked() || !slices.Contains(kinds, feature.KindIP) {
		return fmt.Errorf(".Network is %s, want the first address of the network, %s, in a rule by %q", o.Network, prefix.Masked(), feature.KindIP)
	}
	if feature.StandsForIPv4(prefix) {
		return fmt.Errorf(".Network is %s, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4", o.Network)
	}
	return put(all.networks, prefix, o)
}

func put[K comparable](all map[K]*override, key K, o *override) error {
	if other := all[key]; other != nil {
		return fmt.Errorf(" is of %s, but an Override before is of %s, which is the same, want one", o, other)
	}
	all[key] = o
	return nil
}

func trues(fields ...bool) (n int) {
	for _, is := range fields {
		if is {
			n++
		}
	}
	return n
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// domainOf is the domain of an e-mail address in canonical form. A provider has a
// single domain there.
func domainOf(text []byte) string { return string(text[bytes.LastIndexByte(text, '@')+1:]) }

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// of returns the Override that holds for f, whose key has the text given; nil if
// there is none.
func (all *overrides) of(f *feature.Feature, text []byte) *override {
	if all == nil {
		return nil
	}
	if o := all.values[string(text)]; all.holds(o) {
		return o
	}
	if f.Of(feature.KindEmail) {
		if o := all.domains[domainOf(text)]; all.holds(o) {
			return o
		}
	}
	if !f.Of(feature.KindIP) { // a Network has an address too, of many
		return nil
	}
	for _, bits := range all.lengths[familyOf(f.Addr())] {
		prefix, _ := f.Addr().Prefix(bits) // of its own family
		if o := all.networks[prefix]; all.holds(o) {
			return o
		}
	}
	return nil
}

func (all *overrides) holds(o *override) bool {
	return o != nil && (o.Until.IsZero() || all.now().Before(o.Until))
}

// left is the time until the Override ends.
func (all *overrides) left(o *override) time.Duration {
	if o.Until.IsZero() {
		return counter.Never
	}
	return max(0, o.Until.Sub(all.now()))
}
