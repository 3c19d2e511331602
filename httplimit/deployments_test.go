package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
)

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
