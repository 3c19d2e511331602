package httplimit

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/abacus-go/abacus/limiter"
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
func (p Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.Status = cmp.Or(p.Status, http.StatusInternalServerError)
	writeProblem(&lines{header: w.Header()}, w, p.Status, p.body())
}

// body is p in JSON.
func (p Problem) body() string {
	var text strings.Builder
	_ = json.NewEncoder(&text).Encode(p) // cannot fail: strings, a number and a bool
	return text.String()
}

// writeProblem answers with the body of a problem. A body that is a string stays
// unchanged, whatever writers do.
func writeProblem(l *lines, w http.ResponseWriter, status int, body string) {
	l.set("Content-Type", "application/problem+json")
	l.set("Cache-Control", "no-store") // for this client and moment only
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // an error is a client that hung up
}

// ProblemOf is the default answer to the request of ctx, for Config.Denied, Failed
// and Invalid: the Problem of the innermost middleware that did not admit the
// request. False if all middlewares around the handler admitted the request, or did
// not limit it. Under RefuseSilently the Problem still tells of the limit.
func ProblemOf(ctx context.Context) (Problem, bool) {
	h, _ := ctx.Value(hitKey{}).(*hit)
	for h != nil && h.invalid == nil && h.verdict.Allowed {
		h, _ = h.Context.Value(hitKey{}).(*hit)
	}
	if h == nil {
		return Problem{}, false
	}
	return h.problem(), true
}

// problem is the default answer to a request that was not admitted.
func (h *hit) problem() Problem {
	switch {
	case h.invalid != nil:
		return invalid(h.invalid)
	case h.verdict.Outcome() == limiter.OutcomeFailedClosed:
		return h.m.failure(&h.verdict)
	}
	states := h.verdict.All()
	return h.m.deniedBy(h.m.fieldsOf(states).violated(states), h.verdict.Banned)
}

// deniedBy is the problem of a denial by the policies with the names, or by a ban.
func (m *middleware) deniedBy(names []string, banned bool) Problem {
	p := Problem{Type: quotaExceeded, Title: quotaExceededTitle, Status: m.deniedStatus(), Violated: names, Banned: banned}
	if banned {
		p.Type, p.Title = abnormalUsage, abnormalUsageTitle
	}
	return p
}

// deniedStatus is the status of a denial.
func (m *middleware) deniedStatus() int {
	if m.Refuse == RefuseForbidden {
		return http.StatusForbidden
	}
	return http.StatusTooManyRequests
}

// failure is the problem of a denial without an answer of the store.
func (m *middleware) failure(v *limiter.Verdict) Problem {
	p := Problem{Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Err: v.Degraded}
	if m.Refuse != RefuseSilently {
		p.Detail = "The service is not available at the moment. Please try again later."
	}
	return p
}

// invalid is the problem of a request that cannot be asked about.
func invalid(e *ValueError) Problem {
	status := e.status()
	return Problem{Title: http.StatusText(status), Status: status, Detail: e.sentence(), Err: e}
}
