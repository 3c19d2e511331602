package memory_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/go-chi/httprate"
	"github.com/stretchr/testify/require"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
)

// middleware is a middleware of net/http that limits clients by address.
type middleware struct {
	wrap func(http.Handler) http.Handler
	// used returns the hits of an address under the longest limit.
	used func(addr string) (int64, error)
}

// reference is the name of the middleware to which others are compared.
const reference = "httprate"

// middlewares are the contestants, each as in its own documentation: a middleware
// for each limit, one inside the other, where a library knows a single limit only.
var middlewares = []struct {
	name string
	how  string
	make func(counter.Limits) (middleware, error)
}{
	{"abacus", "one middleware with all limits, and RateLimit-Policy and RateLimit", newHTTPLimit(nil)},
	{"abacus, no headers", "NoHeaders", newHTTPLimit(func(c *httplimit.Config) { c.NoHeaders = true })},
	{"abacus, RefundIf", "with headers, and a refund if the handler answers 500, which no handler does here", newHTTPLimit(func(c *httplimit.Config) {
		c.RefundIf = func(status int) bool { return status == http.StatusInternalServerError }
	})},
	{reference, "LimitBy the address of the peer, a middleware for each limit, with its X-RateLimit headers", newHTTPRateMiddleware},
	{"ulule/limiter", "its stdlib middleware on its memory store, one for each limit, with its X-RateLimit headers", newUluleMiddleware},
	{"bare handler", "no middleware", func(counter.Limits) (middleware, error) {
		return middleware{wrap: func(next http.Handler) http.Handler { return next }}, nil
	}},
}

func newHTTPLimit(with func(*httplimit.Config)) func(counter.Limits) (middleware, error) {
	return func(limits counter.Limits) (m middleware, err error) {
		c, err := counter.New(memory.New(memory.Config{}), counter.Config{Ladder: limits.Ladder()})
		if err != nil {
			return m, err
		}
		lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: "signup", Kind: feature.KindIP, Limits: limits}}})
		if err != nil {
			return m, err
		}
		cfg := httplimit.Config{Limiter: lim, Event: "signup", Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{})}}
		if with != nil {
			with(&cfg)
		}
		m.used = func(addr string) (int64, error) {
			n, err := c.Count(ctx, counter.Key{Event: "signup", Feature: "ip:" + addr}, limits[len(limits)-1].Per)
			return n.High, err
		}
		m.wrap, err = httplimit.New(cfg)
		return m, err
	}
}

func newHTTPRateMiddleware(limits counter.Limits) (middleware, error) {
	// KeyByIP, which is deprecated for what it does behind a proxy.
	byPeer := func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	}
	var all []*httprate.RateLimiter
	for _, limit := range limits {
		// LimitBy, which does not show its counts.
		all = append(all, httprate.NewRateLimiter(int(limit.Max), limit.Per, httprate.WithKeyFuncs(byPeer)))
	}
	return middleware{
		wrap: func(next http.Handler) http.Handler {
			for _, l := range all {
				next = l.Handler(next)
			}
			return next
		},
		used: func(addr string) (int64, error) {
			_, count, err := all[len(all)-1].Status(addr + ":") // as its keys are joined
			return int64(count + 0.5), err
		},
	}, nil
}

func newUluleMiddleware(limits counter.Limits) (middleware, error) {
	var all []*ulule.Limiter
	for _, limit := range limits {
		all = append(all, ulule.New(ululememory.NewStore(), ulule.Rate{Period: limit.Per, Limit: limit.Max}))
	}
	return middleware{
		wrap: func(next http.Handler) http.Handler {
			for _, l := range all {
				next = ululehttp.NewMiddleware(l).Handler(next)
			}
			return next
		},
		used: ululed(all).used,
	}, nil
}

// visits are requests of distinct clients, as net/http's server hands them to a
// handler.
type visits struct {
	addrs    []string
	requests []*http.Request
	next     uint64 // the state of a generator of random visitors
}

func newVisits(t testing.TB, visitors int) *visits {
	v := &visits{}
	seen := map[string]bool{}
	for i := range visitors {
		addr := fmt.Sprintf("198.51.%d.%d", i/250, i%250)
		require.True(t, netip.MustParseAddr(addr).IsValid())
		require.False(t, seen[addr], "visitors are distinct")
		seen[addr] = true
		// The values and the cancellation of a request of net/http's server.
		ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{})
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.TCPAddr{}))
		ctx, cancel := context.WithCancel(ctx)
		t.Cleanup(cancel)
		r := &http.Request{
			Method: http.MethodPost, URL: &url.URL{Path: "/signup"}, RequestURI: "/signup", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "shop.example",
			Header: http.Header{"User-Agent": {"benchmark"}, "Accept": {"*/*"}}, Body: http.NoBody, RemoteAddr: addr + ":567",
		}
		v.addrs, v.requests = append(v.addrs, addr), append(v.requests, r.WithContext(ctx))
	}
	return v
}

// answer is the http.ResponseWriter of a single answer.
type answer struct {
	header  http.Header
	status  int
	written int
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.written += len(b)
	return len(b), nil
}

func (a *answer) WriteString(s string) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.written += len(s)
	return len(s), nil
}

// welcome is the handler inside of every middleware.
var welcome = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "welcome")
})

// visit has h answer a request. The answer has a header of its own, as in net/http.
func visit(h http.Handler, r *http.Request, want int) (answer, error) {
	a := answer{header: make(http.Header)}
	h.ServeHTTP(&a, r)
	if a.status != want || a.written == 0 {
		return a, fmt.Errorf("status %d with %d bytes, want %d with a body; header %v", a.status, a.written, want, a.header)
	}
	return a, nil
}

// random has h answer n requests of random visitors.
func (v *visits) random(h http.Handler, n, want int) error {
	for range n {
		v.next = v.next*6364136223846793005 + 1442695040888963407
		if _, err := visit(h, v.requests[(v.next>>33)%uint64(len(v.requests))], want); err != nil {
			return err
		}
	}
	return nil
}

func TestEveryMiddlewareCountsAndRefuses(t *testing.T) {
	v := newVisits(t, 2)
	for _, kind := range middlewares {
		t.Run(kind.name, func(t *testing.T) {
			m := try.To(kind.make(counter.MustLimits("9/m, 8/h, 3/d")))(t)
			h := m.wrap(welcome)
			if m.used == nil {
				require.NoError(t, v.random(h, 100, http.StatusOK))
				return
			}
			for range 3 {
				a := try.To(visit(h, v.requests[0], http.StatusOK))(t)
				require.Equal(t, len("welcome"), a.written)
				require.Equal(t, strings.Contains(kind.name, "no headers"), len(a.header) == 1, a.header)
			}
			try.To(visit(h, v.requests[1], http.StatusOK))(t)
			try.To(visit(h, v.requests[0], http.StatusTooManyRequests))(t)
			for i, want := range []int64{3, 1} {
				require.Equal(t, want, try.To(m.used(v.addrs[i]))(t), v.addrs[i])
			}
			require.NoError(t, try.Err(visit(h, v.requests[1], http.StatusOK)), "the first client has used nothing of the second")
		})
	}
}

func TestMiddlewareBesidePeers(t *testing.T) {
	const visitors = 1000
	rounds, calls := measure.Pick(2, 5, 15), measure.Pick(1_000, 100_000, 100_000)
	s := measure.Open(t, "The middleware, beside other middlewares")
	s.Say("%d rounds of %s requests of %s, who come in random order, on one core; each contestant counts in memory. No network and no parsing: a request as net/http's "+
		"server hands it to a handler, and a writer that keeps the status and drops the body. ns of processor time for one request, with the handler and with the "+
		"collector, which runs as it comes: so the garbage of a contestant is in its numbers. \"To %s\" is the median over the rounds of the ratio within a round; "+
		"\"uncollected\" is the ratio while the collector rests. The status of every answer is checked, and at the end the hits of every visitor.", rounds, measure.Count(int64(calls)), words.Plural(visitors, "visitor"), reference)
	var list strings.Builder
	for _, kind := range middlewares {
		fmt.Fprintf(&list, "- %s: %s.\n", kind.name, kind.how)
	}
	s.Say("%s", strings.TrimSuffix(list.String(), "\n"))

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	v := newVisits(t, visitors)
	room := 4 * int64(calls) * int64(rounds+1) / visitors // twice the mean, with the collector and without
	for _, race := range []struct {
		heading string
		limits  counter.Limits
		status  int
	}{
		{"Admitted, one limit (shaped as 100/d)", roomy(1, room), http.StatusOK},
		{"Admitted, three limits (10/m, 50/h, 100/d)", roomy(3, room), http.StatusOK},
		{"Denied by one limit", counter.Limits{{Max: 1, Per: day}}, http.StatusTooManyRequests},
	} {
		s.Table(race.heading, raceOfMiddlewares(t, v, race.limits, race.status, rounds, calls))
	}
}

// raceOfMiddlewares lets all middlewares answer requests with the status want, after
// a first one of each visitor.
func raceOfMiddlewares(t *testing.T, v *visits, limits counter.Limits, want, rounds, calls int) measure.Table {
	type runner struct {
		middleware
		name              string
		h                 http.Handler
		ns, bytes, allocs measure.Series
		uncollected       measure.Series // ns while the collector rests
		ours              bool
		wrong             measure.Mishaps // of a peer
	}
	// A peer that answers as it should not ends no race: its row says so.
	noted := func(r *runner, err error) {
		if err != nil && !r.ours {
			r.wrong.Call(err)
			return
		}
		require.NoError(t, err, r.name)
	}
	var runners []*runner
	var base *runner
	for _, kind := range middlewares {
		m, err := kind.make(limits)
		require.NoError(t, err, kind.name)
		if m.used == nil && want != http.StatusOK {
			continue // a bare handler denies nobody
		}
		r := &runner{middleware: m, name: kind.name, h: m.wrap(welcome), ours: kind.name != reference && kind.name != "ulule/limiter"}
		if kind.name == reference {
			base = r
		}
		for _, request := range v.requests {
			_, err := visit(r.h, request, http.StatusOK)
			noted(r, err)
		}
		runners = append(runners, r)
	}
	run := func(r *runner) (ns, bytes, allocs float64) {
		runtime.GC() // what others have left is not this contestant's
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := measure.CPU()
		noted(r, v.random(r.h, calls, want))
		spent := measure.CPU() - began
		runtime.ReadMemStats(&after)
		n := float64(calls)
		return float64(spent.Nanoseconds()) / n, float64(after.TotalAlloc-before.TotalAlloc) / n, float64(after.Mallocs-before.Mallocs) / n
	}
	measure.Turns(rounds, len(runners), func(i, _ int) {
		r := runners[i]
		ns, bytes, allocs := run(r)
		r.ns, r.bytes, r.allocs = append(r.ns, ns), append(r.bytes, bytes), append(r.allocs, allocs)
		collects := debug.SetGCPercent(-1)
		ns, _, _ = run(r)
		debug.SetGCPercent(collects)
		r.uncollected = append(r.uncollected, ns)
	})
	hits := int64(len(v.addrs))
	if want == http.StatusOK {
		hits += 2 * int64(rounds) * int64(calls)
	}
	table := measure.Table{Head: []string{"", "ns", "to " + reference, "uncollected", "bytes", "allocs"}}
	for _, r := range runners {
		if r.used != nil {
			var sum int64
			for _, addr := range v.addrs {
				used, err := r.used(addr)
				noted(r, err)
				sum += used
			}
			if !r.ours && sum != hits {
				r.wrong.Miscount("counted %s of %s hits", measure.Count(sum), measure.Count(hits))
			} else {
				require.Equal(t, hits, sum, "%s has counted another number of hits", r.name)
			}
		}
		table.Row(r.name+r.wrong.String(), r.ns.Spread(), r.ns.To(base.ns).Spread(), r.uncollected.To(base.uncollected).Spread(), measure.Bytes(r.bytes.Median()), measure.Num(r.allocs.Median()))
	}
	return table
}
