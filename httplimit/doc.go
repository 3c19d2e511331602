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
// A middleware is a func(http.Handler) http.Handler, for a single route or
// around a whole mux of net/http, chi or gorilla.
//
// # Answers
//
// A request over its limit is answered with 429, Retry-After and a problem
// detail (RFC 9457). Accepted requests too have RateLimit-Policy and RateLimit,
// structured fields of draft-ietf-httpapi-ratelimit-headers. The counts of
// other clients are not shown, see Config.Show. While the store fails, a
// request under FailClosed rules is answered with 503 and a Retry-After of one
// or two seconds. A request that cannot be asked about is answered with 400, 413
// or 415. Config.Denied, Failed and Invalid answer in place of these defaults, which
// [ProblemOf] tells. docs/http.md has every answer in full.
//
// # Calls to others
//
// [Transport] is the other side, for a client of a service that limits its callers:
// requests wait for a limit of the caller's own, and as long as the service asks.
//
// # Trust
//
// No text of a client is believed without being asked for: the client's address
// is the peer's, see [ClientIP]; a field or header is read as the handler reads
// it, and refused if it can be read in two ways, see [Value].
package httplimit
