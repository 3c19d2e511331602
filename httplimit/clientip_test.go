package httplimit_test

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
)

// tenNet are the proxies of the tests. Clients are 198.51.100.x and 2001:db8:c::x, what
// they claim is 192.0.2.x.
var tenNet = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48")}

// none is the text of the zero Addr.
const none = "invalid IP"

// requestOf makes a request of a peer with lines of a single header.
func requestOf(peer, header string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

// requireClient wants the address as text.
func requireClient(t *testing.T, want string, c httplimit.ClientIP, r *http.Request) {
	require.Equal(t, want, c.Of(r).String(), "%q %q", r.RemoteAddr, r.Header)
}

func TestZeroClientIPIsThePeer(t *testing.T) {
	for want, peers := range map[string][]string{
		"198.51.100.7":  {"198.51.100.7:567", "198.51.100.7", "[::ffff:198.51.100.7]:567", "[::ffff:c633:6407]:567"},
		"2001:db8:c::7": {"[2001:db8:c::7]:567", "2001:db8:c::7", "[2001:DB8:C:0:0:0:0:7]:567"},
		"fe80::7":       {"[fe80::7%eth0]:567"},
		"127.0.0.1":     {"127.0.0.1:567"},
		none: {"", "@", "@name", "/run/client.sock", "<nil>", "example.com:567", "0.0.0.0:567", "[::]:567",
			"[::ffff:198.51.100.7%x,y]:56"},
	} {
		for _, peer := range peers {
			requireClient(t, want, httplimit.ClientIP{}, requestOf(peer, "X-Forwarded-For", "192.0.2.66"))
		}
	}
}

// told are headers that tell of a client, or of none: then it is the peer. The lines of
// a header have bars between, and "absent" has no line.
type told struct {
	client  string // "peer": 10.0.0.1
	headers []string
}

// linesOf are the lines of a header of told.
func linesOf(header string) []string {
	if header == "absent" {
		return nil
	}
	return strings.Split(header, "|")
}

// requireTold holds a header under names of ClientIP.Header to rows: from proxies, and
// not from others.
func requireTold(t *testing.T, header string, names []string, rows []told) {
	for _, row := range rows {
		for _, text := range row.headers {
			for _, name := range names {
				c := httplimit.ClientIP{Proxies: tenNet, Header: name}
				for peer, own := range map[string]string{"10.0.0.1:567": "10.0.0.1", "[::ffff:10.0.0.1]:567": "10.0.0.1", "@": none, "": none} {
					requireClient(t, strings.ReplaceAll(row.client, "peer", own), c, requestOf(peer, header, linesOf(text)...))
				}
				requireClient(t, none, c, requestOf("/run/client.sock", header, linesOf(text)...))
				requireClient(t, "192.0.2.1", c, requestOf("192.0.2.1:567", header, linesOf(text)...))
			}
			requireClient(t, "10.0.0.1", httplimit.ClientIP{}, requestOf("10.0.0.1:567", header, linesOf(text)...))
			requireClient(t, none, httplimit.ClientIP{}, requestOf("@", header, linesOf(text)...))
		}
	}
}

func TestForwardedForEndsAtTheFirstWhoIsNoProxy(t *testing.T) {
	const four, six, peer = "198.51.100.7", "2001:db8:c::7", "peer"
	requireTold(t, "X-Forwarded-For", []string{"", "x-forwarded-FOR"}, []told{
		// The peer is the only proxy, and has appended the client to what the client claims.
		{four, []string{"198.51.100.7", "192.0.2.66, 198.51.100.7", "10.0.0.1, 198.51.100.7",
			"10.0.0.1, 192.0.2.66, 198.51.100.7", "198.51.100.7, 10.0.0.3, 10.0.0.2"}},
		{"198.51.100.8", []string{"198.51.100.7, 10.0.0.3, 198.51.100.8, 2001:db8:f::2"}},

		// The client's own claim is not parsed.
		{four, []string{", 198.51.100.7", "nonsense, 198.51.100.7", `"192.0.2.66, 198.51.100.7`,
			"\x00\xff;=[, 198.51.100.7, 10.0.0.2"}},

		// A proxy adds a line of its own rather than to the client's.
		{four, []string{"192.0.2.66|198.51.100.7", "|198.51.100.7",
			"192.0.2.66, 192.0.2.67|198.51.100.7, 10.0.0.3|10.0.0.2"}},
		{peer, []string{"192.0.2.66|"}},

		// Blanks are spaces and tabs, around an element only.
		{four, []string{"192.0.2.66,198.51.100.7", " 192.0.2.66 \t,\t 198.51.100.7 \t"}},
		{peer, []string{"192.0.2.66 198.51.100.7", "198.51.100.7\n", "198.51.100.7\u00a0", "198. 51.100.7"}},

		// An empty line of a proxy does not make the proxy vouch for the text
		// before.
		{peer, []string{"absent", "", " \t ", ",", "198.51.100.7,", "198.51.100.7, ,10.0.0.2",
			"198.51.100.7, unknown, 10.0.0.2", "198.51.100.7, unix:", "198.51.100.7, 10.0.0.2, nonsense"}},

		// Proxies only: a request of their own.
		{peer, []string{"10.0.0.3", "10.0.0.3, 2001:db8:f::2, ::ffff:10.0.0.2"}},

		// Ports.
		{four, []string{"198.51.100.7:567", "198.51.100.7:17085, 10.0.0.6:65535"}},
		{six, []string{"[2001:db8:c::7]:567"}},
		{peer, []string{"198.51.100.7:", "198.51.100.7:65536", "198.51.100.7:065535",
			"198.51.100.7:018446744073709551617", "198.51.100.7:-1", "198.51.100.7:+1", "198.51.100.7:http",
			"198.51.100.7:5:6", "[2001:db8:c::7]:", "[2001:db8:c::7]567", ":567"}},

		// IPv6, with brackets and without; quotes are of Forwarded.
		{six, []string{"2001:db8:c::7", "[2001:db8:c::7]", "2001:0DB8:000C:0:0:0:0:0007, 2001:db8:f::9"}},
		{"2001:db8:c::7:567", []string{"2001:db8:c::7:567"}},
		{peer, []string{"2001:db8:c:0:0:0:0:7:567", "[2001:db8:c::7", "2001:db8:c::7]", "[[2001:db8:c::7]]", "[]",
			"[198.51.100.7]", `"198.51.100.7"`, `"[2001:db8:c::7]"`, "for=198.51.100.7"}},

		// IPv4 in IPv6 is IPv4, for clients and for proxies.
		{four, []string{"::ffff:198.51.100.7", "[::ffff:c633:6407]:567, ::ffff:a00:2"}},
		{"64:ff9b::c633:6407", []string{"64:ff9b::198.51.100.7"}},

		// Zones are the client's choice too.
		{"fe80::7", []string{"fe80::7%eth0", "[fe80::7%25eth0]:567"}},
		{six, []string{"2001:db8:c::7%1"}},
		{four, []string{"198.51.100.7, 2001:db8:f::9%eth0"}},
		{peer, []string{"fe80::7%", "198.51.100.7%eth0", "fe80::7%x 198.51.100.7"}},

		// Numbers that other parsers read as octal, or as a single number.
		{peer, []string{"198.051.100.7", "198.51.100.07", "198.51.100", "198.51.100.256", "3325256711", "0xc6336407",
			"00198.51.100.7"}},

		// No connection comes from there; but a local client is a client.
		{peer, []string{"0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "ff02::1", "255.255.255.255"}},
		{"127.0.0.1", []string{"127.0.0.1"}},
		{"::1", []string{"::1"}},
		{"192.168.0.9", []string{"192.168.0.9"}},
	})
}

func TestSingleHeaderHoldsOneAddress(t *testing.T) {
	for _, row := range []told{
		{"198.51.100.7", []string{"198.51.100.7", " ::ffff:198.51.100.7\t"}},
		{"2001:db8:c::7", []string{"[2001:db8:c::7]:567"}},
		{"10.0.0.1", []string{"absent", "", "198.51.100.7|198.51.100.7", "198.51.100.7|", "192.0.2.66, 198.51.100.7",
			"198.51.100.7,", "fe80::66%x,198.51.100.7", "unknown", "0.0.0.0", "10.0.0.2"}},
	} {
		for _, name := range []string{"CF-Connecting-IP", "Cf-Connecting-Ip", "cf-connecting-ip"} {
			for _, text := range row.headers {
				r := requestOf("10.0.0.1:567", "CF-Connecting-IP", linesOf(text)...)
				r.Header.Set("X-Forwarded-For", "192.0.2.66")
				r.Header.Set("Forwarded", "for=192.0.2.66")
				requireClient(t, row.client, httplimit.ClientIP{Proxies: tenNet, Header: name}, r)
				r.RemoteAddr = "192.0.2.1:567"
				requireClient(t, "192.0.2.1", httplimit.ClientIP{Proxies: tenNet, Header: name}, r)
			}
		}
	}
}

func TestOnlyTheOneHeaderIsRead(t *testing.T) {
	for _, name := range []string{"", "X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
		for _, other := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Client-Ip", "True-Client-Ip"} {
			if other != name && (name != "" || other != "X-Forwarded-For") {
				r := requestOf("10.0.0.1:567", other, "192.0.2.66")
				requireClient(t, "10.0.0.1", httplimit.ClientIP{Proxies: tenNet, Header: name}, r)
				r.Header.Set(other, "for=192.0.2.66")
				requireClient(t, "10.0.0.1", httplimit.ClientIP{Proxies: tenNet, Header: name}, r)
			}
		}
	}
}

func TestMappedPrefixesAreThoseOfIPv4(t *testing.T) {
	mapped := httplimit.ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}
	for _, peer := range []string{"10.9.9.9:567", "[::ffff:10.9.9.9]:567"} {
		requireClient(t, "198.51.100.7", mapped, requestOf(peer, "X-Forwarded-For", "198.51.100.7, ::ffff:10.1.2.3, 10.1.2.3"))
	}
	requireClient(t, "11.0.0.1", mapped, requestOf("11.0.0.1:567", "X-Forwarded-For", "198.51.100.7"))
}

func TestCheckNamesTheField(t *testing.T) {
	prefix, lim := netip.MustParsePrefix, newLimiter(t, newClock(), by("ip", "1/d"))
	for _, row := range []struct {
		want string
		c    httplimit.ClientIP
	}{
		{"", httplimit.ClientIP{}},
		{"", httplimit.ClientIP{Proxies: tenNet}},
		{"", httplimit.ClientIP{Proxies: tenNet, Header: "forwarded"}},
		{"", httplimit.ClientIP{Proxies: []netip.Prefix{prefix("10.0.0.1/32"), prefix("::ffff:10.0.0.1/128")}, Header: "CF-Connecting-IP"}},
		{`ClientIP.Header is "Forwarded", but ClientIP.Proxies is empty, want the addresses of the proxies that set the header`, httplimit.ClientIP{Header: "Forwarded"}},
		{"", httplimit.ClientIP{Hops: 2}},
		{"", httplimit.ClientIP{Hops: 2, Header: "forwarded", Proxies: tenNet}},
		{`ClientIP.Hops is -1, want 1 or more, or 0 for none`, httplimit.ClientIP{Hops: -1}},
		{`ClientIP.Hops is 1, but ClientIP.Header is "X-Real-IP", which has a single address, want X-Forwarded-For or Forwarded`, httplimit.ClientIP{Hops: 1, Header: "X-Real-IP", Proxies: tenNet}},
		{`ClientIP.ProxyList is empty, want networks by Set before`, httplimit.ClientIP{ProxyList: &httplimit.ProxyList{}}},
		{`ClientIP.Header is "X-Real-IP:", want the name of a header such as "X-Forwarded-For"`, httplimit.ClientIP{Proxies: tenNet, Header: "X-Real-IP:"}},
		{`ClientIP.Header is " ", want the name of a header such as "X-Forwarded-For"`, httplimit.ClientIP{Proxies: tenNet, Header: " "}},
		{`ClientIP.Header is "X-Réal", want the name of a header such as "X-Forwarded-For"`, httplimit.ClientIP{Proxies: tenNet, Header: "X-Réal"}},
		{`ClientIP.Proxies[0] is an invalid Prefix, want one such as 10.0.0.0/8`, httplimit.ClientIP{Proxies: []netip.Prefix{{}}}},
		{`ClientIP.Proxies[1] is 10.0.0.1/8, want 10.0.0.0/8: bits beyond the length must be zero`, httplimit.ClientIP{Proxies: []netip.Prefix{tenNet[0], prefix("10.0.0.1/8")}}},
		{`ClientIP.Proxies[0] is 0.0.0.0/0, want a prefix that leaves addresses for clients`, httplimit.ClientIP{Proxies: []netip.Prefix{prefix("0.0.0.0/0")}}},
		{`ClientIP.Proxies[0] is ::/0, want a prefix that leaves addresses for clients`, httplimit.ClientIP{Proxies: []netip.Prefix{prefix("::/0")}}},
		{`ClientIP.Proxies[0] is ::ffff:0.0.0.0/96, want a prefix that leaves addresses for clients`, httplimit.ClientIP{Proxies: []netip.Prefix{prefix("::ffff:0.0.0.0/96")}}},
	} {
		_, err := httplimit.New(httplimit.Config{Limiter: lim, Event: "signup", Features: []httplimit.Source{httplimit.IP(row.c)}})
		if row.want == "" {
			require.NoError(t, err, "%v", row.c)
		} else {
			require.EqualError(t, err, `httplimit: Config.Features[0] has kind "ip": `+row.want)
		}
	}
}

// The address at the place of Hops is the client's, and text left of the place is
// not parsed. With fewer addresses the client is the peer.
func TestHopsCountFromTheRight(t *testing.T) {
	for hops, rows := range [][]told{
		1: {
			{"198.51.100.7", []string{"198.51.100.7", "192.0.2.66, 198.51.100.7:567"}},
			{"10.0.0.2", []string{"198.51.100.7, 10.0.0.2"}},
		},
		2: {
			{"198.51.100.7", []string{"192.0.2.66, 198.51.100.7, 10.0.0.2", "192.0.2.66, 198.51.100.7|203.0.113.9",
				"nonsense, [2001:db8::, 198.51.100.7, 203.0.113.9"}},
			{"192.0.2.66", []string{"192.0.2.66, 198.51.100.7"}}, // went round a proxy: see the field
			{"peer", []string{"198.51.100.7", "198.51.100.7, unknown", "198.51.100.7,", "198.51.100.7|",
				"unknown, 10.0.0.2", "absent"}},
		},
		9: {{"peer", []string{"192.0.2.66, 198.51.100.7, 10.0.0.2"}}},
	} {
		for _, row := range rows {
			for _, text := range row.headers {
				want, forwarded := strings.ReplaceAll(row.client, "peer", "10.0.0.1"), linesOf(text)
				for i, line := range forwarded {
					forwarded[i] = `for="` + strings.ReplaceAll(line, ", ", `", for="`) + `"`
				}
				for header, lines := range map[string][]string{"X-Forwarded-For": linesOf(text), "Forwarded": forwarded} {
					requireClient(t, want, httplimit.ClientIP{Hops: hops, Header: header}, requestOf("10.0.0.1:567", header, lines...))
					known := httplimit.ClientIP{Hops: hops, Header: header, Proxies: tenNet}
					requireClient(t, want, known, requestOf("10.0.0.1:567", header, lines...))
					requireClient(t, strings.ReplaceAll(row.client, "peer", none), known, requestOf("@", header, lines...))
					requireClient(t, "192.0.2.1", known, requestOf("192.0.2.1:567", header, lines...))
				}
			}
		}
	}
	requireClient(t, "10.0.0.1", httplimit.ClientIP{Hops: 1, Header: "X-Real-Ip"}, requestOf("10.0.0.1:567", "X-Real-Ip", "192.0.2.66"))
}

// A ProxyList counts beside Proxies, changes while requests are served, and keeps
// its networks when the next ones are wrong.
func TestProxyListChanges(t *testing.T) {
	var list httplimit.ProxyList
	edge := httplimit.ClientIP{Proxies: tenNet, ProxyList: &list}
	r := requestOf("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7, 203.0.113.9")
	requireClient(t, "203.0.113.9", edge, r)
	requireClient(t, "10.0.0.1", httplimit.ClientIP{ProxyList: &list, Hops: 1}, r)
	networks := []netip.Prefix{netip.MustParsePrefix("::ffff:203.0.113.0/120")}
	require.NoError(t, list.Set(networks...))
	networks[0] = tenNet[0]
	requireClient(t, "198.51.100.7", edge, r)
	requireClient(t, "10.0.0.1", httplimit.ClientIP{ProxyList: &list}, r)
	requireClient(t, "192.0.2.66", httplimit.ClientIP{ProxyList: &list}, requestOf("203.0.113.9:567", "X-Forwarded-For", "192.0.2.66"))

	require.EqualError(t, list.Set(), "httplimit: ProxyList.Set has no networks, want at least one")
	require.EqualError(t, list.Set(tenNet[0], netip.MustParsePrefix("0.0.0.0/0")),
		"httplimit: ProxyList.Set: network [1] is 0.0.0.0/0, want a prefix that leaves addresses for clients")
	requireClient(t, "198.51.100.7", edge, r)

	// Each request is judged by one list: with either the client is known.
	a, b := netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("203.0.113.9/32")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				requireClient(t, "198.51.100.7", edge, r)
			}
		})
	}
	for range 1000 {
		require.NoError(t, list.Set(a))
		require.NoError(t, list.Set(b))
	}
	all.Wait()
}

// ordinary lists the cases that must cost next to nothing.
var ordinary = []struct {
	name, want string
	allocs     float64
	c          httplimit.ClientIP
	r          *http.Request
}{
	{"direct", "198.51.100.7", 0, httplimit.ClientIP{}, requestOf("198.51.100.7:567", "X-Forwarded-For", "192.0.2.66")},
	{"directIPv6", "2001:db8:c::7", 0, httplimit.ClientIP{Proxies: tenNet}, requestOf("[2001:db8:c::7]:567", "X-Forwarded-For", "192.0.2.66")},
	{"forwardedForOne", "198.51.100.7", 0, httplimit.ClientIP{Proxies: tenNet}, requestOf("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7")},
	{"forwardedForTwo", "198.51.100.7", 0, httplimit.ClientIP{Proxies: tenNet, Header: "x-forwarded-for"}, requestOf("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7, 10.0.0.2")},
	{"forwardedForZone", "fe80::7", 0, httplimit.ClientIP{Proxies: tenNet}, requestOf("10.0.0.1:567", "X-Forwarded-For", "fe80::7%eth0")},
	{"forwardedTwo", "2001:db8:c::7", 0, httplimit.ClientIP{Proxies: tenNet, Header: "Forwarded"}, requestOf("10.0.0.1:567", "Forwarded", `for="[2001:db8:c::7]:567";proto=https, for=10.0.0.2;by=10.0.0.1`)},
	{"hops", "198.51.100.7", 0, httplimit.ClientIP{Hops: 2}, requestOf("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7, 10.0.0.2")},
	{"single", "198.51.100.7", 0, httplimit.ClientIP{Proxies: tenNet, Header: "Cf-Connecting-Ip"}, requestOf("10.0.0.1:567", "Cf-Connecting-Ip", "198.51.100.7")},
	{"singleOtherCase", "198.51.100.7", 1, httplimit.ClientIP{Proxies: tenNet, Header: "CF-Connecting-IP"}, requestOf("10.0.0.1:567", "Cf-Connecting-Ip", "198.51.100.7")},
}

func TestOrdinaryCasesDoNotAllocate(t *testing.T) {
	for _, o := range ordinary {
		requireClient(t, o.want, o.c, o.r)
		got := testing.AllocsPerRun(100, func() { o.c.Of(o.r) })
		require.LessOrEqual(t, got, o.allocs, o.name)
	}
}

func BenchmarkClientIP(b *testing.B) {
	for _, o := range ordinary {
		b.Run(o.name, func(b *testing.B) {
			b.ReportAllocs()
			var got netip.Addr
			for b.Loop() {
				got = o.c.Of(o.r)
			}
			require.Equal(b, o.want, got.String())
		})
	}
}
