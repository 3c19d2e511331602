// Package http_test sets the middleware of httplimit beside the middleware of
// httprate.
//
//	cd bench && go test ./http                          a test, of seconds
//	cd bench && go test -v -count=1 ./http -size short  a benchmark
package http_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

const visitors = 1000

// contestant is a handler behind a limit, which every visitor has to himself.
type contestant struct {
	name    string
	handler http.Handler
	served  int // requests that have reached the handler
	refused int // 429
}

// kinds make the middleware for the limits; every one writes header fields.
var kinds = []struct {
	name string
	make func(counter.Limits) (func(http.Handler) http.Handler, error)
}{
	{"handler alone", func(counter.Limits) (func(http.Handler) http.Handler, error) {
		return func(next http.Handler) http.Handler { return next }, nil
	}},
	{"httplimit", newHTTPLimit},
	{"httprate", newHTTPRate},
}

func newHTTPLimit(limits counter.Limits) (func(http.Handler) http.Handler, error) {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		return nil, err
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: "visit", Kind: "ip", Limits: limits}}})
	if err != nil {
		return nil, err
	}
	return httplimit.New(httplimit.Config{Limiter: lim, Event: "visit", Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{})}})
}

func newHTTPRate(limits counter.Limits) (func(http.Handler) http.Handler, error) {
	byIP := func(r *http.Request) (string, error) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(peer.Addr().String()), err
	}
	return func(next http.Handler) http.Handler {
		for _, l := range limits {
			next = httprate.LimitBy(int(l.Max), l.Per, byIP)(next)
		}
		return next
	}, nil
}

// writer is an http.ResponseWriter for many requests.
type writer struct {
	header http.Header
	status int
}

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) WriteHeader(status int)      { w.status = status }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }

func TestMiddleware(t *testing.T) {
	rounds, calls := measure.Pick(2, 5, 15), measure.Pick(2_000, 50_000, 100_000)
	s := measure.Open(t, "The middleware, beside httprate's")
	s.Say("%d rounds of %s requests of %d visitors in turn, one goroutine; ns for one request, the handler included, which writes a word. Both middlewares limit by the address of the peer, "+
		"in memory, and write header fields. Three limits are three middlewares of httprate, one inside the other. \"To httprate\" is the median of the ratios of each round. "+
		"Every answer is 200 where limits have room, and 429 where they are 0.", rounds, measure.Count(int64(calls)), visitors)
	table := measure.Table{Head: []string{"", "admitted, ns", "to httprate", "allocs", "3 limits, ns", "to httprate", "denied, ns", "to httprate", "allocs"}}
	many := int64(calls * (rounds + 1))
	rows := make([][]string, len(kinds))
	for i, kind := range kinds {
		rows[i] = []string{kind.name}
	}
	for _, column := range []struct {
		limits counter.Limits
		denies bool
		allocs bool
	}{
		{limits: counter.Limits{{Max: many, Per: 24 * time.Hour}}, allocs: true},
		{limits: counter.Limits{{Max: many, Per: time.Minute}, {Max: many, Per: time.Hour}, {Max: many, Per: 24 * time.Hour}}},
		{limits: counter.Limits{{Max: 1, Per: 24 * time.Hour}}, denies: true, allocs: true},
	} {
		ns, allocs := race(t, column.limits, column.denies, rounds, calls)
		for i := range kinds {
			if i == 0 && column.denies {
				rows[i] = append(rows[i], "", "", "")
				continue
			}
			rows[i] = append(rows[i], ns[i].Spread(), measure.Num(ns[i].To(ns[len(ns)-1]).Median()))
			if column.allocs {
				rows[i] = append(rows[i], measure.Num(allocs[i].Median()))
			}
		}
	}
	for _, row := range rows {
		table.Row(row...)
	}
	s.Table("", table)
}

// race measures all kinds under limits. If they deny, every visitor has come
// once before.
func race(t *testing.T, limits counter.Limits, denies bool, rounds, calls int) (ns, allocs []measure.Series) {
	var addrs [visitors]string
	for i := range addrs {
		addrs[i] = fmt.Sprintf("198.51.%d.%d:567", i/256, i%256)
	}
	from := &http.Request{
		Method: "GET", URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "shop.example",
		Header: http.Header{"User-Agent": {"benchmark"}}, Body: http.NoBody,
	}
	all := make([]*contestant, len(kinds))
	for i, kind := range kinds {
		limit, err := kind.make(limits)
		require.NoError(t, err)
		c := &contestant{name: kind.name}
		c.handler = limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.served++
			_, _ = io.WriteString(w, "welcome")
		}))
		all[i] = c
	}
	visit := func(c *contestant, w *writer, i int) error {
		r := *from // as net/http: a request is one allocation
		r.RemoteAddr = addrs[i%visitors]
		clear(w.header)
		w.status = http.StatusOK
		c.handler.ServeHTTP(w, &r)
		if w.status == http.StatusTooManyRequests {
			c.refused++
		}
		return nil
	}
	ns, allocs = make([]measure.Series, len(all)), make([]measure.Series, len(all))
	w := &writer{header: http.Header{}}
	for _, c := range all {
		for i := range visitors {
			require.NoError(t, visit(c, w, i))
		}
	}
	measure.Uncollected(rounds, len(all), func(i, _ int) {
		spent, mallocs, err := measure.Parallel(calls, 1, func(call int) error { return visit(all[i], w, call) })
		require.NoError(t, err)
		ns[i] = append(ns[i], float64(spent.Nanoseconds())/float64(calls))
		allocs[i] = append(allocs[i], float64(mallocs)/float64(calls))
	})
	for i, c := range all {
		served, refused := visitors+rounds*calls, 0
		if denies && i > 0 {
			served, refused = visitors, rounds*calls
		}
		require.Equal(t, served, c.served, c.name)
		require.Equal(t, refused, c.refused, c.name)
	}
	return ns, allocs
}
