package limiter

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/abacus-go/abacus/counter"
)

// Feature is a feature of a call: a kind, such as "user", and a value, such as
// "7". [IP], [Network], [Email], [Domain], [NewFeature] and [Join] make Features.
// Most callers want NewFeature for text, and IP for an address. The zero Feature, and a
// Feature without a value (an address that is not valid, an empty text), is
// missing: rules of its kind apply their IfMissing. See also [Unknown].
//
// Two Features with the same meaning make the same key: an Email in capitals is
// the Email in small letters.
type Feature struct {
	kind   string
	text   string     // the whole, or of an e-mail address the local part
	domain string     // of an e-mail address, or the whole; in canonical form
	addr   netip.Addr // of an IP or a Network, folded
	bits   uint8      // of a Network; 0: those of the Config
	parts  *[]Feature // of Join: at least two, none of them joined or missing
	err    error
	limits *counter.Limits // of the call; nil: those of the rule

	unknown bool // of Unknown
}

// Kinds of features whose values are normalized.
const (
	KindIP     = "ip"
	KindEmail  = "email"
	KindDomain = "domain"
)

// NewFeature is a feature of any kind, from text. Text of the kinds "ip", "email"
// and "domain" is read as by [IP], [Email] and [Domain]: text that is none makes a
// Feature with an error. A kind with plus signs, "ip+email", is that of [Join],
// and the text is the Value of such a feature. The value of any other kind is the
// text unchanged, and may hold any bytes. Kinds never meet: NewFeature("user",
// "192.0.2.1") and NewFeature("ip", "192.0.2.1") have different keys.
func NewFeature(kind, text string) Feature {
	switch {
	case !parses(kind):
		return Feature{kind: kind, text: text}
	case kind == KindIP:
		return parseIP(text)
	case kind == KindEmail:
		return Email(text)
	case kind == KindDomain:
		return Domain(text)
	}
	return parseJoined(kind, text)
}

// parses tells whether NewFeature reads text of the kind.
func parses(kind string) bool {
	return kind == KindIP || kind == KindEmail || kind == KindDomain || strings.Contains(kind, joinKinds)
}

// Unknown is a feature of a kind whose value the caller does not know, such as a
// field of a request whose body has not been read. A rule that would ask for the
// value is left out of the call, whatever its IfMissing and Else, unless another
// Feature of the kind is known; the other rules decide.
func Unknown(kind string) Feature { return Feature{kind: kind, unknown: true} }

// Kind is the kind of t.
func (t Feature) Kind() string { return t.kind }

// Value is the text of t: an address, a network, an e-mail address with its domain
// in canonical form, a domain, the values of [Join], or the text of [NewFeature]
// unchanged. Empty if t is missing.
func (t Feature) Value() string {
	switch {
	case t.parts != nil:
		return joinValues(*t.parts)
	case t.bits != 0:
		return string(appendNetwork(nil, t.addr, int(t.bits)))
	case t.addr.IsValid():
		return t.addr.String()
	case t.domain != "" && t.text != "":
		return t.text + "@" + t.domain
	}
	return t.text + t.domain
}

// Under is t under limits of the call in place of the limits of the rule, such as
// those of a plan, a tenant or a request. The hits are counted where they always
// are, so whoever gets other limits keeps the usage. The ladder of the rule must
// keep buckets for the windows of limits: see [Rule.Plans]. Without limits those
// of the rule hold. The limits must not be changed while a Verdict of the call is
// in use.
func (t Feature) Under(limits counter.Limits) Feature {
	t.limits = nil
	if len(limits) > 0 {
		t.limits = &limits
	}
	return t
}

// Missing tells whether t is not there.
func (t Feature) Missing() bool {
	return t.err == nil && t.text == "" && t.domain == "" && !t.addr.IsValid() && t.parts == nil
}

// Err is the error of text from which no Feature of the kind can be made, such as
// text that is not an e-mail address. The error has nothing of the text, so the
// error may be logged. A call with such a Feature returns the same error.
func (t Feature) Err() error { return t.err }

// normalizer gives equal features equal keys.
type normalizer struct {
	v4Bits, v6Bits         int
	ignoreDots, ignoreTags bool
	providers              map[string]provider // by domain
}

func newNormalizer(cfg *Config) (normalizer, error) {
	providers, err := newProviders(cfg.EmailProviders)
	c := normalizer{cfg.IPv4Bits, cfg.IPv6Bits, cfg.EmailIgnoreDots, cfg.EmailIgnoreTags, providers}
	if c.v4Bits == 0 {
		c.v4Bits = 32
	}
	if c.v6Bits == 0 {
		c.v6Bits = 64
	}
	errs := []error{err}
	if c.v4Bits < 0 || c.v4Bits > 32 {
		errs = append(errs, fmt.Errorf("limiter: Config.IPv4Bits is %d, want 1 to 32, or 0 for 32", c.v4Bits))
	}
	if c.v6Bits < 0 || c.v6Bits > 128 {
		errs = append(errs, fmt.Errorf("limiter: Config.IPv6Bits is %d, want 1 to 128, or 0 for 64", c.v6Bits))
	}
	return c, errors.Join(errs...)
}

// append appends the text of counter.Key.Feature for t, which is not missing. A
// kind ends at the first colon, so no two kinds meet.
func (c *normalizer) append(dst []byte, t *Feature) []byte {
	dst = append(append(dst, t.kind...), ':')
	if t.parts != nil {
		return c.appendJoined(dst, *t.parts)
	}
	return c.appendValue(dst, t)
}

// appendValue appends the value of t, which is not joined.
func (c *normalizer) appendValue(dst []byte, t *Feature) []byte {
	switch {
	case t.bits != 0:
		return appendNetwork(dst, t.addr, int(t.bits))
	case t.addr.Is4():
		return appendNetwork(dst, t.addr, c.v4Bits)
	case t.addr.Is6():
		return appendNetwork(dst, t.addr, c.v6Bits)
	case t.domain != "":
		return c.appendEmail(dst, t.text, t.domain)
	}
	return append(dst, t.text...)
}
