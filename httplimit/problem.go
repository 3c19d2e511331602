package httplimit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/abacus-go/abacus/counter"
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
