package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
)

// Config configures a middleware. Limiter and Event must be set, and Features
// for the kinds that the rules need.
type Config struct {
	Limiter  *limiter.Limiter
	Event    string   // of every request; the Limiter has its rules
	Features []Source // where a request has the features of the rules

	// Cost is the number of hits of a request. An error, or a cost below 1, is
	// answered with 400, or with the status of a ValueError. Cost gets a copy
	// of the request, like a Value. Default: 1.
	Cost func(r *http.Request) (int64, error)

	// Applies reports whether a request is limited; any other request passes
	// untouched. Applies gets the request itself, and must not read the body.
	// Default: every request is limited.
	Applies func(r *http.Request) bool

	// WritesOnly lets requests of reading methods pass: GET, HEAD, OPTIONS,
	// TRACE.
	WritesOnly bool

	// MaxBody bounds the bytes of a body that are read to find a feature. A
	// larger body is answered with 413. Default: DefaultMaxBody.
	MaxBody int64

	// MaxBodyTotal bounds the bytes of all bodies together that are held for
	// features, from the first byte read to the last byte that the handler reads.
	// The first 16 KiB of each body are free, so large bodies on slow connections
	// leave room for small forms. A body beyond the bound is answered with 503,
	// or by Failed. At least MaxBody. Default: the larger of DefaultMaxBodyTotal
	// and MaxBody.
	MaxBodyTotal int64

	// BodyTimeout is the longest time in which a body is read for features. A
	// slower body is answered with 408. The time needs a ResponseWriter on which
	// http.ResponseController.SetReadDeadline works, as those of net/http's
	// server do, unless a wrapper without Unwrap hides the method; on any other
	// ResponseWriter http.Server.ReadTimeout alone bounds the time. Default:
	// DefaultBodyTimeout. Negative: unbounded.
	BodyTimeout time.Duration

	// MaxWait has a request over its limit wait for its turn instead of being refused, in
	// the order of [limiter.Limiter.Wait]. Refused are requests whose turn would come after
	// MaxWait, at once, and requests that have waited for MaxWait. The wait ends with the
	// request's context, and is a part of http.Server.WriteTimeout and of Shutdown. A rule
	// with a Ban bans whoever would wait, and no one waits for the end of a ban. Default:
	// no one waits.
	MaxWait time.Duration

	// MaxWaiting bounds the requests that wait: any further one is admitted or refused at
	// once. limiter.Config.MaxWaiting bounds those of one client. Default:
	// DefaultMaxWaiting.
	MaxWaiting int

	// Refuse is the answer to a request over its limit. Default: 429.
	Refuse Refusal

	// Denied, if set, answers a request over its limit instead of the default;
	// Retry-After and RateLimit are set already, VerdictOf has the reason, and
	// ProblemOf the default answer. With RefuseSilently, Denied should write the
	// answer to an accepted request.
	Denied http.Handler

	// Failed, if set, answers a request instead of a 503, when the store
	// failed under FailClosed rules. Retry-After is set already, to the one or
	// two seconds of the Verdict; VerdictOf has the reason.
	Failed http.Handler

	// Invalid, if set, answers a request that cannot be asked about, instead of a
	// 400, 408, 413 or 415: a feature or the cost cannot be read, or a feature is
	// missing that a rule needs. ProblemOf has the default answer, with the
	// ValueError in Err. Invalid reads the body from its first byte; a body beyond
	// MaxBody is as long as the client likes.
	//
	// Invalid may be the handler inside of the middleware, to show the form again
	// with a message. Such a handler must ask ProblemOf first, and do none of the
	// limited work if there is a Problem: the request was not admitted.
	Invalid http.Handler

	// OnError, if set, gets the reason of an answer with 500: a Value of your
	// own returned an error that is no ValueError, or the Limiter has no rules for
	// Event any more, after a ReplaceAll. Many goroutines call OnError at once.
	OnError func(r *http.Request, err error)

	// Show lists the kinds of features whose remaining count is told to clients:
	// kinds that are a client's own. Default: "ip" only, since anyone can write
	// someone else's address into a form. An empty slice that is not nil: none.
	// Of a rule by a kind that is listed here, with Else "ip", the addresses are
	// shown too.
	Show []string

	// NoHeaders leaves RateLimit-Policy and RateLimit away. With LegacyHeaders the
	// older fields alone remain, for clients that stop at a RateLimit that they
	// cannot read.
	NoHeaders bool

	// LegacyHeaders adds X-RateLimit-Limit, -Remaining and -Reset, which many
	// clients know: the shown limit with the least remaining, and the Unix time
	// in seconds of its empty window, or of the next place if none is free.
	LegacyHeaders bool

	// VerdictInContext makes VerdictOf, Refund and Settle work in the handler, by the context
	// of its request. The price is a copy of each admitted request, about 0.25 µs and 700
	// bytes; otherwise the request itself goes on. RefundIf includes VerdictInContext, and
	// Denied, Failed and Invalid have the verdict in any case.
	VerdictInContext bool

	// RefundIf, if set, decides by the status of the answer whether the hit is
	// given back, before the answer goes out: to count failed log-ins only,
	// refund the good log-ins. RefundIf is called for an answer that the handler
	// writes to its ResponseWriter. The hit stays, and RefundIf is not called, if
	// nothing is written there, if the handler panics before, or if the handler
	// takes over the connection: a handler that means 200 writes the 200, or
	// calls Refund. See also Refund. Until then the hit is open: a request that is
	// denied for open hits alone is told a Retry-After of 1 or 2 seconds, rather than
	// the window. Without RefundIf, hits are open from the first Refund or Settle on.
	RefundIf func(status int) bool
}

// Refusal is an answer to a request over its limit.
type Refusal uint8

// Answers to a request over its limit.
const (
	RefuseTooManyRequests Refusal = iota // 429, which says when to come back
	RefuseForbidden                      // 403, with the same headers and body

	// RefuseSilently is an answer as if accepted, but the handler does not run; no
	// field tells of a limit, not even on accepted requests. The default answer,
	// an empty 200, can be told apart from any answer of a handler that writes a
	// header or a body: set Denied to what the handler answers. The body is read
	// first, as a handler would do, up to MaxBody and for at most BodyTimeout, and
	// for Denied while half of MaxBodyTotal has room: beyond these, a closed connection
	// or a missing 100 Continue tells the refusal, and so does the time that the handler
	// takes.
	RefuseSilently
)

// middleware is a Config, checked.
type middleware struct {
	Config
	fields  atomic.Pointer[fields] // for fieldsNow
	tells   bool                   // admitted requests have fields with counts
	bodies  bodies
	refunds atomic.Bool               // hits are refunded after good answers: those of requests under way are open
	waiting atomic.Int64              // requests that are asked about under MaxWait
	told    atomic.Pointer[time.Time] // of the last line about a client without an address
}

// DefaultMaxWaiting is the default of Config.MaxWaiting.
const DefaultMaxWaiting = 1_000

// New makes a middleware. An error names the field of cfg. An error is also a
// rule that would deny every request, because no feature is of its kind and
// IfMissing is MissingDeny; and an event whose rules would all be skipped,
// since no request would be limited. The middleware panics if the handler that it is
// given is nil, as http.Handle does.
func New(cfg Config) (func(http.Handler) http.Handler, error) {
	if cfg.Limiter == nil {
		return nil, errors.New("httplimit: Config.Limiter is nil, want one of limiter.New")
	}
	rules := cfg.Limiter.Rules(cfg.Event)
	if len(rules) == 0 {
		return nil, fmt.Errorf("httplimit: Config.Event is %q, but Config.Limiter has rules for %s only", cfg.Event, words.Quoted(cfg.Limiter.Events()))
	}
	if err := checkFeatures(&cfg, rules); err != nil {
		return nil, fmt.Errorf("httplimit: Config.Features%w", err)
	}
	if cfg.Refuse > RefuseSilently {
		return nil, fmt.Errorf("httplimit: Config.Refuse is %d, want RefuseTooManyRequests (0), RefuseForbidden (1) or RefuseSilently (2)", cfg.Refuse)
	}
	if cfg.MaxWait < 0 || cfg.MaxWaiting < 0 {
		return nil, fmt.Errorf("httplimit: Config.MaxWait is %s and MaxWaiting %d, want neither below 0", cfg.MaxWait, cfg.MaxWaiting)
	}
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, DefaultMaxWaiting)
	if cfg.Show == nil {
		cfg.Show = []string{feature.KindIP}
	}
	cfg.MaxBody = cmp.Or(max(cfg.MaxBody, 0), DefaultMaxBody)
	m := &middleware{Config: cfg, tells: cfg.Refuse != RefuseSilently && (!cfg.NoHeaders || cfg.LegacyHeaders)}
	m.Features, m.Show = slices.Clone(cfg.Features), slices.Clone(cfg.Show)
	most := max(DefaultMaxBodyTotal, cfg.MaxBody)
	m.bodies.total, m.bodies.timeout = cmp.Or(cfg.MaxBodyTotal, most), cmp.Or(cfg.BodyTimeout, DefaultBodyTimeout)
	if m.bodies.total < cfg.MaxBody {
		return nil, fmt.Errorf("httplimit: Config.MaxBodyTotal is %d, want %d, the bytes of one body, or more, or 0 for %d", m.bodies.total, cfg.MaxBody, most)
	}
	m.fields.Store(m.derive(cfg.Limiter.Generation()))
	m.refunds.Store(cfg.RefundIf != nil)
	return func(next http.Handler) http.Handler {
		if f, is := next.(http.HandlerFunc); next == nil || is && f == nil {
			panic(fmt.Sprintf("httplimit: the handler for event %q is nil", cfg.Event))
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(next, w, r) })
	}, nil
}

// checkFeatures compares the kinds of cfg.Features with the kinds of rules.
func checkFeatures(cfg *Config, rules []limiter.Rule) error {
	var ruled, found []string
	for _, r := range rules {
		ruled = append(ruled, r.Kind)
		if r.Else != "" {
			ruled = append(ruled, r.Else)
		}
	}
	for i, f := range cfg.Features {
		switch {
		case f.err != nil:
			return fmt.Errorf("[%d] has kind %q: %w", i, f.kind, f.err)
		case f.find == nil:
			return fmt.Errorf("[%d] is the zero Source, want one of IP, Email or NewSource", i)
		case !slices.Contains(ruled, f.kind):
			return fmt.Errorf(" has kind %q, but event %q has rules by %s only", f.kind, cfg.Event, words.Quoted(ruled))
		case !slices.Contains(found, f.kind):
			found = append(found, f.kind)
		}
	}
	has := "nothing"
	if len(found) > 0 {
		has = "kind " + words.Quoted(found) + " only"
	}
	skips := len(found) == 0
	for _, r := range rules {
		if r.IfMissing == limiter.MissingDeny && !slices.Contains(found, r.Kind) && (r.Else == "" || !slices.Contains(found, r.Else)) {
			return fmt.Errorf(" has %s, but event %q has a rule by %q that denies a request without (IfMissing is %s)", has, cfg.Event, r.Kind, r.IfMissing)
		}
		skips = skips && r.IfMissing == limiter.MissingSkip
	}
	if skips {
		return fmt.Errorf(" has %s, but event %q has only rules that skip a request without (IfMissing is %s)", has, cfg.Event, limiter.MissingSkip)
	}
	return nil
}
