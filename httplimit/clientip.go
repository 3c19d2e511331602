package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// ClientIP finds the address of the client that sent a request. The zero
// ClientIP takes the peer's address, which is right where clients connect
// directly: any header is then the client's own text.
//
// Behind proxies the client's address is in a header to which proxies append.
// The header is read from the right, where the nearest proxy has written, and
// the first address outside of Proxies is the client's, or the one at the place
// of Hops. Text left of the client's address may be the client's own, and is not
// parsed. A malformed or empty element makes the peer the client, and so does a
// header with addresses of Proxies only, or with fewer addresses than Hops.
//
// Header is the only header that is read. With a second header in reserve, a
// client would send the header that the proxies do not set. So Header must be a
// header that the proxies set or append to, and never pass through unchanged.
//
// An address may have a port ("192.0.2.7:567", "[2001:db8::1]:567"). An
// IPv4-mapped address is the IPv4 address. A zone is dropped. Unspecified,
// multicast and broadcast addresses are malformed, since no connection comes
// from there; a loopback address is well-formed, since local clients have it.
//
// Several goroutines may use a ClientIP while no one changes it; a ProxyList may
// change at any time.
type ClientIP struct {
	// Proxies are the networks of all proxies: of the peers that connect here,
	// and of proxies further out. With any Proxies a peer on a Unix socket
	// without a name is a proxy too: only local processes with access to the
	// socket reach the socket.
	Proxies []netip.Prefix

	// ProxyList has further networks of proxies, such as the published networks
	// of a CDN. The list may change while requests are served. Default: none.
	ProxyList *ProxyList

	// Hops is the number of addresses that proxies of yours append to Header: the
	// client's address is at that place from the right. Hops is for proxies whose
	// addresses are not known; where networks are known, Proxies are enough. The
	// peer must be one of Proxies or ProxyList. Without both any peer is believed,
	// so no client may be able to connect. No client may be able to connect to an
	// inner proxy either: the outer proxy would be left out, and the place would
	// hold text of the client. Default: 0, by networks.
	Hops int

	// Header is the header with the client's address: "X-Forwarded-For", the
	// default; "Forwarded" of RFC 7239; or the name of a header with a single
	// address, such as "CF-Connecting-IP". The peers must set the header: if a
	// peer passes the header on, a client can write the header. Case does not
	// matter.
	Header string
}

// Of returns the address of the client that sent r: an IPv4 address, or an IPv6
// address that is not IPv4-mapped, without a zone. The zero Addr if neither the
// peer has an address nor a header from a proxy.
func (c *ClientIP) Of(r *http.Request) netip.Addr {
	var lines []string
	if c.known() || c.Hops > 0 {
		lines = r.Header.Values(cmp.Or(c.Header, "X-Forwarded-For"))
	}
	return c.Find(r.RemoteAddr, lines)
}

// Find is Of for a request outside of net/http, such as one of fiber or gRPC.
// remoteAddr is the address of the connection's other end, as in
// [http.Request.RemoteAddr], and lines are all lines of the header that Header
// names, in the order of the request: a joined or shortened list would hide the text
// of a proxy behind the client's.
func (c *ClientIP) Find(remoteAddr string, lines []string) netip.Addr {
	peer := clientAddr(remoteAddr)
	by := proxies{c.Proxies, c.ProxyList.networks(), c.Hops}
	// A peer on a Unix socket without a name is "@" on Linux, and empty on other systems.
	if known := c.known(); known && !by.has(peer) && remoteAddr != "" && remoteAddr != "@" || !known && c.Hops == 0 {
		return peer
	}
	var client netip.Addr
	last := c.last()
	if last != nil {
		client = by.client(lines, last)
	} else if len(lines) == 1 && c.Hops == 0 { // of two lines the client may have sent either
		client = clientAddr(strings.Trim(lines[0], blanks))
	}
	if !client.IsValid() || last == nil && by.has(client) {
		return peer
	}
	return client
}

// known reports whether any proxy is known by its address.
func (c *ClientIP) known() bool { return len(c.Proxies) > 0 || c.ProxyList != nil }

// check names the first field with an invalid value.
func (c ClientIP) check() error {
	switch {
	case trimRight(c.Header, isToken) != "":
		return fmt.Errorf("ClientIP.Header is %q, want the name of a header such as \"X-Forwarded-For\"", c.Header)
	case c.Hops < 0:
		return fmt.Errorf("ClientIP.Hops is %d, want 1 or more, or 0 for none", c.Hops)
	case c.Hops > 0 && c.last() == nil:
		return fmt.Errorf("ClientIP.Hops is %d, but ClientIP.Header is %q, which has a single address, want X-Forwarded-For or Forwarded", c.Hops, c.Header)
	case c.Header != "" && !c.known() && c.Hops == 0:
		return fmt.Errorf("ClientIP.Header is %q, but ClientIP.Proxies is empty, want the addresses of the proxies that set the header", c.Header)
	case c.ProxyList != nil && len(c.ProxyList.networks()) == 0:
		return errors.New("ClientIP.ProxyList is empty, want networks by Set before")
	}
	if err := checkNetworks(c.Proxies); err != nil {
		return fmt.Errorf("ClientIP.Proxies%w", err)
	}
	return nil
}

// lastElement reads the last element of a line: its address, the zero Addr if malformed,
// and the text before its comma, if any.
type lastElement func(line string) (a netip.Addr, before string, more bool)

// last returns the reader of a header to which proxies append; nil for another header.
func (c *ClientIP) last() lastElement {
	switch {
	case c.Header == "" || strings.EqualFold(c.Header, "X-Forwarded-For"):
		return lastForwardedFor
	case strings.EqualFold(c.Header, "Forwarded"):
		return lastForwarded
	}
	return nil
}

// ProxyList is a list of the networks of proxies that may change while requests
// are served: Set replaces the list, and each request is judged by one list as a
// whole. The zero ProxyList is empty. Many goroutines may use a ProxyList at once.
type ProxyList struct {
	all atomic.Pointer[[]netip.Prefix]
}

// Set replaces the list. A wrong network, or no network at all, is an error, and
// the list stays unchanged: a list cut off on the way never replaces a good list.
func (l *ProxyList) Set(networks ...netip.Prefix) error {
	if len(networks) == 0 {
		return errors.New("httplimit: ProxyList.Set has no networks, want at least one")
	}
	if err := checkNetworks(networks); err != nil {
		return fmt.Errorf("httplimit: ProxyList.Set: network %w", err)
	}
	networks = slices.Clone(networks)
	l.all.Store(&networks)
	return nil
}

// networks may be called on nil.
func (l *ProxyList) networks() []netip.Prefix {
	if l == nil || l.all.Load() == nil {
		return nil
	}
	return *l.all.Load()
}

// checkNetworks names the first network that is wrong.
func checkNetworks(networks []netip.Prefix) error {
	for i, p := range networks {
		switch {
		case !p.IsValid():
			return fmt.Errorf("[%d] is an %s, want one such as 10.0.0.0/8", i, p)
		case p != p.Masked():
			return fmt.Errorf("[%d] is %s, want %s: bits beyond the length must be zero", i, p, p.Masked())
		case unmapPrefix(p).Bits() == 0:
			return fmt.Errorf("[%d] is %s, want a prefix that leaves addresses for clients", i, p)
		}
	}
	return nil
}

// proxies are the proxies of a ClientIP during a request.
type proxies struct {
	fixed, listed []netip.Prefix
	hops          int // 0: by networks
}

// has is false for the zero Addr.
func (by *proxies) has(a netip.Addr) bool {
	has := func(p netip.Prefix) bool { return unmapPrefix(p).Contains(a) }
	return slices.ContainsFunc(by.fixed, has) || slices.ContainsFunc(by.listed, has)
}

// unmapPrefix turns a prefix of IPv4-mapped addresses into a prefix of IPv4
// addresses, since [clientAddr] returns IPv4 addresses and
// [netip.Prefix.Contains] keeps the two apart. Done at each call rather than
// once: unmapping costs less than Contains, and a ClientIP stays as its user
// wrote it.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4In6() {
		return p
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
}

// client is the rightmost address in lines that is no proxy's, or the one at the
// place of hops; the zero Addr if there is none, or if an element on the right is
// malformed.
func (by *proxies) client(lines []string, last lastElement) netip.Addr {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; {
			var a netip.Addr
			a, line, more = last(line)
			if hops++; !a.IsValid() || hops == by.hops || by.hops == 0 && !by.has(a) {
				return a
			}
		}
	}
	return netip.Addr{}
}

// lastForwardedFor reads the last element of a line of X-Forwarded-For.
func lastForwardedFor(line string) (a netip.Addr, before string, more bool) {
	comma := strings.LastIndexByte(line, ',')
	return clientAddr(strings.Trim(line[comma+1:], blanks)), line[:max(comma, 0)], comma >= 0
}

// blanks are the optional white space of HTTP.
const blanks = " \t"

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// clientAddr reads "192.0.2.7", "192.0.2.7:567", "2001:db8::1", "[2001:db8::1]"
// and "[2001:db8::1]:567". Any other text is the zero Addr, and so are
// addresses from which no connection comes.
//
// "2001:db8::1:567" is an address without a port, as in X-Forwarded-For; a
// proxy that means a port is broken.
func clientAddr(s string) netip.Addr {
	host, port, ported := s, "", false
	rest, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		var closed bool
		host, port, closed = strings.Cut(rest, "]")
		if port, ported = strings.CutPrefix(port, ":"); !closed || port != "" && !ported {
			return netip.Addr{}
		}
	} else if before, after, found := strings.Cut(s, ":"); found && strings.IndexByte(after, ':') < 0 {
		host, port, ported = before, after, true
	}
	if ported && !isPort(port) {
		return netip.Addr{}
	}
	// netip.ParseAddr would keep the zone in a table: memory of the client's choice.
	host, zone, zoned := strings.Cut(host, "%")
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil, (zoned || bracketed) && !a.Is6():
		return netip.Addr{}
	case zoned && (zone == "" || strings.ContainsAny(zone, " \t,;\"[]")):
		return netip.Addr{} // a zone is any text: without separators it cannot hide a second address
	}
	a = a.Unmap()
	if a.IsUnspecified() || a.IsMulticast() || a == broadcast {
		return netip.Addr{}
	}
	return a
}

// isPort is true for one to five digits, up to 65535.
func isPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n <= 65535 && len(s) <= 5 && '0' <= s[0] && s[0] <= '9'
}
