// Package httplimit answers: how does HTTP say it?
//
// [New] makes a middleware that asks a [limiter.Limiter] before a handler runs:
//
//	limit, err := httplimit.New(httplimit.Config{
//		Limiter:  lim,
//		Event:    "signup",
//		Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{}), httplimit.Email(httplimit.Form("email"))},
//	})
//	mux.Handle("POST /signup", limit(signup))
//
// It is a func(http.Handler) http.Handler, for one route, or around a mux, as
// net/http, chi and gorilla have it.
//
// # What a client is told
//
// A request over its limit is answered with 429, Retry-After and a problem
// detail (RFC 9457). RateLimit-Policy and RateLimit tell of the limits on
// accepted requests too, as structured fields of
// draft-ietf-httpapi-ratelimit-headers. What is counted for others is not shown,
// see Config.Show. While the store fails, a request under rules that are Closed
// is answered with 503 and a Retry-After of one or two seconds. docs/http.md has
// every answer in full.
//
// # What is believed
//
// Nothing that a client can write, unless it is asked for: the client's address
// is the peer's, see [ClientIP]; a field or a header is one that the handler
// reads as well, and what could be read in two ways is refused, see [Value].
package httplimit
