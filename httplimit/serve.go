package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/spent"
	"github.com/abacus-go/abacus/limiter"
)

// serve is the way of a request: its features, the Limiter's verdict, the answer.
func (m *middleware) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if m.WritesOnly && reads(r.Method) || m.Applies != nil && !m.Applies(r) {
		next.ServeHTTP(w, r)
		return
	}
	var few [4]feature.Feature
	var room [4]counter.State
	var v limiter.Verdict
	var of *fields
	var states []counter.State
	f := visit{m: m, w: w, r: r, n: 1}
	defer f.leave(&v)
	features := append(few[:0], make([]feature.Feature, len(m.Features))...)
	err := f.find(features)
	if err == nil {
		if features, err = f.decide(&v, features); err == nil {
			of, states = f.states(&v, room[:0], features)
		}
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
	q       *request          // nil: no Value was called
	n       int64             // the cost; 1 until it is found
	later   []int             // indices of Sources that need the body, which is not read yet; len(Features) is the cost
	lacks   map[string]string // by kind, the part of the request without text, for which the feature is missing
	invalid *ValueError       // the reason why the request is not the handler's; nil: it is
	spent   time.Duration     // of the time for a decision: a Peek without an answer of the store took so long
	until   time.Time         // the end of Config.MaxWait; zero: the request has not waited
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
			features[i] = source.of(source.client.Of(f.r))
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
	q.asked, q.lacks = false, ""
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
		if kind := m.Features[i].kind; q.lacks != "" && q.lacks != kind {
			if f.lacks == nil {
				f.lacks = map[string]string{}
			}
			f.lacks[kind] = cmp.Or(f.lacks[kind], q.lacks)
		}
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
		if err := f.ask(v, true, f.n, features); err != nil {
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
		err = f.ask(v, false, f.n, features)
		if v.Missing == "" {
			return features, err
		}
		f.m.lacks(v.Missing, f.r)
		f.invalid = cmp.Or(f.invalid, badRequest(cmp.Or(f.lacks[v.Missing], v.Missing), "is required"))
		features = append(features, feature.Unknown(v.Missing))
	}
}

// lacks logs that r, which is refused for want of a feature of the kind, lacks the client's
// address: all clients of such a server may be refused, for a fault of its configuration. One
// line a minute at most, and of RemoteAddr its beginning: an outer middleware may have put a
// client's text there.
func (m *middleware) lacks(kind string, r *http.Request) {
	now, last := time.Now(), m.told.Load()
	if !slices.ContainsFunc(m.Features, func(s Source) bool { return s.client != nil && s.kind == kind }) ||
		last != nil && now.Sub(*last) < time.Minute || !m.told.CompareAndSwap(last, &now) {
		return
	}
	m.Limiter.Logger().Warn("httplimit: a request is refused, since its client has no address", "event", m.Event, "RemoteAddr", fmt.Sprintf("%.40s", r.RemoteAddr),
		"want", "httplimit.New: behind a proxy that appends to X-Forwarded-For, with IP(ClientIP{Hops: 1}); otherwise with NewSource and a Value of your own")
}

// ask asks the Limiter about n hits. A Peek counts nothing, and hits that may be given
// back are left open.
func (f *visit) ask(v *limiter.Verdict, peek bool, n int64, features []feature.Feature) (err error) {
	switch m, ctx := f.m, f.context(); {
	case peek:
		*v, err = m.Limiter.Peek(ctx, m.Event, n, features...)
	case m.MaxWait > 0 && f.waits(ctx, v, n, features, &err):
	case m.refunds.Load():
		*v, err = m.Limiter.AllowOpen(ctx, m.Event, n, features...)
	default:
		*v, err = m.Limiter.AllowN(ctx, m.Event, n, features...)
	}
	return err
}

// waits asks the Limiter, has a request over its limit wait for its turn, and reports
// whether v and err are the answer. They are not if too many requests wait, or if the
// queue has given up: its last answer may be old, and a place may be free again.
func (f *visit) waits(ctx context.Context, v *limiter.Verdict, n int64, features []feature.Feature, err *error) bool {
	m, wait := f.m, f.m.Limiter.WaitN
	defer m.waiting.Add(-1)
	if m.waiting.Add(1) > int64(m.MaxWaiting) {
		return false
	}
	if f.until.IsZero() {
		f.until = time.Now().Add(m.MaxWait)
	}
	if m.refunds.Load() {
		wait = m.Limiter.WaitOpen
	}
	waiting, cancel := context.WithDeadline(ctx, f.until)
	defer cancel()
	kept := append([]feature.Feature(nil), features...) // a call in a queue keeps them, others leave them on the stack
	*v, *err = wait(spent.Turn{Context: waiting}, m.Event, n, kept...)
	switch {
	case errors.Is(*err, limiter.ErrNever):
		*err = nil // v says so
	case errors.Is(*err, context.DeadlineExceeded), errors.Is(*err, limiter.ErrQueueFull):
		*v, *err = m.Limiter.Peek(ctx, m.Event, n, features...)
		return *err != nil || !v.Allowed
	}
	return true
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
// their limits; room is for the states.
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
	var next limiter.Verdict
	if err := f.ask(&next, true, 1, features); err != nil || next.Degraded != nil {
		return of, states
	}
	states = now.states(&next, room)
	return now.of(m, states), states
}
