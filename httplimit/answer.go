package httplimit

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// problem is a problem detail: RFC 9457.
type problem struct {
	Type     string   `json:"type,omitempty"` // absent: about:blank
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // names of policies, as in RateLimit-Policy
}

// quotaExceeded is the type of problem of
// draft-ietf-httpapi-ratelimit-headers-10.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// body is p in JSON.
func (p problem) body() string {
	var text strings.Builder
	_ = json.NewEncoder(&text).Encode(p) // cannot fail: strings and a number
	return text.String()
}

func (p problem) write(w http.ResponseWriter) {
	writeProblem(&lines{header: w.Header()}, w, p.Status, p.body())
}

// writeProblem answers with the body of a problem. A body that is a string stays as
// it is, whatever writers do with it.
func writeProblem(l *lines, w http.ResponseWriter, status int, body string) {
	l.set("Content-Type", "application/problem+json")
	l.set("Cache-Control", "no-store") // for this client and moment only
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // an error is a client that hung up
}

// answerDenied answers a denied request.
func (m *middleware) answerDenied(w http.ResponseWriter, r *http.Request, q *request, v *limiter.Verdict) {
	l, outcome := lines{header: w.Header()}, v.Outcome()
	var states []counter.State
	if m.Refuse != RefuseSilently {
		states, l.values = v.All(), make([]string, 0, 5)
		m.setFields(&l, v, states)
	} else if outcome == limiter.OutcomeFailedClosed {
		setRetryAfter(w.Header(), v) // tells of the store, not of a limit
	}
	switch outcome {
	case limiter.OutcomeMissing:
		reason := "is missing"
		if m.Refuse != RefuseSilently {
			reason += ", and the service limits by it"
		}
		m.answerError(w, r, q, badRequest(v.Missing, reason))
		return
	case limiter.OutcomeFailedClosed:
		m.answerFailed(w, r, q, v)
		return
	}
	switch {
	case m.Denied != nil:
		m.hand(m.Denied, w, r, q, v)
	case m.Refuse == RefuseSilently:
		w.WriteHeader(http.StatusOK)
	default:
		writeProblem(&l, w, m.deniedStatus(), m.denial(states))
	}
}

// deniedStatus is the status of a denial.
func (m *middleware) deniedStatus() int {
	if m.Refuse == RefuseForbidden {
		return http.StatusForbidden
	}
	return http.StatusTooManyRequests
}

// denial is the body of a denial by states. A body that names a single policy was
// written with the policies.
func (m *middleware) denial(states []counter.State) string {
	var only *policy
	fields := m.fieldsOf(states)
	for i := range states {
		s := &states[i]
		if s.RetryAfter <= 0 {
			continue
		}
		p := fields.find(s.Limit, s.Key.Feature)
		if only != nil && p != only {
			only = nil
			break
		}
		only = p
	}
	if only == nil {
		return m.deniedBy(fields.violated(states)).body()
	}
	return only.denial
}

// deniedBy is the problem of a denial by the policies with the names.
func (m *middleware) deniedBy(names []string) problem {
	return problem{
		Type:     quotaExceeded,
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   m.deniedStatus(),
		Violated: names,
	}
}

// answerFailed answers a request that was denied because the store failed.
func (m *middleware) answerFailed(w http.ResponseWriter, r *http.Request, q *request, v *limiter.Verdict) {
	if m.Failed != nil {
		m.hand(m.Failed, w, r, q, v)
		return
	}
	p := problem{Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable}
	if m.Refuse != RefuseSilently {
		p.Detail = "The service cannot tell at the moment whether this request is within its limits."
	}
	p.write(w)
}

// answerError answers a request for which the Limiter has no verdict.
func (m *middleware) answerError(w http.ResponseWriter, r *http.Request, q *request, err error) {
	var value *ValueError
	switch {
	case errors.As(err, &value):
		status := value.Status
		if status < 400 || status > 599 { // from a user's Value; net/http panics below 100 and above 999
			status = http.StatusBadRequest
		}
		problem{Title: http.StatusText(status), Status: status, Detail: value.Source + ": " + value.Reason}.write(w)
	case r.Context().Err() != nil:
		// The client hung up, or a deadline of an outer middleware has passed.
		v := limiter.Verdict{Degraded: err}
		v.RetryAfter = 500*time.Millisecond + rand.N(time.Second) // as for a failed store
		setRetryAfter(w.Header(), &v)
		m.answerFailed(w, r, q, &v)
	default:
		if m.OnError != nil {
			m.OnError(r, err)
		}
		problem{Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError}.write(w)
	}
}

// violated lists the names of the policies that deny, each once.
func (f *fields) violated(states []counter.State) []string {
	var names []string
	for i := range states {
		s := &states[i]
		if p := f.find(s.Limit, s.Key.Feature); s.RetryAfter > 0 && p != nil && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}
