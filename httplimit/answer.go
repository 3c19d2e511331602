package httplimit

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

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
	switch {
	case outcome == limiter.OutcomeFailedClosed:
		m.answerFailed(w, r, q, v)
	case m.Denied != nil:
		m.hand(m.Denied, w, r, q, v, nil)
	case m.Refuse == RefuseSilently:
		w.WriteHeader(http.StatusOK)
	default:
		writeProblem(&l, w, m.deniedStatus(), m.denial(states, v.Banned))
	}
}

// denial is the body of a denial by states. A body that names a single policy was
// written with the policies.
func (m *middleware) denial(states []counter.State, banned bool) string {
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
	switch {
	case only == nil:
		return m.deniedBy(fields.violated(states), banned).body()
	case banned:
		return only.ban
	}
	return only.denial
}

// answerFailed answers a request that was denied because the store failed.
func (m *middleware) answerFailed(w http.ResponseWriter, r *http.Request, q *request, v *limiter.Verdict) {
	if m.Failed != nil {
		m.hand(m.Failed, w, r, q, v, nil)
		return
	}
	m.failure(v).ServeHTTP(w, r)
}

// answerInvalid answers a request that the Limiter could not be asked about, and a
// request without a needed feature. Config.Invalid has a denying Verdict, even if
// the request was counted under other rules.
func (m *middleware) answerInvalid(w http.ResponseWriter, r *http.Request, q *request, e *ValueError) {
	if m.Invalid != nil {
		m.hand(m.Invalid, w, r, q, &limiter.Verdict{}, e)
		return
	}
	invalid(e).ServeHTTP(w, r)
}

// answerLater answers a request that could not be decided now.
func (m *middleware) answerLater(w http.ResponseWriter, r *http.Request, q *request, err error) {
	v := limiter.Verdict{Degraded: err}
	v.RetryAfter = 500*time.Millisecond + rand.N(time.Second) // as for a failed store
	setRetryAfter(w.Header(), &v)
	m.answerFailed(w, r, q, &v)
}

// answerError answers a request for which the Limiter has no verdict.
func (m *middleware) answerError(w http.ResponseWriter, r *http.Request, q *request, err error) {
	var value *ValueError
	switch {
	case errors.Is(err, errBodies):
		m.answerLater(w, r, q, err)
	case errors.As(err, &value):
		m.answerInvalid(w, r, q, value)
	case r.Context().Err() != nil:
		// The client hung up, or a deadline of an outer middleware has passed.
		m.answerLater(w, r, q, err)
	default:
		if m.OnError != nil {
			m.OnError(r, err)
		}
		Problem{Title: http.StatusText(http.StatusInternalServerError)}.ServeHTTP(w, r)
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
