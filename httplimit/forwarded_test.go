package httplimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// clientOf is the client of a request, by a ClientIP with the proxies tenNet.
func clientOf(peer, header string, lines ...string) netip.Addr {
	c := httplimit.ClientIP{Proxies: tenNet, Header: header}
	return c.Of(requestOf(peer, header, lines...))
}

func ExampleClientIP_Of() {
	c := httplimit.ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "192.0.2.66, 198.51.100.7, 10.0.0.2")

	r.RemoteAddr = "10.0.0.1:567" // a proxy: the client claims to be 192.0.2.66
	fmt.Println(c.Of(r))
	r.RemoteAddr = "203.0.113.9:567" // not a proxy
	fmt.Println(c.Of(r))
	// Output:
	// 198.51.100.7
	// 203.0.113.9
}

func TestForwarded(t *testing.T) {
	const four, six, peer = "198.51.100.7", "2001:db8:c::7", "peer"
	requireTold(t, "Forwarded", []string{"Forwarded", "fORWARDED"}, []told{
		{four, []string{"for=198.51.100.7", "for=192.0.2.66, for=198.51.100.7",
			"for=198.51.100.7;proto=https;by=10.0.0.3, for=10.0.0.2",
			"for=192.0.2.66|for=198.51.100.7,for=10.0.0.3|For=10.0.0.2",
			"for=192.0.2.66, for=198.51.100.7|for=10.0.0.2"}},
		{peer, []string{"for=10.0.0.2, for=10.0.0.3"}},

		// Names in any case and any order.
		{four, []string{"FOR=198.51.100.7",
			"proto=http;by=10.0.0.3;fOr=198.51.100.7;host=example.com"}},
		{peer, []string{"forx=198.51.100.7", "x-for=198.51.100.7"}},

		// Quotes and brackets, where they belong and where they are left out.
		{four, []string{`for="198.51.100.7"`, `for="198.51.100.7:567";proto=https`,
			`for="[::ffff:198.51.100.7]"`, `for=198.51.100.7:567`}},
		{six, []string{`for="[2001:db8:c::7]"`, `For="[2001:db8:c::7]:4711", for="[2001:db8:f::2]:567"`,
			`for=[2001:db8:c::7]:567;host=example.com:8443`,
			`by=10.0.0.3;for=2001:db8:c::7,for=10.0.0.2;host=example.com`}},
		{"::1", []string{`for="[::1]"`}},
		{"fe80::7", []string{`for="[fe80::7%25eth0]:567"`}},
		{peer, []string{`for="198.51.100.7`, `for=198.51.100.7"`, `for="198.51.100.7""`,
			`for="198.51.100.7"567`, `for='198.51.100.7'`, `for=" 198.51.100.7"`,
			`for="198.51.100.7, 198.51.100.8"`, `for="[fe80::66%x,198.51.100.7]"`,
			`for="198\.51.100.7"`, `for=""`}},

		// Separators and quotes within quotes.
		{four, []string{`for=198.51.100.7;user="x,for=192.0.2.66"`,
			`user="x;for=192.0.2.66,";for=198.51.100.7`,
			`for=198.51.100.7;user="\"x\\", for=10.0.0.2;user="a\\\",for=192.0.2.66;\"b"`,
			`for=198.51.100.7;host="x,y";user=""`}},
		{peer, []string{`for=198.51.100.7;host="x\"`, `for=198.51.100.7;host=\"x"`,
			"for=198.51.100.7;host=\"x\x01\""}},

		// A quote that the client leaves open does not reach the proxy's text.
		{four, []string{`for=192.0.2.66;by=", for=198.51.100.7`,
			`for=192.0.2.66;by="\, for="198.51.100.7", for=10.0.0.2`,
			`for=192.0.2.66;by="\"|for="198.51.100.7"`,
			`for=192.0.2.66;by="|for=198.51.100.7;by="10.0.0.1:80"`, `"",;;==\, for=198.51.100.7`}},
		{peer, []string{`for=192.0.2.66;by="|x";for=10.0.0.2, for=10.0.0.3`}},

		// Blanks around elements and pairs, not around the equals sign.
		{four, []string{"\tfor=192.0.2.66 ,\t for=198.51.100.7 ; proto=https\t;\tby=x , for=10.0.0.2 ",
			";;for=198.51.100.7; ;"}},
		{peer, []string{"for =198.51.100.7", "for= 198.51.100.7", "for=198.51.100.7 proto=https"}},

		// An element with a single address is believed, and no other.
		{peer, []string{"absent", "", ";", "for=198.51.100.7,", "for=198.51.100.7, , for=10.0.0.2",
			"for=198.51.100.7, proto=https", "for=198.51.100.7|", "for=198.51.100.7;for=198.51.100.7",
			"for=192.0.2.66;For=10.0.0.2", "for=unknown;for=198.51.100.7",
			"for=198.51.100.7;for=unknown", "for=198.51.100.7, for=unknown",
			"for=198.51.100.7, for=Unknown, for=10.0.0.2", "for=198.51.100.7, for=_hidden",
			`for="198.51.100.7:_port"`, "for=0.0.0.0", "for=198.051.100.7", "for", `for"198.51.100.7"`,
			"for=", "=198.51.100.7", "198.51.100.7", "for=198.51.100.7=x", "x for=198.51.100.7",
			`x=""for=198.51.100.7`, "for=198.51.100.7;proto", "for=198.51.100.7;proto=",
			"for=198.51.100.7;=https", "for=198.51.100.7;pro(to=https"}},
		{four, []string{"for(=, for=198.51.100.7"}},
	})
}

// A header of 1 MB, the most that net/http lets in, is read in linear time, which is
// milliseconds: quadratic time is minutes.
func TestHugeHeaderCostsLinearTime(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, 1<<20/len(s)) }
	const four = "198.51.100.7"
	for header, rows := range map[string][]told{
		"X-Forwarded-For": {
			{"10.0.0.1", []string{fill(","), fill(" "), fill("1"), fill(":")}},
			{"fe80::7", []string{"fe80::7%" + fill("z")}},
			{four, []string{four + fill(",10.0.0.2"), four + fill(", ::ffff:10.0.0.2"), fill(",") + four}},
		},
		"Forwarded": {
			{"10.0.0.1", []string{fill(","), fill(";"), fill("; "), fill("x"), fill(`"`), fill(`\`) + `"`}},
			{four, []string{`for=198.51.100.7;x="` + fill(`\"`) + `"`, `for=198.51.100.7;x="` + fill(`\`) + `"`,
				"for=198.51.100.7" + fill(`;x="y"`), "for=198.51.100.7" + fill(`,for="10.0.0.2"`),
				fill(",") + "for=198.51.100.7"}},
		},
	} {
		for _, row := range rows {
			for _, line := range row.headers {
				r, c := requestOf("10.0.0.1:567", header, line), httplimit.ClientIP{Proxies: tenNet, Header: header}
				begun := time.Now()
				requireClient(t, row.client, c, r)
				long.Less(t, time.Since(begun), 10*time.Second, header)
				// The error of netip for an element that is none.
				require.LessOrEqual(t, testing.AllocsPerRun(1, func() { c.Of(r) }), 1.0, "%s: %.40s", header, line)
			}
		}
	}
}

// oracleClient states the rule again, plainly and from the left: the client is
// the address of the last element outside of the proxies, and the peer if the
// element has no address.
func oracleClient(t *testing.T, peer netip.Addr, header string, lines []string) netip.Addr {
	client := peer
	for _, a := range oracleAddrs(t, header, lines) {
		if !a.IsValid() {
			client = peer
		} else if !isProxy(a) {
			client = a
		}
	}
	return client
}

// oracleHops is the address at a place from the right, and the peer if there is no
// such place, or an element without an address up to there.
func oracleHops(t *testing.T, peer netip.Addr, hops int, header string, lines []string) netip.Addr {
	all := oracleAddrs(t, header, lines)
	if len(all) < hops {
		return peer
	}
	all = all[len(all)-hops:]
	if slices.Contains(all, netip.Addr{}) {
		return peer
	}
	return all[0]
}

// oracleAddrs are the addresses of all elements, the zero Addr for a malformed one.
func oracleAddrs(t *testing.T, header string, lines []string) (all []netip.Addr) {
	if header == "X-Forwarded-For" {
		for _, element := range strings.Split(strings.Join(lines, ","), ",") {
			all = append(all, oracleAddr(strings.Trim(element, " \t")))
		}
		return all
	}
	for _, line := range lines {
		for _, element := range oracleElements(t, line) {
			all = append(all, oracleFor(element))
		}
	}
	return all
}

func isProxy(a netip.Addr) bool { return tenNet[0].Contains(a) || tenNet[1].Contains(a) }

var (
	bracketed = regexp.MustCompile(`^\[([^\]]*:[^\]]*)\](:[0-9]{1,5})?$`)
	withPort  = regexp.MustCompile(`^([^:\[\]]*)(:[0-9]{1,5})$`)
	badZone   = regexp.MustCompile("%.*[ \t,;\"\\[\\]]")
)

func oracleAddr(s string) netip.Addr {
	host, port := s, ""
	if m := bracketed.FindStringSubmatch(s); m != nil {
		host, port = m[1], m[2]
	} else if m := withPort.FindStringSubmatch(s); m != nil {
		host, port = m[1], m[2]
	}
	if n, _ := strconv.Atoi(strings.TrimPrefix(port, ":")); n > 65535 || badZone.MatchString(host) {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(host)
	a = a.WithZone("").Unmap()
	if err != nil || a.IsUnspecified() || a.IsMulticast() || a.String() == "255.255.255.255" {
		return netip.Addr{}
	}
	return a
}

const (
	rfcToken  = "[-!#$%&'*+.^_`|~0-9A-Za-z]+"
	rfcValue  = "[-!#$%&'*+.^_`|~0-9A-Za-z:\\[\\]]+"
	rfcQuoted = `"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])*"`
)

var (
	rfcPair    = regexp.MustCompile(`(` + rfcToken + `)=(` + rfcValue + `|` + rfcQuoted + `)`)
	rfcElement = regexp.MustCompile(`^[ \t]*(?:` + rfcPair.String() + `)?(?:[ \t]*;[ \t]*(?:` + rfcPair.String() + `)?)*[ \t]*$`)
)

// oracleElements splits a line into elements from the left to the right. An
// element ends at the end of the line, or before the comma of the next element;
// it begins after a comma from which on the text is well-formed. There is at
// most one such comma. A malformed element is "malformed", and nothing stands
// left of the element.
func oracleElements(t *testing.T, line string) []string {
	var elements []string
	for end := len(line); end >= 0; {
		begin := -1
		for i := 0; i <= end; i++ {
			if (i == 0 || line[i-1] == ',') && rfcElement.MatchString(line[i:end]) {
				require.Equal(t, -1, begin, "%q has two beginnings for the element that ends at %d: %d and %d", line, end, begin, i)
				begin = i
			}
		}
		if begin < 0 {
			return append([]string{"malformed"}, elements...)
		}
		elements = append([]string{line[begin:end]}, elements...)
		end = begin - 1
	}
	return elements
}

func oracleFor(element string) netip.Addr {
	var a netip.Addr
	n := 0
	for _, m := range rfcPair.FindAllStringSubmatch(element, -1) {
		if strings.ToLower(m[1]) == "for" {
			n++
			a = oracleAddr(strings.TrimSuffix(strings.TrimPrefix(m[2], `"`), `"`))
		}
	}
	if n != 1 {
		return netip.Addr{}
	}
	return a
}

// occurs reports whether a piece of the lines is a.
func occurs(a netip.Addr, lines []string) bool {
	for _, line := range lines {
		for i := range line {
			for j := i + 1; j <= len(line) && j <= i+45; j++ {
				if b, err := netip.ParseAddr(line[i:j]); err == nil && b.Unmap() == a {
					return true
				}
			}
		}
	}
	return false
}

// holdsForAny requires all promises about any text, a line of the header for
// each line of the text.
func holdsForAny(t *testing.T, header, text string) {
	lines := strings.Split(text, "\n")
	for _, peer := range []string{"192.0.2.1", "10.0.0.1", "2001:db8:f::1", ""} {
		remote, own := "@", netip.Addr{}
		if peer != "" {
			own = netip.MustParseAddr(peer)
			remote = netip.AddrPortFrom(own, 567).String()
		}
		got := clientOf(remote, header, lines...)
		for hops := 1; hops <= 3; hops++ {
			c := httplimit.ClientIP{Hops: hops, Header: header}
			require.Equal(t, oracleHops(t, own, hops, header, lines), c.Of(requestOf(remote, header, lines...)), "%d hops of %q", hops, lines)
		}
		if own.IsValid() && !isProxy(own) {
			require.Equal(t, own, got, "%q", lines)
			continue
		}
		require.Equal(t, oracleClient(t, own, header, lines), got, "%q", lines)
		if got != own {
			require.True(t, got.IsValid() && got.Zone() == "" && !got.Is4In6() && !isProxy(got), "%q: %s", lines, got)
			require.True(t, occurs(got, lines), "%q: %s", lines, got)
		}
	}
}

func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{
		"", "192.0.2.66, 198.51.100.7, 10.0.0.2", "192.0.2.66\n198.51.100.7", "198.51.100.7:567", "[2001:db8:c::7]:567,",
		"fe80::7%25eth0", "::ffff:198.51.100.7", "198.051.100.7", "\"198.51.100.7\"", "224.0.0.1,\t10.0.0.2", "[1.2.3.4]", "1:2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) { holdsForAny(t, "X-Forwarded-For", text) })
}

func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"", "for=192.0.2.66, for=198.51.100.7;proto=https, for=10.0.0.2", `for="[2001:db8:c::7]:567"`, "for=unknown\nfor=_x",
		`for=192.0.2.66;by=", for=198.51.100.7`, `for=198.51.100.7;user="x,for=\"192.0.2.66\\"`, "FOR=198.51.100.7 ; ; by=x",
		"for=1.2.3.4;for=1.2.3.4", `x="a,for=1.2.3.4`, `for="1.2.3.4\"`, `a="",for=1.2.3.4;b="\\"`, "for=fe80::7%x,for=10.0.0.2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) <= 1000 { // the oracle is slow
			holdsForAny(t, "Forwarded", text)
		}
	})
}

// The significant bytes of a header, in any order, are denser than a fuzzer's
// tries.
func TestPiecesInAnyOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"for", "for=", "x=", "1.2.3.4", "10.0.0.2", "[2001:db8:c::7]", ":80", "%z", ",", ",", ";", `"`, `"`, `\`, "=", " ", "\n", "\x01"}
	for range long.Rounds(1_000, 5_000) { // a single goroutine
		var text strings.Builder
		for range random.IntN(12) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		holdsForAny(t, "X-Forwarded-For", text.String())
		holdsForAny(t, "Forwarded", text.String())
	}
}

// FuzzBothHeaders says the same chain in both headers, by a seed.
func FuzzBothHeaders(f *testing.F) {
	for range 2000 {
		f.Add(rand.Uint64())
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		pick := func(words ...string) string { return words[random.IntN(len(words))] }
		var plain, forwarded strings.Builder
		for i := range 1 + random.IntN(6) {
			if i > 0 {
				separator := pick(",", ", ", " ,\t", "\n")
				plain.WriteString(separator)
				forwarded.WriteString(separator)
			}
			address := pick("10.0.0.2", "10.0.0.2", "10.0.0.3:80", "[2001:db8:f::2]", "::ffff:10.0.0.4",
				"198.51.100."+strconv.Itoa(random.IntN(256)), "198.51.100.7:"+strconv.Itoa(random.IntN(70000)), "[2001:db8:c::7]:567",
				"2001:db8:c::7", "fe80::7%eth0", "unknown", "_hidden", "198.051.100.7", "0.0.0.0", "224.0.0.1")
			plain.WriteString(address)
			if random.IntN(2) == 0 {
				address = `"` + address + `"`
			}
			before := pick("", "", "by=10.0.0.1;", `host="a,b;for=192.0.2.66" ; `, ";", `x="\"\\";`)
			after := pick("", "", ";proto=https", `; host="example.com:80"`, ";", `;x="\\\",for=192.0.2.66"`)
			forwarded.WriteString(before + pick("for=", "For=", "FOR=") + address + after)
		}
		plainLines, forwardedLines := strings.Split(plain.String(), "\n"), strings.Split(forwarded.String(), "\n")
		for _, peer := range []string{"10.0.0.1:567", "@", "192.0.2.1:567"} {
			require.Equal(t, clientOf(peer, "X-Forwarded-For", plainLines...), clientOf(peer, "Forwarded", forwardedLines...),
				"seed %d: %q and %q", seed, plainLines, forwardedLines)
		}
	})
}

// Everything so far is about requests that were made by hand. A ReverseProxy before a
// socket has a local client, which lies.
func TestRealConnections(t *testing.T) {
	of := func(proxies ...netip.Prefix) http.Handler {
		c := httplimit.ClientIP{Proxies: proxies}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, c.Of(r)) })
	}
	direct, behind := newSite(t, of(tenNet...)), newSite(t, of(netip.MustParsePrefix("127.0.0.0/8")))
	l := try.To(net.Listen("unix", filepath.Join(t.TempDir(), "s")))(t)
	socket := &site{t, &httptest.Server{Listener: l, Config: &http.Server{Handler: of(tenNet...)}}}
	socket.Start()
	t.Cleanup(socket.Close)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "x"})
	proxy.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", l.Addr().String())
	}}
	front := newSite(t, proxy)
	for _, row := range []struct {
		to    *site
		want  string
		lines string
	}{
		{direct, "127.0.0.1", "X-Forwarded-For: 192.0.2.66"},
		{behind, "198.51.100.7", "x-FORWARDED-for: 192.0.2.66|X-Forwarded-For:\t198.51.100.7:567 "},
		{behind, "198.51.100.7", "X-Forwarded-For: 198.51.100.7|X_Forwarded_For: 192.0.2.66"},
		{socket, "198.51.100.7", "X-Forwarded-For: 192.0.2.66, 198.51.100.7"},
		{socket, none, "X-Forwarded-For: 198.51.100.7,"},
		{socket, none, "Accept: */*"},
		{front, "127.0.0.1", "X-Forwarded-For: 192.0.2.66|X-Forwarded-For: 198.51.100.7"},
		{front, "127.0.0.1", "X-Forwarded-For: ,"},
		{front, "127.0.0.1", "Connection: X-Forwarded-For|X-Forwarded-For: 198.51.100.7"},
	} {
		got := row.to.exchange("GET / HTTP/1.0\r\n"+strings.ReplaceAll(row.lines, "|", "\r\n")+"\r\n\r\n", false)
		require.Equal(t, row.want, got[strings.LastIndexByte(got, '\n')+1:], row.lines)
	}
}
