// Package httplimit limits HTTP requests by the rules of a limiter.
//
// A middleware finds the features of a request, such as the client's address and a field
// of a form, in the normal forms of package feature. It asks package limiter whether the
// event may happen for them, and says the Verdict in HTTP: the handler runs, or the
// client is told when to come back.
//
// [ByIP] limits a handler by the client's address in one line:
//
//	limit, err := httplimit.ByIP(store, "signup", "5/h, 20/d")
//
// [New] makes any other middleware. The middleware asks a [limiter.Limiter] before a
// handler runs:
//
//	limit, err := httplimit.New(httplimit.Config{
//		Limiter:  lim,
//		Event:    "signup",
//		Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{}), httplimit.Email(httplimit.Form("email"))},
//	})
//	mux.Handle("POST /signup", limit(signup))
//
// A middleware is a func(http.Handler) http.Handler, for a single route or
// around a whole mux of net/http, chi or gorilla.
//
// # Answers
//
// A request over its limit is answered with 429, Retry-After and a problem detail (RFC
// 9457). Accepted requests too have RateLimit-Policy and RateLimit, structured fields
// of draft-ietf-httpapi-ratelimit-headers. The counts of other clients are not shown,
// see Config.Show. While the store fails, a request under FailClosed rules is answered
// with 503 and a Retry-After of 1 or 2 seconds. A request that cannot be asked about is
// answered with 400, 408, 413 or 415. Config.Denied, Failed and Invalid answer in place
// of these defaults, and [ProblemOf] tells the default answer. docs/http.md has every
// answer in full.
//
// # Calls to others
//
// Package httpclient is for a client of a service that limits its callers. [Outgoing] makes
// rules of a limiter a limit of such a client's own.
//
// # Trust
//
// No text of a client is believed by default: the client's address is the peer's, see
// [ClientIP]. A field or header is read as the handler reads the field, and refused if
// two readings are possible, see [Value].
package httplimit
