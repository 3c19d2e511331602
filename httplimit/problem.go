package httplimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// Problem is a problem detail of RFC 9457: the body of an answer to a request that
// was not admitted. A Problem is also a handler that answers with the Problem.
//
// [ProblemOf] gives the Problem of a request to Config.Denied, Failed and Invalid.
// These handlers may change any field, and set further headers such as Link,
// before the call of ServeHTTP.
type Problem struct {
	Type     string   `json:"type,omitempty"` // a URI that names the kind of problem, best of a page about it; empty: about:blank
	Title    string   `json:"title"`          // the same for all problems of the Type
	Status   int      `json:"status"`         // also of the answer; 0: 500
	Detail   string   `json:"detail,omitempty"`
	Instance string   `json:"instance,omitempty"`          // a URI of this occurrence, such as the id of the request
	Violated []string `json:"violated-policies,omitempty"` // names of policies, as in RateLimit-Policy
	Banned   bool     `json:"banned,omitempty"`            // a feature is banned, see limiter.Rule.Ban

	// Err is the reason, and is not sent: the *ValueError of a request for
	// Config.Invalid, or the error of the store.
	Err error `json:"-"`

	text string // the body, if it was written before
}

// Types and titles of draft-ietf-httpapi-ratelimit-headers-11: over a limit, and
// banned.
const (
	quotaExceeded      = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	quotaExceededTitle = "Request cannot be satisfied as assigned quota has been exceeded"
	abnormalUsage      = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
	abnormalUsageTitle = "Request not satisfied due to detection of abnormal request pattern"
)

// ServeHTTP answers with p as application/problem+json, which no cache keeps.
func (p Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) { p.write(&lines{}, w) }

// write is ServeHTTP with the fields in l. The body is a string: it stays unchanged,
// whatever writers do.
func (p *Problem) write(l *lines, w http.ResponseWriter) {
	text, h := p.text, w.Header()
	if text == "" {
		text = p.body()
	}
	l.set(h, "Content-Type", "application/problem+json")
	l.set(h, "Cache-Control", "no-store") // for this client and moment only
	w.WriteHeader(cmp.Or(p.Status, http.StatusInternalServerError))
	_, _ = io.WriteString(w, text) // an error is a client that hung up
}

// body returns p in JSON.
func (p Problem) body() string {
	p.Status = cmp.Or(p.Status, http.StatusInternalServerError)
	var text strings.Builder
	_ = json.NewEncoder(&text).Encode(p) // cannot fail: strings, a number and a bool
	return text.String()
}

// ProblemOf is the default answer to the request of ctx, for Config.Denied, Failed
// and Invalid: the Problem of the innermost middleware that did not admit the
// request. False if all middlewares around the handler admitted the request, or did
// not limit it. Under RefuseSilently the Problem still tells of the limit.
func ProblemOf(ctx context.Context) (Problem, bool) {
	h := find(ctx, func(h *hit) bool { return h.problem != nil })
	if h == nil {
		return Problem{}, false
	}
	p := *h.problem
	p.text, p.Violated = "", slices.Clone(p.Violated)
	return p, true
}

// reject answers a request that is not admitted: by v, since the request is invalid, or
// because of err. The answer is a Problem, or that of the handler in Config.
func (f *visit) reject(v *limiter.Verdict, of *fields, states []counter.State, err error) {
	m, silent := f.m, f.m.Refuse == RefuseSilently
	l, header := make(lines, 0, 5), f.w.Header()
	if err == nil && !silent {
		of.write(&l, header, &m.Config, v, states)
	}
	var p *Problem
	var own http.Handler
	switch value := valueError(err); {
	case err == nil && v.Allowed, value != nil && !errors.Is(err, errBodies):
		// Even if the request was counted under other rules, the handler's Verdict denies.
		p, own, v = invalid(cmp.Or(value, f.invalid)), m.Invalid, &limiter.Verdict{}
	case err == nil && v.Outcome() != limiter.OutcomeFailedClosed:
		if p, own = of.denied(m, states, v.Banned), m.Denied; silent {
			f.receive()
			if own == nil {
				own = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
			}
		}
	case err == nil, errors.Is(err, errBodies), f.r.Context().Err() != nil:
		if err != nil { // the client hung up, a deadline of an outer middleware has passed, or there is no room for the body
			v = &limiter.Verdict{Degraded: err, Verdict: counter.Verdict{RetryAfter: fallback.AfterFailure()}}
		}
		p, own = m.failure(v.Degraded), m.Failed
		l.set(header, retryAfterKey, strconv.FormatInt(seconds(v.RetryAfter), 10)) // silently too: it tells of the store, not of a limit
	default:
		if m.OnError != nil {
			m.OnError(f.r, err)
		}
		p = &Problem{Title: http.StatusText(http.StatusInternalServerError)}
	}
	if own == nil {
		p.write(&l, f.w)
	} else if f.hand(own, &hit{Context: f.r.Context(), m: m, verdict: *v, problem: p}) {
		return
	}
	f.abandon()
}

// denied returns the problem of a denial with these states, or by a ban.
func (f *fields) denied(m *middleware, states []counter.State, banned bool) *Problem {
	var few [4]*policy
	by := f.violated(few[:0], states)
	switch {
	case len(by) != 1:
		return m.deniedBy(by, banned)
	case banned:
		return by[0].ban
	}
	return by[0].denial
}

// deniedBy returns the problem of a denial by the policies, or by a ban.
func (m *middleware) deniedBy(policies []*policy, banned bool) *Problem {
	p := &Problem{Type: quotaExceeded, Title: quotaExceededTitle, Status: http.StatusTooManyRequests, Banned: banned}
	if banned {
		p.Type, p.Title = abnormalUsage, abnormalUsageTitle
	}
	if m.Refuse == RefuseForbidden {
		p.Status = http.StatusForbidden
	}
	p.Violated = slices.Grow(p.Violated, len(policies))
	for _, by := range policies {
		p.Violated = append(p.Violated, by.name)
	}
	return p
}

// failure returns the problem of a request that could not be decided, by err.
func (m *middleware) failure(err error) *Problem {
	p := &Problem{Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Err: err}
	if m.Refuse != RefuseSilently {
		p.Detail = "The service is not available at the moment. Please try again later."
	}
	return p
}

// invalid returns the problem of a request that cannot be asked about.
func invalid(e *ValueError) *Problem {
	status := e.status()
	return &Problem{Title: http.StatusText(status), Status: status, Detail: e.sentence(), Err: e}
}

// sentence is the error for the client: The form field "email" must be text, not a file.
func (e *ValueError) sentence() string {
	if clause, own := strings.CutPrefix(e.Reason, "the "); own {
		return "The " + clause + "."
	}
	source := e.Source
	if !strings.Contains(source, " ") { // a bare name
		source = fmt.Sprintf("field %q", source)
	}
	return "The " + source + " " + e.Reason + "."
}

// hand has own answer with h as its context, and reports whether it has taken over the
// connection.
func (f *visit) hand(own http.Handler, h *hit) (taken bool) {
	w, inner := f.w, f.next(h)
	defer removeFiles(inner, f.r)
	if hasBody(f.r) {
		w = httpsnoop.Wrap(whole(w), httpsnoop.Hooks{Hijack: onHijack(func() { taken = true })})
	}
	own.ServeHTTP(w, inner)
	return taken
}

// receive reads the body of a request that is refused silently: an answer before the
// body would come without 100 Continue, and close the connection of a large body.
func (f *visit) receive() {
	q := f.request()
	q.sealed, q.refused = false, true
	if f.m.Denied == nil {
		q.discard()
	} else {
		_, _ = q.bytes() // the answer is the same
	}
}

// lingering is the time in which a server reads the rest of a body that no one needs.
const lingering = time.Second

// abandon bounds the time that the server waits for a body after an answer that did
// not read it: net/http reads up to 256 KiB of the body before the answer goes out, so
// that the connection can be used again.
func (f *visit) abandon() {
	if hasBody(f.r) && (f.q == nil || f.q.tail == nil) {
		_ = http.NewResponseController(f.w).SetReadDeadline(time.Now().Add(lingering))
	}
}
