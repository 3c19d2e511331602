package httplimit

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The proxies of the tests. Clients are 198.51.100.x and 2001:db8:c::x, what
// they claim is 192.0.2.x.
var someProxies = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("2001:db8:f::/48"),
}

// requestFrom makes a request of a peer with lines of a single header.
func requestFrom(peer, header string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

// requireClient wants the address as text, "" for the zero Addr.
func requireClient(t *testing.T, want string, c ClientIP, r *http.Request) {
	t.Helper()
	got := c.Of(r)
	if want == "" {
		require.False(t, got.IsValid(), "%v: got %s, want none", r, got)
		return
	}
	require.Equal(t, want, got.String(), "%q %q", r.RemoteAddr, r.Header)
}

func TestZeroClientIPIsThePeer(t *testing.T) {
	for peer, want := range map[string]string{
		"198.51.100.7:567":             "198.51.100.7",
		"198.51.100.7":                 "198.51.100.7",
		"[2001:db8:c::7]:567":          "2001:db8:c::7",
		"2001:db8:c::7":                "2001:db8:c::7",
		"[2001:DB8:C:0:0:0:0:7]:567":   "2001:db8:c::7",
		"[::ffff:198.51.100.7]:567":    "198.51.100.7",
		"[::ffff:c633:6407]:567":       "198.51.100.7",
		"[fe80::7%eth0]:567":           "fe80::7",
		"127.0.0.1:567":                "127.0.0.1",
		"":                             "",
		"@":                            "",
		"@name":                        "",
		"/run/client.sock":             "",
		"<nil>":                        "",
		"example.com:567":              "",
		"0.0.0.0:567":                  "",
		"[::]:567":                     "",
		"[::ffff:198.51.100.7%x,y]:56": "",
	} {
		requireClient(t, want, ClientIP{}, requestFrom(peer, "X-Forwarded-For", "192.0.2.66"))
	}
}

func TestForwardedForEndsAtTheFirstWhoIsNoProxy(t *testing.T) {
	for _, row := range []struct {
		want  string // "peer": 10.0.0.1
		lines []string
	}{
		// The peer is the only proxy, and has appended the client to what the client claims.
		{"198.51.100.7", []string{"198.51.100.7"}},
		{"198.51.100.7", []string{"192.0.2.66, 198.51.100.7"}},
		{"198.51.100.7", []string{"10.0.0.1, 198.51.100.7"}},
		{"198.51.100.7", []string{"10.0.0.1, 192.0.2.66, 198.51.100.7"}},
		{"198.51.100.7", []string{"198.51.100.7, 10.0.0.3, 10.0.0.2"}},
		{"198.51.100.8", []string{"198.51.100.7, 10.0.0.3, 198.51.100.8, 2001:db8:f::2"}},

		// The client's own claim is not parsed.
		{"198.51.100.7", []string{", 198.51.100.7"}},
		{"198.51.100.7", []string{"nonsense, 198.51.100.7"}},
		{"198.51.100.7", []string{`"192.0.2.66, 198.51.100.7`}},
		{"198.51.100.7", []string{"\x00\xff;=[, 198.51.100.7, 10.0.0.2"}},

		// A proxy adds a line of its own rather than to the client's.
		{"198.51.100.7", []string{"192.0.2.66", "198.51.100.7"}},
		{"198.51.100.7", []string{"192.0.2.66, 192.0.2.67", "198.51.100.7, 10.0.0.3", "10.0.0.2"}},
		{"198.51.100.7", []string{"", "198.51.100.7"}},
		{"peer", []string{"192.0.2.66", ""}},

		// Blanks are spaces and tabs, around an element only.
		{"198.51.100.7", []string{"192.0.2.66,198.51.100.7"}},
		{"198.51.100.7", []string{" 192.0.2.66 \t,\t 198.51.100.7 \t"}},
		{"peer", []string{"192.0.2.66 198.51.100.7"}},
		{"peer", []string{"198.51.100.7\n"}},
		{"peer", []string{"198.51.100.7\u00a0"}},
		{"peer", []string{"198. 51.100.7"}},

		// An empty line of a proxy does not make the proxy vouch for the text
		// before.
		{"peer", nil},
		{"peer", []string{""}},
		{"peer", []string{" \t "}},
		{"peer", []string{","}},
		{"peer", []string{"198.51.100.7,"}},
		{"peer", []string{"198.51.100.7, ,10.0.0.2"}},
		{"peer", []string{"198.51.100.7, unknown, 10.0.0.2"}},
		{"peer", []string{"198.51.100.7, unix:"}},
		{"peer", []string{"198.51.100.7, 10.0.0.2, nonsense"}},

		// Proxies only: a request of their own.
		{"peer", []string{"10.0.0.3"}},
		{"peer", []string{"10.0.0.3, 2001:db8:f::2, ::ffff:10.0.0.2"}},

		// Ports.
		{"198.51.100.7", []string{"198.51.100.7:567"}},
		{"198.51.100.7", []string{"198.51.100.7:17085, 10.0.0.6:65535"}},
		{"2001:db8:c::7", []string{"[2001:db8:c::7]:567"}},
		{"peer", []string{"198.51.100.7:"}},
		{"peer", []string{"198.51.100.7:65536"}},
		{"peer", []string{"198.51.100.7:065535"}},
		{"peer", []string{"198.51.100.7:018446744073709551617"}},
		{"peer", []string{"198.51.100.7:-1"}},
		{"peer", []string{"198.51.100.7:+1"}},
		{"peer", []string{"198.51.100.7:http"}},
		{"peer", []string{"198.51.100.7:5:6"}},
		{"peer", []string{"[2001:db8:c::7]:"}},
		{"peer", []string{"[2001:db8:c::7]567"}},
		{"peer", []string{":567"}},

		// IPv6, with brackets and without; quotes are of Forwarded.
		{"2001:db8:c::7", []string{"2001:db8:c::7"}},
		{"2001:db8:c::7", []string{"[2001:db8:c::7]"}},
		{"2001:db8:c::7", []string{"2001:0DB8:000C:0:0:0:0:0007, 2001:db8:f::9"}},
		{"2001:db8:c::7:567", []string{"2001:db8:c::7:567"}},
		{"peer", []string{"2001:db8:c:0:0:0:0:7:567"}},
		{"peer", []string{"[2001:db8:c::7"}},
		{"peer", []string{"2001:db8:c::7]"}},
		{"peer", []string{"[[2001:db8:c::7]]"}},
		{"peer", []string{"[]"}},
		{"peer", []string{"[198.51.100.7]"}},
		{"peer", []string{`"198.51.100.7"`}},
		{"peer", []string{`"[2001:db8:c::7]"`}},
		{"peer", []string{"for=198.51.100.7"}},

		// IPv4 in IPv6 is IPv4, for clients and for proxies.
		{"198.51.100.7", []string{"::ffff:198.51.100.7"}},
		{"198.51.100.7", []string{"[::ffff:c633:6407]:567, ::ffff:a00:2"}},
		{"64:ff9b::c633:6407", []string{"64:ff9b::198.51.100.7"}},

		// Zones are the client's choice too.
		{"fe80::7", []string{"fe80::7%eth0"}},
		{"fe80::7", []string{"[fe80::7%25eth0]:567"}},
		{"2001:db8:c::7", []string{"2001:db8:c::7%1"}},
		{"198.51.100.7", []string{"198.51.100.7, 2001:db8:f::9%eth0"}},
		{"peer", []string{"fe80::7%"}},
		{"peer", []string{"198.51.100.7%eth0"}},
		{"peer", []string{"fe80::7%x 198.51.100.7"}},

		// Numbers that other parsers read as octal, or as a single number.
		{"peer", []string{"198.051.100.7"}},
		{"peer", []string{"198.51.100.07"}},
		{"peer", []string{"198.51.100"}},
		{"peer", []string{"198.51.100.256"}},
		{"peer", []string{"3325256711"}},
		{"peer", []string{"0xc6336407"}},
		{"peer", []string{"00198.51.100.7"}},

		// No connection comes from there; but a local client is a client.
		{"peer", []string{"0.0.0.0"}},
		{"peer", []string{"::"}},
		{"peer", []string{"::ffff:0.0.0.0"}},
		{"peer", []string{"224.0.0.1"}},
		{"peer", []string{"ff02::1"}},
		{"peer", []string{"255.255.255.255"}},
		{"127.0.0.1", []string{"127.0.0.1"}},
		{"::1", []string{"::1"}},
		{"192.168.0.9", []string{"192.168.0.9"}},
	} {
		want := strings.ReplaceAll(row.want, "peer", "10.0.0.1")
		requireClient(t, want, ClientIP{Proxies: someProxies}, requestFrom("10.0.0.1:567", "x-forwarded-for", row.lines...))
		requireClient(t, want, ClientIP{Proxies: someProxies, Header: "x-forwarded-FOR"}, requestFrom("[::ffff:10.0.0.1]:567", "X-Forwarded-For", row.lines...))

		unix := strings.ReplaceAll(row.want, "peer", "")
		requireClient(t, unix, ClientIP{Proxies: someProxies}, requestFrom("@", "X-Forwarded-For", row.lines...))
		requireClient(t, unix, ClientIP{Proxies: someProxies}, requestFrom("", "X-Forwarded-For", row.lines...))
		requireClient(t, "", ClientIP{Proxies: someProxies}, requestFrom("/run/client.sock", "X-Forwarded-For", row.lines...))

		requireClient(t, "192.0.2.1", ClientIP{Proxies: someProxies}, requestFrom("192.0.2.1:567", "X-Forwarded-For", row.lines...))
		requireClient(t, "10.0.0.1", ClientIP{}, requestFrom("10.0.0.1:567", "X-Forwarded-For", row.lines...))
		requireClient(t, "", ClientIP{}, requestFrom("@", "X-Forwarded-For", row.lines...))
	}
}

func TestSingleHeaderHoldsOneAddress(t *testing.T) {
	for _, row := range []struct {
		want  string
		lines []string
	}{
		{"198.51.100.7", []string{"198.51.100.7"}},
		{"198.51.100.7", []string{" ::ffff:198.51.100.7\t"}},
		{"2001:db8:c::7", []string{"[2001:db8:c::7]:567"}},
		{"10.0.0.1", nil},
		{"10.0.0.1", []string{""}},
		{"10.0.0.1", []string{"198.51.100.7", "198.51.100.7"}},
		{"10.0.0.1", []string{"198.51.100.7", ""}},
		{"10.0.0.1", []string{"192.0.2.66, 198.51.100.7"}},
		{"10.0.0.1", []string{"198.51.100.7,"}},
		{"10.0.0.1", []string{"fe80::66%x,198.51.100.7"}},
		{"10.0.0.1", []string{"unknown"}},
		{"10.0.0.1", []string{"0.0.0.0"}},
		{"10.0.0.1", []string{"10.0.0.2"}},
	} {
		for _, name := range []string{"CF-Connecting-IP", "Cf-Connecting-Ip", "cf-connecting-ip"} {
			r := requestFrom("10.0.0.1:567", "CF-Connecting-IP", row.lines...)
			r.Header.Set("X-Forwarded-For", "192.0.2.66")
			r.Header.Set("Forwarded", "for=192.0.2.66")
			requireClient(t, row.want, ClientIP{Proxies: someProxies, Header: name}, r)
			r.RemoteAddr = "192.0.2.1:567"
			requireClient(t, "192.0.2.1", ClientIP{Proxies: someProxies, Header: name}, r)
		}
	}
}

func TestOnlyTheOneHeaderIsRead(t *testing.T) {
	for _, name := range []string{"", "X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
		for _, other := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Client-Ip", "True-Client-Ip"} {
			if other != name && (name != "" || other != "X-Forwarded-For") {
				r := requestFrom("10.0.0.1:567", other, "192.0.2.66")
				requireClient(t, "10.0.0.1", ClientIP{Proxies: someProxies, Header: name}, r)
				r.Header.Set(other, "for=192.0.2.66")
				requireClient(t, "10.0.0.1", ClientIP{Proxies: someProxies, Header: name}, r)
			}
		}
	}
}

func TestMappedPrefixesAreThoseOfIPv4(t *testing.T) {
	mapped := ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}
	require.NoError(t, mapped.check())
	for _, peer := range []string{"10.9.9.9:567", "[::ffff:10.9.9.9]:567"} {
		requireClient(t, "198.51.100.7", mapped, requestFrom(peer, "X-Forwarded-For", "198.51.100.7, ::ffff:10.1.2.3, 10.1.2.3"))
	}
	requireClient(t, "11.0.0.1", mapped, requestFrom("11.0.0.1:567", "X-Forwarded-For", "198.51.100.7"))
}

func TestCheckNamesTheField(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, row := range []struct {
		want string
		c    ClientIP
	}{
		{"", ClientIP{}},
		{"", ClientIP{Proxies: someProxies}},
		{"", ClientIP{Proxies: someProxies, Header: "forwarded"}},
		{"", ClientIP{Proxies: []netip.Prefix{prefix("10.0.0.1/32"), prefix("::ffff:10.0.0.1/128")}, Header: "CF-Connecting-IP"}},
		{`ClientIP.Header is "Forwarded", but ClientIP.Proxies is empty, want the addresses of the proxies that set the header`, ClientIP{Header: "Forwarded"}},
		{"", ClientIP{Hops: 2}},
		{"", ClientIP{Hops: 2, Header: "forwarded", Proxies: someProxies}},
		{`ClientIP.Hops is -1, want 1 or more, or 0 for none`, ClientIP{Hops: -1}},
		{`ClientIP.Hops is 1, but ClientIP.Header is "X-Real-IP", which has a single address, want X-Forwarded-For or Forwarded`, ClientIP{Hops: 1, Header: "X-Real-IP", Proxies: someProxies}},
		{`ClientIP.ProxyList is empty, want networks by Set before`, ClientIP{ProxyList: &ProxyList{}}},
		{`ClientIP.Header is "X-Real-IP:", want the name of a header such as "X-Forwarded-For"`, ClientIP{Proxies: someProxies, Header: "X-Real-IP:"}},
		{`ClientIP.Header is " ", want the name of a header such as "X-Forwarded-For"`, ClientIP{Proxies: someProxies, Header: " "}},
		{`ClientIP.Header is "X-Réal", want the name of a header such as "X-Forwarded-For"`, ClientIP{Proxies: someProxies, Header: "X-Réal"}},
		{`ClientIP.Proxies[0] is an invalid Prefix, want one such as 10.0.0.0/8`, ClientIP{Proxies: []netip.Prefix{{}}}},
		{`ClientIP.Proxies[1] is 10.0.0.1/8, want 10.0.0.0/8: bits beyond the length must be zero`, ClientIP{Proxies: []netip.Prefix{someProxies[0], prefix("10.0.0.1/8")}}},
		{`ClientIP.Proxies[0] is 0.0.0.0/0, want a prefix that leaves addresses for clients`, ClientIP{Proxies: []netip.Prefix{prefix("0.0.0.0/0")}}},
		{`ClientIP.Proxies[0] is ::/0, want a prefix that leaves addresses for clients`, ClientIP{Proxies: []netip.Prefix{prefix("::/0")}}},
		{`ClientIP.Proxies[0] is ::ffff:0.0.0.0/96, want a prefix that leaves addresses for clients`, ClientIP{Proxies: []netip.Prefix{prefix("::ffff:0.0.0.0/96")}}},
	} {
		if row.want == "" {
			require.NoError(t, row.c.check(), "%v", row.c)
		} else {
			require.EqualError(t, row.c.check(), row.want)
		}
	}
}

// The address at the place of Hops is the client's, and text left of the place is
// not parsed. With fewer addresses the client is the peer.
func TestHopsCountFromTheRight(t *testing.T) {
	for _, row := range []struct {
		hops  int
		want  string // "peer": 10.0.0.1
		lines []string
	}{
		{1, "198.51.100.7", []string{"198.51.100.7"}},
		{1, "198.51.100.7", []string{"192.0.2.66, 198.51.100.7:567"}},
		{1, "10.0.0.2", []string{"198.51.100.7, 10.0.0.2"}},
		{2, "198.51.100.7", []string{"192.0.2.66, 198.51.100.7, 10.0.0.2"}},
		{2, "198.51.100.7", []string{"nonsense, [2001:db8::, 198.51.100.7, 203.0.113.9"}},
		{2, "198.51.100.7", []string{"192.0.2.66, 198.51.100.7", "203.0.113.9"}},
		{2, "192.0.2.66", []string{"192.0.2.66, 198.51.100.7"}}, // went round a proxy: see the field
		{2, "peer", []string{"198.51.100.7"}},
		{2, "peer", []string{"198.51.100.7, unknown"}},
		{2, "peer", []string{"198.51.100.7,"}},
		{2, "peer", []string{"198.51.100.7", ""}},
		{2, "peer", []string{"unknown, 10.0.0.2"}},
		{2, "peer", nil},
		{9, "peer", []string{"192.0.2.66, 198.51.100.7, 10.0.0.2"}},
	} {
		want := strings.ReplaceAll(row.want, "peer", "10.0.0.1")
		forwarded := make([]string, len(row.lines))
		for i, line := range row.lines {
			elements := strings.Split(line, ", ")
			for j, e := range elements {
				elements[j] = "for=\"" + e + "\""
			}
			forwarded[i] = strings.Join(elements, ", ")
		}
		for header, lines := range map[string][]string{"X-Forwarded-For": row.lines, "Forwarded": forwarded} {
			requireClient(t, want, ClientIP{Hops: row.hops, Header: header}, requestFrom("10.0.0.1:567", header, lines...))
			known := ClientIP{Hops: row.hops, Header: header, Proxies: someProxies}
			requireClient(t, want, known, requestFrom("10.0.0.1:567", header, lines...))
			requireClient(t, strings.ReplaceAll(row.want, "peer", ""), known, requestFrom("@", header, lines...))
			requireClient(t, "192.0.2.1", known, requestFrom("192.0.2.1:567", header, lines...))
		}
	}
	requireClient(t, "10.0.0.1", ClientIP{Hops: 1, Header: "X-Real-Ip"}, requestFrom("10.0.0.1:567", "X-Real-Ip", "192.0.2.66"))
}

// A ProxyList counts beside Proxies, changes while requests are served, and keeps
// its networks when the next ones are wrong.
func TestProxyListChanges(t *testing.T) {
	var list ProxyList
	edge := ClientIP{Proxies: someProxies, ProxyList: &list}
	r := requestFrom("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7, 203.0.113.9")
	requireClient(t, "203.0.113.9", edge, r)
	requireClient(t, "10.0.0.1", ClientIP{ProxyList: &list, Hops: 1}, r)
	networks := []netip.Prefix{netip.MustParsePrefix("::ffff:203.0.113.0/120")}
	require.NoError(t, list.Set(networks...))
	networks[0] = someProxies[0]
	requireClient(t, "198.51.100.7", edge, r)
	requireClient(t, "10.0.0.1", ClientIP{ProxyList: &list}, r)
	requireClient(t, "192.0.2.66", ClientIP{ProxyList: &list}, requestFrom("203.0.113.9:567", "X-Forwarded-For", "192.0.2.66"))

	require.EqualError(t, list.Set(), "httplimit: ProxyList.Set has no networks, want at least one")
	require.EqualError(t, list.Set(someProxies[0], netip.MustParsePrefix("0.0.0.0/0")),
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
	c          ClientIP
	r          *http.Request
}{
	{"direct", "198.51.100.7", 0, ClientIP{}, requestFrom("198.51.100.7:567", "X-Forwarded-For", "192.0.2.66")},
	{"directIPv6", "2001:db8:c::7", 0, ClientIP{Proxies: someProxies}, requestFrom("[2001:db8:c::7]:567", "X-Forwarded-For", "192.0.2.66")},
	{"forwardedForOne", "198.51.100.7", 0, ClientIP{Proxies: someProxies}, requestFrom("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7")},
	{"forwardedForTwo", "198.51.100.7", 0, ClientIP{Proxies: someProxies, Header: "x-forwarded-for"}, requestFrom("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7, 10.0.0.2")},
	{"forwardedForZone", "fe80::7", 0, ClientIP{Proxies: someProxies}, requestFrom("10.0.0.1:567", "X-Forwarded-For", "fe80::7%eth0")},
	{"forwardedTwo", "2001:db8:c::7", 0, ClientIP{Proxies: someProxies, Header: "Forwarded"}, requestFrom("10.0.0.1:567", "Forwarded", `for="[2001:db8:c::7]:567";proto=https, for=10.0.0.2;by=10.0.0.1`)},
	{"hops", "198.51.100.7", 0, ClientIP{Hops: 2}, requestFrom("10.0.0.1:567", "X-Forwarded-For", "198.51.100.7, 10.0.0.2")},
	{"single", "198.51.100.7", 0, ClientIP{Proxies: someProxies, Header: "Cf-Connecting-Ip"}, requestFrom("10.0.0.1:567", "Cf-Connecting-Ip", "198.51.100.7")},
	{"singleOtherCase", "198.51.100.7", 1, ClientIP{Proxies: someProxies, Header: "CF-Connecting-IP"}, requestFrom("10.0.0.1:567", "Cf-Connecting-Ip", "198.51.100.7")},
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
