package httplimit_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// onlyUnwraps is a ResponseWriter of an outer middleware with Unwrap, and with
// no other method of the inner writer.
type onlyUnwraps struct{ w http.ResponseWriter }

func (b onlyUnwraps) Header() http.Header         { return b.w.Header() }
func (b onlyUnwraps) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b onlyUnwraps) WriteHeader(status int)      { b.w.WriteHeader(status) }
func (b onlyUnwraps) Unwrap() http.ResponseWriter { return b.w }

// alsoFlushes is an onlyUnwraps with Flush.
type alsoFlushes struct{ onlyUnwraps }

func (a alsoFlushes) Flush() { a.w.(http.Flusher).Flush() }

// alsoHijacks is an onlyUnwraps with Hijack.
type alsoHijacks struct{ onlyUnwraps }

func (a alsoHijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return a.w.(http.Hijacker).Hijack()
}

func onePerDay(t *testing.T, change func(*httplimit.Config)) func(http.Handler) http.Handler {
	t.Helper()
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	require.NoError(t, err)
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: "order", Kind: "ip", Limits: counter.MustLimits("1/d")}}})
	require.NoError(t, err)
	cfg := httplimit.Config{Limiter: lim, Event: "order", Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{})}}
	change(&cfg)
	limit, err := httplimit.New(cfg)
	require.NoError(t, err)
	return limit
}

// A refund for a status that the client never sees would let him in for ever.
func TestRefundIfHearsWhatTheClientSees(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"flushed past the wrapper, then 500": func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusInternalServerError)
		},
		"hijacked past the wrapper": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_ = conn.Close()
		},
		"a status that net/http refuses, then 200": func(w http.ResponseWriter, _ *http.Request) {
			defer func() {
				_ = recover()
				w.WriteHeader(http.StatusOK)
			}()
			w.WriteHeader(99999)
		},
	} {
		t.Run(name, func(t *testing.T) {
			refundIf := func(cfg *httplimit.Config) {
				cfg.RefundIf = func(status int) bool { return status >= 500 || status == http.StatusOK && name[0] == 'h' }
			}
			for outer, wrap := range map[string]func(w http.ResponseWriter) http.ResponseWriter{
				"only unwraps":  func(w http.ResponseWriter) http.ResponseWriter { return onlyUnwraps{w} },
				"also flushes":  func(w http.ResponseWriter) http.ResponseWriter { return alsoFlushes{onlyUnwraps{w}} },
				"also hijacks":  func(w http.ResponseWriter) http.ResponseWriter { return alsoHijacks{onlyUnwraps{w}} },
				"wrapped twice": func(w http.ResponseWriter) http.ResponseWriter { return onlyUnwraps{onlyUnwraps{w}} },
			} {
				inside := onePerDay(t, refundIf)(handler)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inside.ServeHTTP(wrap(w), r) }))
				for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
					answer, err := server.Client().Get(server.URL)
					require.NoError(t, err)
					require.NoError(t, answer.Body.Close())
					require.Equal(t, want, answer.StatusCode, outer)
				}
				server.Close()
			}
		})
	}
}

// Whose Value fails by itself is told why.
func TestOnErrorHearsOfAValueThatFails(t *testing.T) {
	broken := errors.New("no such tenant table")
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	require.NoError(t, err)
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: "order", Kind: "tenant", Limits: counter.MustLimits("1/d")}}})
	require.NoError(t, err)
	var heard []error
	limit, err := httplimit.New(httplimit.Config{
		Limiter:  lim,
		Event:    "order",
		Features: []httplimit.Source{httplimit.NewSource("tenant", func(*http.Request) (string, error) { return "", broken })},
		OnError:  func(_ *http.Request, err error) { heard = append(heard, err) },
	})
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	limit(http.NotFoundHandler()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusInternalServerError, answer.Code)
	require.NotContains(t, answer.Body.String(), "tenant")
	require.Equal(t, []error{broken}, heard)
}
