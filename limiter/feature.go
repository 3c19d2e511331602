package limiter

import (
	"errors"
	"fmt"
	"net/netip"
)

// Feature is one feature of a call: of some kind, and what it is there. [IP],
// [Email] and [NewFeature] make them. The zero Feature, and one without content
// (an address that is not valid, an empty text), is not there: the rules that
// need its kind find it missing.
//
// Two Features that mean the same make the same key: an Email in capitals is the
// one in small letters.
type Feature struct {
	kind   string
	text   string     // without addr: the whole, or of an e-mail address the local part
	domain string     // of an e-mail address, in canonical form
	addr   netip.Addr // of an IP
	err    error
}

// Kinds of the features that canonicalise by themselves.
const (
	KindIP    = "ip"
	KindEmail = "email"
)

// IP is the feature "ip": the network that addr is in. An IPv4 address is taken
// whole and an IPv6 address by its first 64 bits, since that is what one
// subscriber has; Config.IPv4Bits and Config.IPv6Bits say otherwise. An IPv4
// address that is mapped to IPv6, or translated to it by 64:ff9b::/96 (RFC 6052),
// is the IPv4 address: else all of IPv4 would be one network. A zone is dropped.
func IP(addr netip.Addr) Feature {
	addr = addr.Unmap().WithZone("")
	if translated.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	return Feature{kind: KindIP, addr: addr}
}

var translated = netip.MustParsePrefix("64:ff9b::/96")

// Feature is a feature of any kind, taken as it is: NewFeature("user", "7") and
// NewFeature("ip", "7") never meet. value may hold any bytes.
func NewFeature(kind, value string) Feature {
	return Feature{kind: kind, text: value}
}

// Kind is the kind that t was made with.
func (t *Feature) Kind() string { return t.kind }

// Missing tells whether t is not there.
func (t *Feature) Missing() bool {
	return t.err == nil && t.text == "" && !t.addr.IsValid()
}

// Err is why t cannot be what it was made from: text that is not an e-mail
// address. A call with such a Feature returns the same error.
func (t *Feature) Err() error { return t.err }

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

// append appends the feature of a counter.Key for t, which is not missing. Its
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
