package httplimit

import (
	"context"
	"fmt"

	"github.com/abacus-go/abacus/limiter"
)

// hit is a request that a middleware has decided about. It is the context of
// what runs inside, rather than a value of one: an allocation less.
type hit struct {
	context.Context // of the request, and of middlewares around this one
	m               *middleware
	verdict         limiter.Verdict
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
