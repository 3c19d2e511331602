package feature

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

var errIP = errors.New(`feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1`)

// IP returns a feature of kind "ip": the network of addr. An IPv4 address counts
// whole and an IPv6 address by its first 64 bits, the usual share of a
// subscriber; [Forms] changes the lengths. A zone is dropped.
//
// An IPv6 address that stands for an IPv4 address is the IPv4 address: mapped
// (::ffff:0:0/96), translated (64:ff9b::/96 of RFC 6052, 64:ff9b:1::/48 of RFC
// 8215), 6to4 (2002::/16) and Teredo (2001::/32). Otherwise all of IPv4 would be a
// single network behind a translator, and one IPv4 address would have 65,536
// networks by 6to4 and more by Teredo. An ISATAP address stays an IPv6 address: the
// IPv4 address in the last 64 bits is the choice of anyone with an IPv6 network.
func IP(addr netip.Addr) Feature {
	return Feature{kind: KindIP, addr: fold(addr)}
}

// Network returns a feature of a kind of your own, such as "net": the network of addr,
// of v4Bits of an IPv4 address or v6Bits of an IPv6 address. With both [IP] and
// Network one rule limits an address and another rule its neighbourhood:
//
//	v, err := lim.Allow(ctx, "signup", feature.IP(addr), feature.Network("net", addr, 24, 48))
//
// An address that stands for an IPv4 address is that address, as for IP.
// [New] of the same kind and the text of the network, "192.0.2.0/24", is the
// same feature. Bits out of range, and a kind that New reads, make a Feature with an
// error.
func Network(kind string, addr netip.Addr, v4Bits, v6Bits int) Feature {
	f := Feature{kind: kind}
	switch addr = fold(addr); {
	case parses(kind):
		f.err = fmt.Errorf(`feature: Network has kind %q, want a kind of your own, such as "net"`, kind)
	case v4Bits < 1 || v4Bits > 32:
		f.err = fmt.Errorf("feature: Network has %d bits for IPv4, want 1 to 32", v4Bits)
	case v6Bits < 1 || v6Bits > 128:
		f.err = fmt.Errorf("feature: Network has %d bits for IPv6, want 1 to 128", v6Bits)
	case addr.Is4():
		f.addr, f.bits = addr, uint8(v4Bits)
	default:
		f.addr, f.bits = addr, uint8(v6Bits)
	}
	return f
}

// parseIP is IP of text.
func parseIP(text string) Feature {
	text = strings.TrimSpace(text)
	if text == "" {
		return Feature{kind: KindIP}
	}
	// netip.ParseAddr would keep the zone in a table: memory of the client's choice.
	host, zone, zoned := strings.Cut(text, "%")
	addr, err := netip.ParseAddr(host)
	if err != nil || zoned && (zone == "" || addr.Is4()) {
		return Feature{kind: KindIP, err: errIP}
	}
	return IP(addr)
}

var (
	translated = netip.MustParsePrefix("64:ff9b::/96")
	locally    = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// StandsForIPv4 reports whether prefix has only IPv6 addresses that stand for IPv4
// addresses, or would if these were public: see [IP].
func StandsForIPv4(prefix netip.Prefix) bool {
	return slices.ContainsFunc([]netip.Prefix{translated, locally, sixToFour, teredo}, func(p netip.Prefix) bool {
		return p.Contains(prefix.Addr()) && p.Bits() <= prefix.Bits()
	})
}

// fold returns addr without a zone, or the IPv4 address for which addr stands.
func fold(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	public := func(v4 [4]byte) netip.Addr {
		// A 6to4 or Teredo address has a public IPv4 address inside, RFC 3056 and
		// RFC 4380. With another one the sender would be 127.0.0.1 by its own word.
		if a := netip.AddrFrom4(v4); a.IsGlobalUnicast() && !a.IsPrivate() {
			return a
		}
		return addr
	}
	switch {
	case translated.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:]))
	case locally.Contains(addr):
		// Prefixes of 96 bits, and of 64: RFC 6052, section 2.2. An IPv4 address that
		// ends in three zeros is no host.
		if b[13]|b[14]|b[15] == 0 {
			return netip.AddrFrom4([4]byte(b[9:]))
		}
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToFour.Contains(addr):
		return public([4]byte(b[2:]))
	case teredo.Contains(addr):
		return public([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
	}
	return addr
}
