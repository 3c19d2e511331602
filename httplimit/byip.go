package httplimit

import (
	"fmt"
	"net/http"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// ByIP makes a middleware that limits the requests of each client address, by
// limits as [counter.ParseLimits] reads them:
//
//	limit, err := httplimit.ByIP(store, "signup", "5/h, 20/d")
//	http.Handle("POST /signup", limit(signup))
//
// The counts belong to the event. Everything that is limited under one event and
// one store shares them: the handlers that the middleware wraps, other calls of
// ByIP, other processes. Handlers with limits of their own need events of their
// own, and calls with the same event need the same limits.
//
// A client is an IPv4 address or the /64 network of an IPv6 address. No header is
// believed: behind a proxy all clients have the proxy's address and share one
// limit, until the full form sets Proxies in [ClientIP]. A client without an
// address, as on a Unix socket, is answered with 400, and slog.Default gets a line:
// behind a proxy such a server needs Hops in ClientIP.
//
// While the store fails, requests are answered with 503, and slog.Default gets a
// line when this begins and when it is over.
//
// ByIP is short for the following. A program that writes it out later goes on with
// the same counts, and can add rules, proxies and a policy for outages:
//
//	c, err := counter.New(store, counter.Config{})
//	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
//		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h, 20/d")},
//	}})
//	limit, err := httplimit.New(httplimit.Config{
//		Limiter:  lim,
//		Event:    "signup",
//		Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{})},
//	})
//
// Another Max keeps the counts; for other windows see [limiter.Rule].Former. The
// error names a nil store, an empty event, or text that ParseLimits refuses.
func ByIP(store backend.Store, event, limits string) (func(http.Handler) http.Handler, error) {
	lim, err := newByIP(store, event, limits)
	if err != nil {
		return nil, fmt.Errorf("httplimit: ByIP for event %q: %w", event, err)
	}
	return New(Config{Limiter: lim, Event: event, Features: []Source{IP(ClientIP{})}})
}

// newByIP makes the Limiter of ByIP.
func newByIP(store backend.Store, event, limits string) (*limiter.Limiter, error) {
	parsed, err := counter.ParseLimits(limits)
	if err != nil {
		return nil, err
	}
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, err
	}
	return limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: event, Kind: feature.KindIP, Limits: parsed}}})
}
