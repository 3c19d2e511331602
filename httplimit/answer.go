package httplimit

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// admit has next answer a request that v admits.
func (f *visit) admit(next http.Handler, v *limiter.Verdict, of *fields, states []counter.State) {
	m := f.m
	if m.tells {
		l := make(lines, 0, 2)
		of.write(&l, f.w.Header(), &m.Config, v, states)
	}
	var h *hit
	var ctx context.Context
	if m.VerdictInContext || m.RefundIf != nil {
		h = &hit{Context: f.r.Context(), m: m, verdict: *v}
		ctx = h
	}
	inner := f.next(ctx)
	defer removeFiles(inner, f.r)
	h.serve(next, f.w, inner)
}

// next returns the request for a handler, as Values have left it: the request itself,
// or a copy if ctx is not nil or the body was read.
func (f *visit) next(ctx context.Context) *http.Request {
	switch {
	case f.q != nil:
		return f.q.next(ctx)
	case ctx != nil:
		return f.r.WithContext(ctx)
	}
	return f.r
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
