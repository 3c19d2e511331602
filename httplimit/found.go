package httplimit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/spent"
	"github.com/abacus-go/abacus/limiter"
)

// found is a request whose features are looked for. The features themselves are
// arguments: a slice in a struct would be an allocation. For one goroutine.
type found struct {
	m       *middleware
	w       http.ResponseWriter
	r       *http.Request
	q       *request        // nil: no Value was called
	n       int64           // the cost; 1 until it is found
	later   []int           // indices of Sources that need the body, which is not read yet; len(Features) is the cost
	invalid *ValueError     // the reason why the request is not the handler's; nil: it is
	states  []counter.State // of an admission that leaves a limit no room; nil: the verdict has them
	spent   time.Duration   // of the time for a decision: a Peek without an answer of the store took so long
}

// decide asks the Limiter about the features, appended to none. An error is the
// server's, or of the context.
//
// An invalid request is decided by its other features: the verdict counts a hit under
// the rules that can be asked, else bad requests would cost nobody a hit. An
// unreadable feature is missing then.
//
// A body is read only if the rules without need of a body would admit the request: a
// client over its limit sends bodies in vain. Peek counts nothing, and an admission
// by Peek decides nothing: the rules are asked again, all together, when the body is
// read.
//
// A store that has not answered Peek in time is not waited for again, unless the body
// took longer than Peek: the store may have come back meanwhile.
func (f *found) decide(none []feature.Feature) (v limiter.Verdict, err error) {
	known, err := f.find(none)
	if err != nil {
		return v, err
	}
	if len(f.later) == 0 {
		return f.allow(known)
	}
	m, ctx, features := f.m, f.r.Context(), known
	for _, i := range f.later {
		if i < len(m.Features) {
			features = append(features, feature.Unknown(m.Features[i].kind))
		}
	}
	if f.invalid == nil {
		began := time.Now()
		if v, err = m.Limiter.Peek(ctx, m.Event, f.n, features...); err != nil {
			return v, err
		}
		if v.Degraded != nil {
			f.spent = time.Since(began)
		}
	}
	if f.invalid != nil || !v.Allowed {
		// Allow denies by itself: it begins bans, and Observe hears of it.
		if v, err = f.allow(features); err != nil || f.invalid != nil || !v.Allowed {
			return v, err
		}
		// A place has become free since Peek. If the store fails, the hit stays.
		_ = m.Limiter.Refund(context.WithoutCancel(ctx), &v)
	}
	f.q.sealed = false
	began := time.Now()
	for _, i := range f.later {
		if known, err = f.source(known, i); err != nil {
			return limiter.Verdict{}, err
		}
	}
	if time.Since(began) > f.spent {
		f.spent = 0
	}
	return f.allow(known)
}

// allow asks the Limiter. A rule that denies since a feature is missing makes the
// request invalid, and is left out.
func (f *found) allow(features []feature.Feature) (limiter.Verdict, error) {
	for {
		ctx := f.r.Context()
		if f.invalid != nil { // net/http cancels the context when a body breaks off
			ctx = context.WithoutCancel(ctx)
		}
		if f.spent > 0 {
			ctx = spent.Context{Context: ctx, Time: f.spent}
		}
		var v limiter.Verdict
		var err error
		if f.m.refunds.Load() {
			v, err = f.m.Limiter.AllowOpen(ctx, f.m.Event, f.n, features...)
		} else {
			v, err = f.m.Limiter.AllowN(ctx, f.m.Event, f.n, features...)
		}
		if v.Missing == "" {
			if err == nil && v.Allowed && v.Remaining == 0 {
				f.states = f.full(ctx, &v, features)
			}
			return v, err
		}
		if f.invalid == nil {
			f.invalid = badRequest(v.Missing, "is required")
		}
		features = append(features, feature.Unknown(v.Missing))
	}
}

// full are the states after an admission that leaves a limit no room. An admission
// knows when the window of a limit is empty, and only Peek knows when the next place is
// free: a client that waits for an empty window would lose all places before. A window
// with the hits of v alone is full until it is empty.
func (f *found) full(ctx context.Context, v *limiter.Verdict, features []feature.Feature) []counter.State {
	m := f.m
	if m.Refuse == RefuseSilently || m.NoHeaders && !m.LegacyHeaders || v.Degraded != nil {
		return nil
	}
	states := v.All()
	fields := m.fieldsOf(states)
	if !slices.ContainsFunc(states, func(s counter.State) bool {
		p := fields.find(s.Limit, s.Key.Feature)
		return s.Remaining == 0 && s.Limit.Max > f.n && p != nil && p.shown
	}) {
		return states
	}
	now, err := m.Limiter.Peek(ctx, m.Event, 1, features...)
	if err != nil || now.Degraded != nil {
		return states
	}
	return now.All()
}

// find appends all features that need no body, and all others if there is no body. An
// error is the server's.
func (f *found) find(features []feature.Feature) (_ []feature.Feature, err error) {
	m := f.m
	for i := range m.Features {
		if source := &m.Features[i]; source.client != nil {
			features = append(features, source.ofClient(f.r))
		} else if features, err = f.source(features, i); err != nil {
			return nil, err
		}
	}
	if m.Cost == nil {
		return features, nil
	}
	return f.source(features, len(m.Features))
}

// source appends the feature of Source i, or finds the cost of a valid request. A body
// that is sealed is left for later.
func (f *found) source(features []feature.Feature, i int) (_ []feature.Feature, err error) {
	m := f.m
	f.needRequest()
	f.q.asked = false
	var feature feature.Feature
	var n int64
	if i < len(m.Features) {
		feature, err = m.Features[i].find(f.q)
	} else if f.invalid == nil {
		n, err = m.cost(f.q)
	} else {
		return features, nil
	}
	if f.q.asked && err == nil {
		err = f.q.err // FormValue drops the error: the feature is not missing
	}
	switch {
	case f.q.asked && f.q.sealed && !f.q.known:
		f.later = append(f.later, i)
	case err != nil:
		return features, f.blame(err)
	case i < len(m.Features):
		features = append(features, feature)
	default:
		f.n = n
	}
	return features, nil
}

// needRequest makes f.q, with a body that is sealed, unless there is one.
func (f *found) needRequest() {
	if f.q == nil {
		f.q = newRequest(f.r, f.m.MaxBody)
		f.q.w, f.q.all, f.q.sealed = f.w, &f.m.bodies, hasBody(f.r)
	}
}

// receive reads the body of a request that is refused silently: an answer before the
// body would come without 100 Continue, and close the connection of a large body.
func (f *found) receive() {
	if !hasBody(f.r) {
		return
	}
	f.needRequest()
	f.q.sealed, f.q.refused = false, true
	if f.m.Denied == nil {
		f.q.discard()
	} else {
		_, _ = f.q.bytes() // the answer is the same
	}
}

// blame makes the request invalid by an error that blames the client, and returns any
// other error.
func (f *found) blame(err error) error {
	var value *ValueError
	if !errors.As(err, &value) || value.status() >= 500 {
		return err
	}
	if f.invalid == nil {
		f.invalid = value
	}
	return nil
}
