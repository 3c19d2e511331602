package httplimit

import (
	"context"
	"fmt"
	"net/http"

	"github.com/abacus-go/abacus/limiter"
)

// hit is a request with the verdict of a middleware. hit is itself the context
// of inner handlers, rather than a value in a context: an allocation less.
type hit struct {
	context.Context // of the request, and of outer middlewares
	m               *middleware
	verdict         limiter.Verdict
	invalid         *ValueError // why the request was not admitted, if the request is to blame
}

// innerRequest is the request of a handler inside of the middleware, with the hit
// that is its context, and the values of two fields of the answer: one allocation
// in place of three. A header of an answer that is kept, rather than cloned, keeps
// the request.
type innerRequest struct {
	hit     hit
	request http.Request
	values  [2]string // of RateLimit-Policy and RateLimit
}

// of is r for the handler, as Values have left r: q is nil if no Value was called.
// The caller removes the files of the result.
func (in *innerRequest) of(r *http.Request, q *request) *http.Request {
	if q != nil {
		q.nextIn(&in.request, &in.hit)
	} else {
		in.request = *r.WithContext(&in.hit)
	}
	return &in.request
}

type hitKey struct{}

func (h *hit) Value(key any) any {
	if key == (hitKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// find is the innermost hit of an event.
func find(ctx context.Context, event string) *hit {
	h, _ := ctx.Value(hitKey{}).(*hit)
	for h != nil && h.m.Event != event {
		h, _ = h.Context.Value(hitKey{}).(*hit)
	}
	return h
}

// VerdictOf is the verdict of a middleware on the request of ctx, for handlers
// inside of the middleware and for Config.Denied. The zero Verdict, which
// denies, and false if no middleware for the event was asked.
func VerdictOf(ctx context.Context, event string) (limiter.Verdict, bool) {
	if h := find(ctx, event); h != nil {
		return h.verdict, true
	}
	return limiter.Verdict{}, false
}

// Refund gives back the hit of the request of ctx, under all rules of the
// event: a handler calls Refund when the event came to nothing. After a Refund
// before the answer, the client's next request finds the hit given back. A
// second Refund has no effect. An error is the store's, or means that no
// middleware for the event was asked. Refund does not stop if the client hangs
// up.
func Refund(ctx context.Context, event string) error {
	h := find(ctx, event)
	if h == nil {
		return fmt.Errorf("httplimit: refund: no middleware for event %q around this handler", event)
	}
	h.m.refunds.Store(true)
	v := h.verdict // all copies are refunded once
	return h.m.Limiter.Refund(context.WithoutCancel(ctx), &v)
}
