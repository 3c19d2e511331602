package httplimit

import (
	"bytes"
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

// text is p in JSON.
func (p problem) text() []byte {
	var text bytes.Buffer
	_ = json.NewEncoder(&text).Encode(p) // strings and a number: never an error
	return text.Bytes()
}

// answer answers with p.
func (h *hit) answer(w http.ResponseWriter, p problem) { h.write(w, p.Status, p.text()) }

// write answers with the text of a problem.
func (h *hit) write(w http.ResponseWriter, status int, text []byte) {
	header := w.Header()
	header["Content-Type"] = h.line(typeLine, "application/problem+json")
	header["Cache-Control"] = h.line(cacheLine, "no-store") // for this client and moment only
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error is a client that hung up
}

// exceeded is the answer to a request that violates the named policies.
func exceeded(refuse Refusal, names []string) problem {
	p := problem{
		Type:     quotaExceeded,
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: names,
	}
	if refuse == RefuseForbidden {
		p.Status = http.StatusForbidden
	}
	return p
}

// answerDenied answers a denied request.
func (h *hit) answerDenied(w http.ResponseWriter) {
	m, v := h.m, &h.verdict
	switch v.Outcome() {
	case limiter.OutcomeMissing:
		reason := "is missing"
		if m.Refuse != RefuseSilently {
			reason += ", and the service limits by it"
		}
		h.answerError(w, badRequest(v.Missing, reason))
		return
	case limiter.OutcomeFailedClosed:
		h.answerFailed(w)
		return
	}
	switch {
	case m.Denied != nil:
		m.Denied.ServeHTTP(w, h.request.nextWith(h))
	case m.Refuse == RefuseSilently:
		w.WriteHeader(http.StatusOK)
	case m.fields.single:
		h.write(w, exceeded(m.Refuse, nil).Status, m.fields.policies[0].exceeded)
	default:
		h.answer(w, exceeded(m.Refuse, m.fields.violated(v)))
	}
}

// answerFailed answers a request that was denied because the store failed.
func (h *hit) answerFailed(w http.ResponseWriter) {
	if h.m.Failed != nil {
		h.m.Failed.ServeHTTP(w, h.request.nextWith(h))
		return
	}
	p := problem{Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable}
	if h.m.Refuse != RefuseSilently {
		p.Detail = "The service cannot tell at the moment whether this request is within its limits."
	}
	h.answer(w, p)
}

// answerError answers a request for which the Limiter has no verdict.
func (h *hit) answerError(w http.ResponseWriter, err error) {
	var value *ValueError
	switch {
	case errors.As(err, &value):
		status := value.Status
		if status < 400 || status > 599 { // from a user's Value; net/http panics below 100 and above 999
			status = http.StatusBadRequest
		}
		h.answer(w, problem{Title: http.StatusText(status), Status: status, Detail: value.Source + ": " + value.Reason})
	case h.Err() != nil:
		// The client hung up, or a deadline of an outer middleware has passed.
		h.verdict = limiter.Verdict{Degraded: err}
		h.verdict.RetryAfter = 500*time.Millisecond + rand.N(time.Second) // as for a failed store
		h.setRetryAfter(w.Header())
		h.answerFailed(w)
	default:
		if h.m.OnError != nil {
			h.m.OnError(h.request.in, err)
		}
		h.answer(w, problem{Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError})
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
