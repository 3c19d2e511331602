package httplimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// hit is the verdict of a middleware on a request, for the handlers inside. The hit is
// their context, rather than a value in a context: an allocation less.
type hit struct {
	context.Context // of the request, and of outer middlewares
	m               *middleware
	verdict         limiter.Verdict
	problem         *Problem // the default answer; nil: the request was admitted
	settled         bool     // RefundIf was asked, or is not to be asked any more; for one goroutine at a time, like a ResponseWriter
}

type hitKey struct{}

func (h *hit) Value(key any) any {
	if key == (hitKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// find returns the innermost hit of ctx with the property; nil if there is none.
func find(ctx context.Context, has func(*hit) bool) *hit {
	h, _ := ctx.Value(hitKey{}).(*hit)
	for h != nil && !has(h) {
		h, _ = h.Context.Value(hitKey{}).(*hit)
	}
	return h
}

// VerdictOf is the verdict of a middleware on the request of ctx, for Config.Denied,
// Failed and Invalid, and for handlers inside of a middleware with
// Config.VerdictInContext or RefundIf. The zero Verdict, which denies, and false if
// there is no such middleware for the event, or it was not asked.
func VerdictOf(ctx context.Context, event string) (limiter.Verdict, bool) {
	if h := find(ctx, func(h *hit) bool { return h.m.Event == event }); h != nil {
		return h.verdict, true
	}
	return limiter.Verdict{}, false
}

// Refund gives back the hit of the request of ctx, under all rules of the
// event: a handler calls Refund when the event came to nothing. After a Refund
// before the answer, the client's next request finds the hit given back. A
// second Refund has no effect. An error is the store's, or means that no
// middleware for the event with Config.VerdictInContext or RefundIf was asked.
// Refund does not stop if the client hangs up.
func Refund(ctx context.Context, event string) error {
	h := find(ctx, func(h *hit) bool { return h.m.Event == event })
	if h == nil {
		return fmt.Errorf("httplimit: refund: no middleware for event %q around this handler has VerdictInContext or RefundIf", event)
	}
	h.m.refunds.Store(true)
	return h.refund(ctx)
}

// refund gives the hit back. All copies of the verdict are refunded once.
func (h *hit) refund(ctx context.Context) error {
	v := h.verdict
	return h.m.Limiter.Refund(context.WithoutCancel(ctx), &v)
}

// Settle has used hits counted instead of the Cost of the request of ctx, under all
// rules of the event, once: see [limiter.Limiter.Settle]. The Verdict returned says how
// much is left. An error is the store's, or that of [Refund] for a context without a hit.
// Settle does not stop if the client hangs up.
func Settle(ctx context.Context, event string, used int64) (limiter.Verdict, error) {
	h := find(ctx, func(h *hit) bool { return h.m.Event == event })
	if h == nil {
		return limiter.Verdict{}, fmt.Errorf("httplimit: settle: no middleware for event %q around this handler has VerdictInContext or RefundIf", event)
	}
	h.m.refunds.Store(true)
	v := h.verdict
	err := h.m.Limiter.Settle(context.WithoutCancel(ctx), &v, used)
	return v, err
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

// removeFiles removes the temporary files of a form that was parsed in a copy:
// net/http's server removes the files of its own request only. To be called for the
// request of a handler when the handler has returned. The form of a copy that a
// handler makes is out of reach.
func removeFiles(c, original *http.Request) {
	if c.MultipartForm != nil && c.MultipartForm != original.MultipartForm {
		_ = c.MultipartForm.RemoveAll() // as the server: there is nobody to tell
	}
}

// serve runs the handler, and calls Config.RefundIf at most once, with the status
// of the answer and before the answer goes out, so that the client's next request
// finds the hit given back. h may be nil.
//
// RefundIf hears of answers through the writer of the handler only. A handler that
// returns without an answer is no 200 here: frameworks write the answer through
// another writer, or later. An answer through the writer after the return, as of
// echo's error handler, is heard; an answer after a panic is not.
func (h *hit) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if h == nil || h.m.RefundIf == nil {
		next.ServeHTTP(w, r)
		return
	}
	returned := false
	defer func() { h.settled = h.settled || !returned }()
	next.ServeHTTP(httpsnoop.Wrap(whole(w), h.hooks()), r)
	returned = true
}

// settle refunds the hit if RefundIf returns true for the status. Only the first
// call counts: the first status is the answer's.
func (h *hit) settle(status int) {
	if h.settled {
		return
	}
	h.settled = true
	if h.m.RefundIf(status) {
		_ = h.refund(h) // if the store fails, the hit stays until its bucket expires
	} else {
		h.m.Limiter.Keep(&h.verdict)
	}
}

// hooks settle the hit at the latest moment at which nothing of the answer has gone out.
func (h *hit) hooks() httpsnoop.Hooks {
	return httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				// Other statuses precede the answer, or are refused by net/http.
				if 200 <= status && status <= 999 || status == http.StatusSwitchingProtocols {
					h.settle(status)
				}
				next(status)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { h.settle(http.StatusOK); return next(b) }
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { h.settle(http.StatusOK); return next(s) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) {
				if !h.settled {
					// An empty source, or a source that fails at once, sends nothing: the handler
					// can still choose the status. Without an earlier status the kernel does not
					// send a file by itself then.
					from = settling{from, h}
				}
				return next(from)
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { h.settle(http.StatusOK); next() }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { h.settle(http.StatusOK); return next() }
		},
		Hijack: onHijack(func() { // else the handler can still answer
			h.settled = true             // nobody here sees the status on the connection
			h.m.Limiter.Keep(&h.verdict) // the handler may talk for hours
		}),
	}
}

// onHijack calls taken when a handler has taken over the connection.
func onHijack(taken func()) func(httpsnoop.HijackFunc) httpsnoop.HijackFunc {
	return func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
		return func() (net.Conn, *bufio.ReadWriter, error) {
			conn, buf, err := next()
			if err == nil {
				taken()
			}
			return conn, buf, err
		}
	}
}

// settling settles the hit before its first bytes are written.
type settling struct {
	io.Reader
	hit *hit
}

func (s settling) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 {
		s.hit.settle(http.StatusOK)
	}
	return n, err
}

// whole is w with Flush and Hijack, if only an inner writer of w has them: a
// http.ResponseController would find the inner methods, past all hooks.
func whole(w http.ResponseWriter) http.ResponseWriter {
	flushes, hijacks := abilities(w)
	for inner := w; ; {
		wrapper, wraps := inner.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return w
		}
		inner = wrapper.Unwrap()
		if f, h := abilities(inner); f && !flushes || h && !hijacks {
			return unwrapped{w}
		}
	}
}

// abilities tells which methods w itself has for a http.ResponseController.
func abilities(w http.ResponseWriter) (flushes, hijacks bool) {
	_, flushes = w.(http.Flusher)
	_, reports := w.(interface{ FlushError() error })
	_, hijacks = w.(http.Hijacker)
	return flushes || reports, hijacks
}

type unwrapped struct{ http.ResponseWriter }

func (u unwrapped) Flush()            { _ = u.FlushError() }
func (u unwrapped) FlushError() error { return http.NewResponseController(u.ResponseWriter).Flush() }
func (u unwrapped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(u.ResponseWriter).Hijack()
}

func (u unwrapped) Unwrap() http.ResponseWriter { return u.ResponseWriter }
