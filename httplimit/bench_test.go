package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// discard is an http.ResponseWriter for many requests.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// WriteString is there as in net/http's own writers.
func (d *discard) WriteString(s string) (int, error) { return len(s), nil }

// formBody is a body that can be read again and again.
type formBody struct{ strings.Reader }

func (*formBody) Close() error { return nil }

// BenchmarkMiddleware measures an admitted request of one in a thousand
// visitors, on the embedded store, with and without the middleware: each
// request with a form in the body, which the handler reads. At the end every
// request has been counted.
func BenchmarkMiddleware(b *testing.B) {
	const visitors = 1000
	const one, three = "1000000000/d", "1000000000/m, 1000000000/h, 1000000000/d"
	for _, row := range []struct {
		name     string
		rules    []limiter.Rule
		features []httplimit.Source
		with     func(*httplimit.Config)
	}{
		{"handler alone", nil, nil, nil},
		{"ip, one limit", []limiter.Rule{by("ip", one)}, []httplimit.Source{byIP}, func(*httplimit.Config) {}},
		{"ip, one limit, no headers", []limiter.Rule{by("ip", one)}, []httplimit.Source{byIP}, func(c *httplimit.Config) { c.NoHeaders = true }},
		{"ip, one limit, refund if 500", []limiter.Rule{by("ip", one)}, []httplimit.Source{byIP}, func(c *httplimit.Config) {
			c.RefundIf = func(status int) bool { return status == http.StatusInternalServerError }
		}},
		{"ip and email of a form, three limits each", []limiter.Rule{by("ip", three), by("email", three)}, []httplimit.Source{byIP, byEmail}, func(*httplimit.Config) {}},
	} {
		b.Run(row.name, func(b *testing.B) {
			var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.FormValue("email") == "" {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				w.WriteHeader(http.StatusOK)
				_, _ = io.WriteString(w, "welcome")
			})
			var lim *limiter.Limiter
			if row.rules != nil {
				lim = newLimiterOn(b, memory.New(memory.Config{}), counter.Config{}, limiter.Config{Rules: row.rules})
				cfg := httplimit.Config{Limiter: lim, Features: row.features}
				row.with(&cfg)
				handler = newLimit(b, cfg)(handler)
			}
			var addrs, forms []string
			for i := range visitors {
				addrs = append(addrs, fmt.Sprintf("198.51.%d.%d:567", i/256, i%256))
				forms = append(forms, fmt.Sprintf("name=Some+Visitor&email=visitor.%d%%40example.org", i))
			}
			w, body, n := &discard{header: http.Header{}}, &formBody{}, int64(0)
			from := &http.Request{
				Method: "POST", URL: &url.URL{Path: "/signup"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "shop.example",
				Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "User-Agent": {"benchmark"}},
			}
			visit := func() {
				i := n % visitors
				r := *from // as net/http: a request is one allocation
				body.Reset(forms[i])
				r.RemoteAddr, r.ContentLength, r.Body = addrs[i], int64(len(forms[i])), body
				clear(w.header)
				w.status = 0
				handler.ServeHTTP(w, &r)
				if w.status != http.StatusOK {
					b.Fatal(w.status, w.header)
				}
				n++
			}
			for range visitors { // a first hit costs more, and few are
				visit()
			}
			b.ReportAllocs()
			for b.Loop() {
				visit()
			}
			b.StopTimer()
			if row.rules == nil {
				return
			}
			var hits int64
			for _, addr := range addrs {
				feature := "ip:" + netip.MustParseAddrPort(addr).Addr().String()
				count, err := lim.Counter().Count(b.Context(), counter.Key{Event: "signup", Feature: feature}, 24*time.Hour)
				require.NoError(b, err)
				hits += count.High
			}
			require.Equal(b, n, hits)
		})
	}
}
