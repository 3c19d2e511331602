package limiter

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/abacus-go/abacus/counter"
)

// Feature is a feature of a call: a kind, such as "user", and a value, such as
// "7". [IP], [Email] and [NewFeature] make Features. The zero Feature, and a
// Feature without a value (an address that is not valid, an empty text), is
// missing: rules of its kind apply their IfMissing.
//
// Two Features with the same meaning make the same key: an Email in capitals is
// the Email in small letters.
type Feature struct {
	kind   string
	text   string     // without addr: the whole, or of an e-mail address the local part
	domain string     // of an e-mail address, in canonical form
	addr   netip.Addr // of an IP
	err    error
	limits *counter.Limits // of the call; nil: those of the rule
}

// Kinds of features whose values are normalized.
const (
	KindIP    = "ip"
	KindEmail = "email"
)

// IP is a feature of kind "ip": the network of addr. An IPv4 address counts
// whole and an IPv6 address by its first 64 bits, the usual share of a
// subscriber; Config.IPv4Bits and Config.IPv6Bits change the lengths. An IPv4
// address mapped to IPv6, or translated by 64:ff9b::/96 (RFC 6052), is the IPv4
// address: otherwise all of IPv4 would be a single network. A zone is dropped.
func IP(addr netip.Addr) Feature {
	addr = addr.Unmap().WithZone("")
	if translated.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	return Feature{kind: KindIP, addr: addr}
}

var translated = netip.MustParsePrefix("64:ff9b::/96")

// NewFeature is a feature of any kind with the value unchanged. Kinds never
// meet: NewFeature("user", "7") and NewFeature("ip", "7") have different keys.
// The value may hold any bytes.
func NewFeature(kind, value string) Feature {
	return Feature{kind: kind, text: value}
}

// Kind is the kind of t.
func (t Feature) Kind() string { return t.kind }

// Value is the text of t: an address, an e-mail address with its domain in
// canonical form, or the value of [NewFeature] unchanged. Empty if t is missing.
func (t Feature) Value() string {
	switch {
	case t.addr.IsValid():
		return t.addr.String()
	case t.domain != "":
		return t.text + "@" + t.domain
	}
	return t.text
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
	return t.err == nil && t.text == "" && !t.addr.IsValid()
}

// Err is the error of text from which no Feature can be made: not an e-mail
// address. A call with such a Feature returns the same error.
func (t Feature) Err() error { return t.err }

// normalizer gives equal features equal keys.
type normalizer struct {
	v4Bits, v6Bits         int
	ignoreDots, ignoreTags bool
}

func newNormalizer(cfg *Config) (normalizer, error) {
	c := normalizer{cfg.IPv4Bits, cfg.IPv6Bits, cfg.EmailIgnoreDots, cfg.EmailIgnoreTags}
	if c.v4Bits == 0 {
		c.v4Bits = 32
	}
	if c.v6Bits == 0 {
		c.v6Bits = 64
	}
	var errs []error
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
	switch {
	case t.addr.IsValid():
		bits := c.v6Bits
		if t.addr.Is4() {
			bits = c.v4Bits
		}
		if bits == t.addr.BitLen() {
			return t.addr.AppendTo(dst)
		}
		network, err := t.addr.Prefix(bits)
		if err != nil { // bits are in range, see newNormalizer
			return t.addr.AppendTo(dst)
		}
		return network.AppendTo(dst)
	case t.domain != "":
		return append(append(c.appendLocal(dst, t.text), '@'), t.domain...)
	}
	return append(dst, t.text...)
}
