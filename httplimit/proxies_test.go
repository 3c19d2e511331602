package httplimit_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The lines of docs/http.md in real proxies: the handler finds the address that has
// connected to the first proxy, whatever the client writes.
func TestProxies(t *testing.T) {
	page := try.To(os.ReadFile("../docs/http.md"))(t)
	_, table, found := strings.Cut(string(page), "### Lines for proxies")
	require.True(t, found)
	rows := map[string][2]string{} // lines and ClientIP by proxy
	code := regexp.MustCompile("`([^`]+)`")
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| (`+"`"+`.+) \| (.+) \|$`).FindAllStringSubmatch(table, -1) {
		var lines []string
		for _, line := range code.FindAllStringSubmatch(row[2], -1) {
			lines = append(lines, line[1])
		}
		rows[row[1]] = [2]string{strings.Join(lines, "\n"), row[3]}
	}

	const client, claimed = "127.0.0.66", "198.51.100.7"
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	clientIPs := map[string]httplimit.ClientIP{
		"{Proxies: proxies}":                      {Proxies: proxies},
		`{Proxies: proxies, Header: "X-Real-IP"}`: {Proxies: proxies, Header: "X-Real-IP"},
		`{Proxies: proxies, Header: "Forwarded"}`: {Proxies: proxies, Header: "Forwarded"},
		"{Hops: 2}": {Hops: 2},
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	visitor := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	used := 0
	start := func(t *testing.T, row, app, web string) string {
		used++
		lines := strings.NewReplacer("app:8080", app, "web:8080", web, "192.0.2.10", "127.0.0.1").Replace(rows[row][0])
		switch name, _, _ := strings.Cut(row, " "); strings.TrimSuffix(name, ",") {
		case "nginx":
			lines, proxied := strings.CutPrefix(lines, "listen 8080 proxy_protocol;\n")
			return servertest.Nginx(t, map[bool]string{true: "proxy_protocol"}[proxied], lines)
		case "Caddy":
			return servertest.Caddy(t, lines)
		case "HAProxy":
			return servertest.HAProxy(t, "", lines)
		}
		t.Fatalf("%q begins with no name of a proxy", row)
		return ""
	}
	for _, chain := range [][]string{ // from the client to the program
		{"nginx"}, {"nginx, a single address"}, {"nginx, RFC 7239"},
		{"Caddy"},
		{"HAProxy"}, {"HAProxy, a single address"},
		{"HAProxy in front of nginx, as above", "nginx"},
		{"HAProxy by TCP, with the PROXY protocol", "nginx behind it"},
	} {
		t.Run(chain[0], func(t *testing.T) {
			app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for _, name := range chain {
					for _, c := range code.FindAllStringSubmatch(rows[name][1], -1) {
						clientIP, known := clientIPs[c[1]]
						fmt.Fprintln(w, known, clientIP.Of(r))
					}
				}
			}))
			t.Cleanup(app.Close)
			address := app.Listener.Addr().String()
			for i := len(chain) - 1; i >= 0; i-- {
				require.Contains(t, rows, chain[i])
				address = start(t, chain[i], app.Listener.Addr().String(), address)
			}
			for _, lie := range []http.Header{
				{},
				{"X-Forwarded-For": {claimed}, "X-Real-Ip": {claimed}, "Forwarded": {"for=" + claimed}},
				{"X-Forwarded-For": {claimed, claimed}, "X-Real-Ip": {claimed, claimed}, "Forwarded": {"for=" + claimed, "for=" + claimed}},
				{"X-Forwarded-For": {claimed + ", 127.0.0.1"}, "Forwarded": {`for=` + claimed + `;by="`}},
				{"X-Forwarded-For": {","}, "X-Real-Ip": {""}, "Forwarded": {""}},
				{"X-Forwarded-For": {claimed}, "Connection": {"X-Forwarded-For, X-Real-IP, Forwarded"}},
			} {
				r := try.To(http.NewRequest("GET", "http://"+address+"/", nil))(t)
				r.Header = lie
				answer := try.To(visitor.Do(r))(t)
				got := try.To(io.ReadAll(answer.Body))(t)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, 200, answer.StatusCode)
				require.Regexp(t, "^(true "+client+"\n)+$", string(got), lie)
			}
		})
	}
	require.Len(t, rows, used-1, "each row of the table, and nginx twice")
}

// A shared cache hands the numbers of a visitor to others, unless it drops the fields by
// the line of docs/http.md. It keeps no denial.
func TestCache(t *testing.T) {
	const drop = "proxy_hide_header RateLimit; proxy_hide_header RateLimit-Policy;"
	require.Contains(t, string(try.To(os.ReadFile("../docs/http.md"))(t)), "`"+drop+"`")
	limit := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "2/h")), Features: []httplimit.Source{byIP}})
	app := httptest.NewServer(limit(welcome))
	t.Cleanup(app.Close)
	for _, row := range []struct{ lines, told string }{{"", `"2/h";r=1;t=3601`}, {drop, ""}} {
		cache := servertest.Nginx(t, "", "proxy_cache pages; proxy_cache_valid any 1h; add_header X-Cache $upstream_cache_status always; "+row.lines+" proxy_pass "+app.URL+";")
		for _, request := range []struct {
			path, cache string
			status      int
		}{{"/", "MISS", 200}, {"/", "HIT", 200}, {"/other", "MISS", 429}, {"/other", "MISS", 429}} {
			if request.status == 429 && row.lines == "" {
				continue // of two an hour the second cache gets one
			}
			answer := try.To(http.Get("http://" + cache + request.path))(t)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, request.status, answer.StatusCode)
			require.Equal(t, request.cache, answer.Header.Get("X-Cache"))
			require.Equal(t, row.told, answer.Header.Get("RateLimit"))
		}
	}
}

// proxyAt is a proxy with an address, before a server. It appends to
// X-Forwarded-For as httputil.ReverseProxy does; write adds headers of its own.
func proxyAt(address string, server http.Handler, write func(h http.Header, peer string)) http.Handler {
	return &httputil.ReverseProxy{
		Director: func(r *http.Request) {
			r.URL.Scheme, r.URL.Host = "http", "server"
			write(r.Header, strings.TrimSuffix(r.RemoteAddr, ":567"))
		},
		Transport: transport(func(r *http.Request) *http.Response {
			r.RemoteAddr = address + ":567"
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			return w.Result()
		}),
	}
}

type transport func(r *http.Request) *http.Response

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// The table of docs/http.md: whatever a client writes, and whichever way it takes
// to the server, the client is the address that connected.
func TestDeployments(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	const cdnIP, balancerIP, client, claimed = "203.0.113.9", "10.0.0.1", "198.51.100.7", "192.0.2.66"
	mine, theCDNs := prefixes("10.0.0.0/8"), prefixes("203.0.113.0/24")
	var list httplimit.ProxyList
	require.NoError(t, list.Set(theCDNs...))

	type way struct{ name, want string }
	const direct, byCDN, byBalancer, byBoth = "direct", "by the CDN", "by the balancer", "by both"
	for _, row := range []struct {
		name string
		c    httplimit.ClientIP
		ways []way
	}{
		{"direct", httplimit.ClientIP{}, []way{{direct, client}}},
		{"proxies", httplimit.ClientIP{Proxies: mine}, []way{{byBalancer, client}, {direct, client}}},
		{"Forwarded", httplimit.ClientIP{Proxies: mine, Header: "Forwarded"}, []way{{byBalancer, client}, {direct, client}}},
		{"a CDN with a header of its own", httplimit.ClientIP{Proxies: theCDNs, Header: "CF-Connecting-IP"}, []way{{byCDN, client}, {direct, client}, {byBalancer, balancerIP}}},
		{"a CDN before a balancer", httplimit.ClientIP{Proxies: append(theCDNs, mine...)}, []way{{byBoth, client}, {byBalancer, client}, {direct, client}}},
		{"a CDN whose networks change", httplimit.ClientIP{Proxies: mine, ProxyList: &list}, []way{{byBoth, client}, {byBalancer, client}, {direct, client}}},
		{"unknown addresses", httplimit.ClientIP{Hops: 1}, []way{{byBalancer, client}}},
		{"unknown addresses, known peers", httplimit.ClientIP{Proxies: mine, Hops: 2}, []way{{byBoth, client}, {direct, client}}},

		// Mistakes of which the page warns.
		{"a proxy that is not listed", httplimit.ClientIP{Proxies: mine}, []way{{byBoth, cdnIP}}},
		{"the CDN's header from a balancer", httplimit.ClientIP{Proxies: append(mine, theCDNs...), Header: "CF-Connecting-IP"}, []way{{byBoth, client}, {byBalancer, claimed}}},
		{"hops that can be left out", httplimit.ClientIP{Hops: 2}, []way{{byBoth, client}, {byBalancer, claimed}, {direct, claimed}}},
	} {
		var got netip.Addr
		server := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = row.c.Of(r) })
		balancer := proxyAt(balancerIP, server, func(h http.Header, peer string) { h.Add("Forwarded", "for="+peer) })
		cdn := func(server http.Handler) http.Handler {
			return proxyAt(cdnIP, server, func(h http.Header, peer string) {
				h.Add("Forwarded", "for="+peer)
				h.Set("CF-Connecting-IP", peer)
			})
		}
		all := map[string]http.Handler{direct: server, byCDN: cdn(server), byBalancer: balancer, byBoth: cdn(balancer)}
		for _, way := range row.ways {
			for _, lie := range []string{"", claimed, claimed + ", " + claimed, claimed + ", " + cdnIP, claimed + ", " + cdnIP + ", " + balancerIP} {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = client + ":567"
				if lie != "" {
					r.Header.Set("X-Forwarded-For", lie)
					r.Header.Set("Forwarded", "for="+strings.ReplaceAll(lie, ", ", ", for="))
					r.Header.Set("CF-Connecting-IP", claimed)
				}
				all[way.name].ServeHTTP(httptest.NewRecorder(), r)
				if way.want != claimed {
					require.Equal(t, way.want, got.String(), "%s, %s, %q", row.name, way.name, lie)
				} else if lie == claimed+", "+claimed { // a lie of any other length misses the place of the hops
					require.Equal(t, claimed, got.String(), "%s, %s: the page need not warn", row.name, way.name)
				}
			}
		}
	}
}
