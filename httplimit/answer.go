package httplimit

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

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

func (p problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store") // for this client and moment only
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error is a client that hung up
}

// answerDenied answers a denied request.
func (m *middleware) answerDenied(w http.ResponseWriter, q *request, v limiter.Verdict) {
	switch v.Outcome() {
	case limiter.OutcomeMissing:
		reason := "is missing"
		if m.Refuse != RefuseSilently {
			reason += ", and the service limits by it"
		}
		m.answerError(w, q, badRequest(v.Missing, reason))
		return
	case limiter.OutcomeFailedClosed:
		m.answerFailed(w, q, v)
		return
	}
	switch {
	case m.Denied != nil:
		m.Denied.ServeHTTP(w, q.nextWith(&hit{q.in.Context(), m, v}))
	case m.Refuse == RefuseSilently:
		w.WriteHeader(http.StatusOK)
	default:
		p := problem{
			Type:     quotaExceeded,
			Title:    "Request cannot be satisfied as assigned quota has been exceeded",
			Status:   http.StatusTooManyRequests,
			Violated: m.fields.violated(&v),
		}
		if m.Refuse == RefuseForbidden {
			p.Status = http.StatusForbidden
		}
		p.write(w)
	}
}

// answerFailed answers a request that was denied because the store failed.
func (m *middleware) answerFailed(w http.ResponseWriter, q *request, v limiter.Verdict) {
	if m.Failed != nil {
		m.Failed.ServeHTTP(w, q.nextWith(&hit{q.in.Context(), m, v}))
		return
	}
	p := problem{Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable}
	if m.Refuse != RefuseSilently {
		p.Detail = "The service cannot tell at the moment whether this request is within its limits."
	}
	p.write(w)
}

// answerError answers a request for which the Limiter has no verdict.
func (m *middleware) answerError(w http.ResponseWriter, q *request, err error) {
	var value *ValueError
	switch {
	case errors.As(err, &value):
		status := value.Status
		if status < 400 || status > 599 { // from a user's Value; net/http panics below 100 and above 999
			status = http.StatusBadRequest
		}
		problem{Title: http.StatusText(status), Status: status, Detail: value.Source + ": " + value.Reason}.write(w)
	case q.in.Context().Err() != nil:
		// The client hung up, or a deadline of an outer middleware has passed.
		v := limiter.Verdict{Degraded: err}
		v.RetryAfter = 500*time.Millisecond + rand.N(time.Second) // as for a failed store
		setRetryAfter(w.Header(), &v)
		m.answerFailed(w, q, v)
	default:
		if m.OnError != nil {
			m.OnError(q.in, err)
		}
		problem{Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError}.write(w)
	}
}

// violated lists the names of the policies by which v denies.
func (f *fields) violated(v *limiter.Verdict) []string {
	var names []string
	for _, s := range v.All() {
		if p := f.find(&s); s.RetryAfter > 0 && p != nil && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}
