package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// serve runs the handler, and calls Config.RefundIf at most once, with the status
// of the answer and before the answer goes out, so that the client's next request
// finds the hit given back.
//
// RefundIf hears of answers through the writer of the handler only. A handler that
// returns without an answer is no 200 here: frameworks write the answer through
// another writer, or later. An answer through the writer after the return, as of
// echo's error handler, is heard; an answer after a panic is not.
func (h *hit) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if h.m.RefundIf == nil {
		next.ServeHTTP(w, r)
		return
	}
	a, returned := &asking{hit: h}, false
	defer func() { a.done = a.done || !returned }()
	next.ServeHTTP(httpsnoop.Wrap(whole(w), a.hooks()), r)
	returned = true
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
	switch w.(type) {
	case http.Flusher, interface{ FlushError() error }:
		flushes = true
	}
	_, hijacks = w.(http.Hijacker)
	return flushes, hijacks
}

type unwrapped struct{ http.ResponseWriter }

func (u unwrapped) Flush()            { _ = u.FlushError() }
func (u unwrapped) FlushError() error { return http.NewResponseController(u.ResponseWriter).Flush() }
func (u unwrapped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(u.ResponseWriter).Hijack()
}

func (u unwrapped) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// asking is a hit whose handler runs. For one goroutine at a time, like a
// ResponseWriter.
type asking struct {
	hit  *hit
	done bool
}

// ask refunds the hit if RefundIf returns true for the status. Only the first
// call counts: the first status is the answer's.
func (a *asking) ask(status int) {
	if a.done {
		return
	}
	a.done = true
	v := a.hit.verdict
	if a.hit.m.RefundIf(status) {
		// If the store fails, the hit stays until its bucket expires.
		_ = a.hit.m.Limiter.Refund(context.WithoutCancel(a.hit), &v)
	} else {
		a.hit.m.Limiter.Keep(&v)
	}
}

// hooks ask at the latest moment at which nothing of the answer has gone out.
func (a *asking) hooks() httpsnoop.Hooks {
	return httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				// Other statuses precede the answer, or are refused by net/http.
				if 200 <= status && status <= 999 || status == http.StatusSwitchingProtocols {
					a.ask(status)
				}
				next(status)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { a.ask(http.StatusOK); return next(b) }
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { a.ask(http.StatusOK); return next(s) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) {
				if !a.done {
					// An empty source, or a source that fails at once, sends nothing: the handler
					// can still choose the status. Without an earlier status the kernel does not
					// send a file by itself then.
					from = source{from, a}
				}
				return next(from)
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { a.ask(http.StatusOK); next() }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { a.ask(http.StatusOK); return next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, buf, err := next()
				if err == nil { // else the handler can still answer
					a.done = true // nobody here sees the status on the connection
					v := a.hit.verdict
					a.hit.m.Limiter.Keep(&v) // the handler may talk for hours
				}
				return conn, buf, err
			}
		},
	}
}

// source asks before its first bytes are written.
type source struct {
	io.Reader
	asking *asking
}

func (s source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 {
		s.asking.ask(http.StatusOK)
	}
	return n, err
}
