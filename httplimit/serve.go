package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/spent"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// serve is the way of a request: its features, the Limiter's verdict, the answer.
func (m *middleware) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if m.WritesOnly && reads(r.Method) || m.Applies != nil && !m.Applies(r) {
		next.ServeHTTP(w, r)
		return
	}
	var few [4]feature.Feature
	var one [1]counter.State
	var v limiter.Verdict
	var of *fields
	var states []counter.State
	f := visit{m: m, w: w, r: r, n: 1}
	defer f.leave(&v)
	features := append(few[:0], make([]feature.Feature, len(m.Features))...)
	err := f.find(features)
	if err == nil {
		features, err = f.decide(&v, features)
	}
	if err == nil {
		of, states = f.states(&v, one[:0], features)
	}
	if err == nil && v.Allowed && f.invalid == nil {
		f.admit(next, &v, of, states)
	} else {
		f.reject(&v, of, states, err)
	}
}

// reads is true for safe methods: RFC 9110, section 9.2.1.
func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions || method == http.MethodTrace
}

// visit is a request on its way through a middleware. Its features and verdict are
// arguments: in a struct they would be allocations. For one goroutine.
type visit struct {
	m       *middleware
	w       http.ResponseWriter
	r       *http.Request
	q       *request      // nil: no Value was called
	n       int64         // the cost; 1 until it is found
	later   []int         // indices of Sources that need the body, which is not read yet; len(Features) is the cost
	invalid *ValueError   // the reason why the request is not the handler's; nil: it is
	spent   time.Duration // of the time for a decision: a Peek without an answer of the store took so long
}

// leave ends the visit.
func (f *visit) leave(v *limiter.Verdict) {
	f.m.Limiter.Keep(v)
	if f.q != nil {
		f.q.release()
	}
}

// find finds the feature of each Source, and the cost. What needs the body stays
// unknown if there is one. An error is the server's.
func (f *visit) find(features []feature.Feature) error {
	for i := range f.m.Features {
		if source := &f.m.Features[i]; source.client != nil {
			features[i] = source.ofClient(f.r)
		} else if err := f.read(features, i); err != nil {
			return err
		}
	}
	if f.m.Cost == nil {
		return nil
	}
	return f.read(features, len(features))
}

// read finds the feature of Source i, or the cost of a valid request. An error that
// blames the client makes the request invalid, and the feature is missing.
func (f *visit) read(features []feature.Feature, i int) (err error) {
	m, q := f.m, f.request()
	var found feature.Feature
	n := f.n
	q.asked = false
	if i < len(m.Features) {
		found, err = m.Features[i].find(q)
	} else if f.invalid == nil {
		n, err = m.cost(q)
	}
	if q.asked && err == nil {
		err = q.err // FormValue drops the error: the feature is not missing
	}
	switch {
	case q.asked && q.sealed && !q.known:
		f.later = append(f.later, i)
		if i < len(m.Features) {
			features[i] = feature.Unknown(m.Features[i].kind)
		}
		return nil
	case err != nil:
		value := valueError(err)
		if value == nil || value.status() >= 500 {
			return err
		}
		found, n, f.invalid = feature.Feature{}, f.n, cmp.Or(f.invalid, value)
	}
	if i < len(m.Features) {
		features[i] = found
	}
	f.n = n
	return nil
}

// request returns f.q, which it makes with a body that is sealed.
func (f *visit) request() *request {
	if f.q == nil {
		f.q = newRequest(f.r, f.m.MaxBody)
		f.q.w, f.q.all, f.q.sealed = f.w, &f.m.bodies, hasBody(f.r)
	}
	return f.q
}

// cost calls Config.Cost.
func (m *middleware) cost(q *request) (n int64, err error) {
	_, err = q.value(func(r *http.Request) (_ string, err error) {
		n, err = m.Cost(r)
		return "", err
	})
	switch {
	case valueError(err) != nil:
		return 0, err
	case err != nil:
		return 0, &ValueError{http.StatusBadRequest, "cost", "the cost of this request is not known", err}
	case n < 1 || n > counter.MaxCount:
		return 0, badRequest("cost", fmt.Sprintf("the cost of this request must be 1 to %d", int64(counter.MaxCount)))
	}
	return n, nil
}

// decide asks the Limiter about the features, and returns the features that it was asked
// about. An error is the server's, or of the context.
//
// An invalid request is decided by its other features: the verdict counts a hit under
// the rules that can be asked, else bad requests would cost no one a hit.
//
// A body is read only if the rules without need of a body would admit the request: a
// client over its limit sends bodies in vain. Peek counts nothing, and an admission
// by Peek decides nothing: the rules are asked again, all together, when the body is
// read.
//
// A store that has not answered Peek in time is not waited for again, unless the body
// took longer than Peek: the store may have come back meanwhile.
func (f *visit) decide(v *limiter.Verdict, features []feature.Feature) ([]feature.Feature, error) {
	if len(f.later) == 0 {
		return f.allow(v, features)
	}
	began := time.Now()
	if f.invalid == nil {
		var err error
		if *v, err = f.peek(f.n, features); err != nil {
			return nil, err
		}
		if v.Degraded != nil {
			f.spent = time.Since(began)
		}
	}
	if f.invalid != nil || !v.Allowed {
		// Allow denies by itself: it begins bans, and Observe hears of it.
		if asked, err := f.allow(v, features); err != nil || f.invalid != nil || !v.Allowed {
			return asked, err
		}
		// A place has become free since Peek. If the store fails, the hit stays.
		_ = f.m.Limiter.Refund(context.WithoutCancel(f.r.Context()), v)
	}
	f.q.sealed = false
	began = time.Now()
	for _, i := range f.later {
		if err := f.read(features, i); err != nil {
			return nil, err
		}
	}
	if time.Since(began) > f.spent {
		f.spent = 0
	}
	return f.allow(v, features)
}

// allow asks the Limiter. A rule that denies since a feature is missing makes the
// request invalid, and is left out.
func (f *visit) allow(v *limiter.Verdict, features []feature.Feature) (_ []feature.Feature, err error) {
	for {
		if f.m.refunds.Load() {
			*v, err = f.m.Limiter.AllowOpen(f.context(), f.m.Event, f.n, features...)
		} else {
			*v, err = f.m.Limiter.AllowN(f.context(), f.m.Event, f.n, features...)
		}
		if v.Missing == "" {
			return features, err
		}
		f.invalid = cmp.Or(f.invalid, badRequest(v.Missing, "is required"))
		features = append(features, feature.Unknown(v.Missing))
	}
}

// peek asks the Limiter about n hits, and counts nothing.
func (f *visit) peek(n int64, features []feature.Feature) (limiter.Verdict, error) {
	return f.m.Limiter.Peek(f.context(), f.m.Event, n, features...)
}

// context returns the context of a decision: net/http cancels that of the request when a
// body breaks off.
func (f *visit) context() context.Context {
	ctx := f.r.Context()
	if f.invalid != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if f.spent > 0 {
		ctx = spent.Context{Context: ctx, Time: f.spent}
	}
	return ctx
}

// states returns the states of v, an answer about the features, and the fields that name
// their limits; room is for a single state.
//
// After an admission that leaves a limit no room, they are of a Peek. An admission knows
// when the window of a limit is empty, and only Peek knows when the next place is free: a
// client that waits for an empty window would lose all places before. A window with the
// hits of v alone is full until it is empty.
func (f *visit) states(v *limiter.Verdict, room []counter.State, features []feature.Feature) (of *fields, states []counter.State) {
	m, now := f.m, f.m.fieldsNow()
	if v.Allowed && !m.tells {
		return now, nil
	}
	states = now.states(v, room)
	of = now.of(m, states)
	if !v.Allowed || v.Remaining > 0 || v.Degraded != nil || !slices.ContainsFunc(states, func(s counter.State) bool {
		p := of.find(&s)
		return s.Remaining == 0 && s.Limit.Max > f.n && p != nil && p.shown
	}) {
		return of, states
	}
	next, err := f.peek(1, features)
	if err != nil || next.Degraded != nil {
		return of, states
	}
	states = now.states(&next, room)
	return now.of(m, states), states
}

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
