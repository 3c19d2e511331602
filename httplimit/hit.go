package httplimit

import (
	"context"
	"fmt"
	"net/http"

	"github.com/abacus-go/abacus/limiter"
)

// hit is a request that a middleware has decided about, for what runs inside.
type hit struct {
	m       *middleware
	verdict limiter.Verdict
	outer   *hit // of a middleware around this one
}

type hitKey struct{}

func newHit(m *middleware, r *http.Request, v limiter.Verdict) *hit {
	outer, _ := r.Context().Value(hitKey{}).(*hit)
	return &hit{m, v, outer}
}

// request is q for a handler that may ask about h.
func (h *hit) request(q *request) *http.Request {
	return q.nextWith(context.WithValue(q.in.Context(), hitKey{}, h))
}

// find is the innermost hit of an event.
func find(ctx context.Context, event string) *hit {
	h, _ := ctx.Value(hitKey{}).(*hit)
	for h != nil && h.m.Event != event {
		h = h.outer
	}
	return h
}

// VerdictOf is what a middleware has decided about the request that ctx belongs
// to, for handlers inside of it and for Config.Denied. The zero Verdict, which
// denies, and false if no middleware for the event was asked.
func VerdictOf(ctx context.Context, event string) (limiter.Verdict, bool) {
	if h := find(ctx, event); h != nil {
		return h.verdict, true
	}
	return limiter.Verdict{}, false
}

// Refund gives back the hit that the request which ctx belongs to was counted
// as, under all rules of the event: a handler calls it when the event came to
// nothing. Call it before the answer is written, and the client's next request
// finds it done. Twice is once. An error is the store's, or that no middleware
// for the event was asked. It does not stop if the client hangs up.
func Refund(ctx context.Context, event string) error {
	h := find(ctx, event)
	if h == nil {
		return fmt.Errorf("httplimit: refund: no middleware for event %q around this handler", event)
	}
	v := h.verdict // all copies are refunded once
	return h.m.Limiter.Refund(context.WithoutCancel(ctx), &v)
}
