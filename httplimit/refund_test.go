package httplimit_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// answering lists the ways of a handler to answer, and the status for RefundIf,
// before a byte of the answer is out; 0: RefundIf is not asked.
var answering = []struct {
	name   string
	status int
	answer func(w http.ResponseWriter, r *http.Request)
}{
	{"nothing", 0, func(http.ResponseWriter, *http.Request) {}},
	{"a status", 401, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }},
	{"a status and a body", 503, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }},
	{"two statuses", 404, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }},
	{"a body", 200, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("yes")); w.WriteHeader(500) }},
	{"a text", 200, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }},
	{"an empty body", 200, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }},
	{"a status, and late a body", 403, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403); _, _ = io.WriteString(w, "no") }},
	{"hints first", 409, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.WriteHeader(409)
	}},
	{"hints only", 0, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }},
	{"a flush", 200, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }},
	{"a controlled flush", 200, func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }},
	{"a flush after a status", 410, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410); w.(http.Flusher).Flush() }},
	{"a copy", 200, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, unhurried{strings.NewReader("yes")}) }},
	{"a long copy", 200, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, unhurried{strings.NewReader(strings.Repeat("yes", 100_000))})
	}},
	{"a copy that fails at once", 502, func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.Copy(w, iotest.ErrReader(errBroken)); errors.Is(err, errBroken) {
			w.WriteHeader(502)
		}
	}},
	{"a copy of nothing", 404, func(w http.ResponseWriter, _ *http.Request) {
		if n, err := io.Copy(w, iotest.DataErrReader(strings.NewReader(""))); n == 0 && err == nil {
			w.WriteHeader(404)
		}
	}},
	{"a copy that fails", 200, func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.Copy(w, unhurried{io.MultiReader(strings.NewReader("yes"), iotest.ErrReader(errBroken))})
		if errors.Is(err, errBroken) {
			w.WriteHeader(502)
		}
	}},
	{"a file", 200, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, r.Header.Get("File")) }},
	{"no file", 404, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, r.Header.Get("File")+"x") }},
	{"content", 200, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader(strings.Repeat("yes", 100_000)))
	}},
	{"a redirect", 302, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/there", http.StatusFound) }},
	{"a panic", 0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{"a panic after hints", 0, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		panic(http.ErrAbortHandler)
	}},
	{"a panic after a status", 204, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); panic(http.ErrAbortHandler) }},
	{"another protocol", 101, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Upgrade", "abacus")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(101)
	}},
	{"the connection", 0, func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_ = conn.Close()
		}
	}},
	{"the connection, then a status", 0, func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = conn.Close()
		}
		w.WriteHeader(200)
	}},
	{"the connection, controlled", 0, func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	}},
}

// TestRefundIfHearsOfEveryAnswer also holds that the answer itself is, by every
// byte, what the handler would have said without a middleware.
func TestRefundIfHearsOfEveryAnswer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txt")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("yes", 100_000)), 0o600))
	request := "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nFile: " + file + "\r\n\r\n"
	for _, row := range answering {
		t.Run(row.name, func(t *testing.T) {
			heard := make(chan int, 10)
			limits := "1/d" // each hit is given back
			if row.status == 0 {
				limits = "3/d" // each hit stays
			}
			s := newSite(t, newLimit(t, httplimit.Config{
				Limiter: newLimiter(t, newClock(), by("ip", limits)), Features: []httplimit.Source{byIP}, NoHeaders: true,
				RefundIf: func(status int) bool {
					select {
					case heard <- status:
					default: // too often
					}
					return true
				},
			})(http.HandlerFunc(row.answer)))
			s.Config.ErrorLog = log.New(io.Discard, "", 0) // a second WriteHeader is logged
			plain := newSite(t, http.HandlerFunc(row.answer))
			plain.Config.ErrorLog = s.Config.ErrorLog
			want := plain.exchange(request, false)
			for range 3 {
				got := s.exchange(request, false)
				require.True(t, got == want, "got %.400q, want %.400q", got, want)
				if row.status == 0 {
					require.Empty(t, heard)
					continue
				}
				require.Len(t, heard, 1, "once for each request, none of which was denied")
				require.Equal(t, row.status, <-heard)
			}
			if row.status == 0 {
				require.Equal(t, 429, s.get().status)
			}
		})
	}
}

// Frameworks answer the error of a handler when the handler has returned, through the
// writer that it had. After a panic no answer is heard.
func TestRefundIfHearsOfAnswersAfterTheHandler(t *testing.T) {
	for panics, want := range map[bool][]int{false: {401}, true: nil} {
		var heard []int
		var own http.ResponseWriter
		h := newLimit(t, httplimit.Config{
			Limiter: newLimiter(t, newClock(), by("ip", "5/d")), Features: []httplimit.Source{byIP},
			RefundIf: func(status int) bool { heard = append(heard, status); return true },
		})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if own = w; panics {
				panic(http.ErrAbortHandler)
			}
		}))
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		}()
		own.WriteHeader(401)
		require.Equal(t, want, heard)
	}
}

// The refund is done before the client has the beginning of the answer, so that
// the next request is admitted: in many rounds no refund is late.
func TestRefundIsBeforeTheAnswer(t *testing.T) {
	untilGone := func(r *http.Request) { <-r.Context().Done() }
	never := func(r *http.Request) io.Reader {
		return readerFunc(func([]byte) (int, error) { untilGone(r); return 0, io.EOF })
	}
	for name, handler := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) },
		"flush":  func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); untilGone(r) },
		"a controlled flush": func(w http.ResponseWriter, r *http.Request) {
			if http.NewResponseController(w).Flush() == nil {
				untilGone(r)
			}
		},
		"a lot": func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 1<<16)); untilGone(r) },
		"a copy": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, unhurried{io.MultiReader(zeros(1<<16), never(r))})
		},
		"refund": func(w http.ResponseWriter, r *http.Request) {
			if httplimit.Refund(r.Context(), "signup") == nil {
				w.(http.Flusher).Flush()
				untilGone(r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "1/d")), Features: []httplimit.Source{byIP}, VerdictInContext: name == "refund"}
			if name != "refund" {
				cfg.RefundIf = func(int) bool { return true }
			}
			s := newSite(t, newLimit(t, cfg)(handler))
			last := io.NopCloser(nil)
			defer func() { _ = last.Close() }()
			for range 200 {
				got := try.To(s.Client().Get(s.URL))(t)
				require.Less(t, got.StatusCode, 300)
				require.NoError(t, last.Close()) // ends the handler before, which may still have run
				last = got.Body
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// unhurried is no io.WriterTo, so that io.Copy has the writer read from it.
type unhurried struct{ io.Reader }

func zeros(n int) io.Reader { return bytes.NewReader(make([]byte, n)) }

func TestRefundTwiceIsOnce(t *testing.T) {
	s := newSite(t, newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "3/d")), Features: []httplimit.Source{byIP},
		RefundIf: func(status int) bool { return status == 200 },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Refund") == "" {
			w.WriteHeader(201)
			return
		}
		for range 3 {
			if err := httplimit.Refund(r.Context(), "signup"); err != nil {
				w.WriteHeader(500)
			}
		}
		if v, ok := httplimit.VerdictOf(r.Context(), "signup"); !ok || !v.Allowed {
			w.WriteHeader(500) // the verdict stands, whatever its hit became
		}
	})))
	left := func(lines ...string) string {
		got := s.get(lines...)
		require.Less(t, got.status, 300)
		return got.header.Get("RateLimit")
	}
	require.Equal(t, `"3/d";r=2;t=86401`, left())
	require.Equal(t, `"3/d";r=1;t=86401`, left())
	require.Equal(t, `"3/d";r=0;t=86401`, left("Refund: thrice, and by its status"))
	require.Equal(t, `"3/d";r=0;t=86401`, left())
	require.Equal(t, 429, s.get().status)
}

// A handler settles the Cost of its request, once. From then on hits that have not been
// settled are open.
func TestSettle(t *testing.T) {
	var s *site
	s = newSite(t, newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "9/d")), Features: []httplimit.Source{byIP}, VerdictInContext: true,
		Cost: func(r *http.Request) (int64, error) { return strconv.ParseInt(r.Header.Get("Cost"), 10, 64) },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Then") != "" {
			denied := s.get("Cost: 5")
			w.Header().Set("Denied", denied.header.Get("Retry-After"))
		}
		_, other := httplimit.Settle(r.Context(), "login", 2)
		v, err := httplimit.Settle(r.Context(), "signup", 2)
		_, again := httplimit.Settle(r.Context(), "signup", 3)
		fmt.Fprint(w, v.Remaining, err, errors.Is(again, counter.ErrSettled), other)
	})))
	require.Equal(t, `7 <nil> true httplimit: settle: no middleware for event "login" around this handler has VerdictInContext or RefundIf`, s.get("Cost: 5").body)
	got := s.get("Cost: 6", "Then: another")
	require.Contains(t, []string{"1", "2"}, got.header.Get("Denied"))
	require.Contains(t, got.body, "5 <nil> true")
}

func TestNested(t *testing.T) {
	c := newClock()
	lim := newLimiter(t, c, by("ip", "9/h"), limiter.Rule{Event: "login", Kind: "user", Limits: by("", "3/h, 4/d").Limits})
	var known []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, event := range []string{"signup", "login", "export"} {
			v, ok := httplimit.VerdictOf(r.Context(), event)
			known = append(known, fmt.Sprint(event, " ", ok, " ", v.Allowed, " ", v.Limit, " ", v.Remaining))
		}
		if event := r.Header.Get("Refund"); event != "" {
			if err := httplimit.Refund(r.Context(), event); err != nil {
				http.Error(w, err.Error(), 500)
			}
		}
	})
	outer := newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{byIP}, VerdictInContext: true})
	inner := newLimit(t, httplimit.Config{VerdictInContext: true, Limiter: lim, Event: "login", Features: []httplimit.Source{byUser}, Show: []string{"user"}})
	s := newSite(t, outer(inner(handler)))

	got := s.get("User: 7")
	require.Equal(t, []string{"signup true true 9/h 8", "login true true 3/h 2", "export false false 0/0s 0"}, known)
	require.Equal(t, []item{{"9/h", map[string]int64{"q": 9, "w": 3600}}, {"3/h", map[string]int64{"q": 3, "w": 3600}}, {"4/d", map[string]int64{"q": 4, "w": 86400}}},
		requireItems(t, got.header, "RateLimit-Policy"))
	require.Equal(t, []string{`"9/h";r=8;t=3601`, `"3/h";r=2;t=3601, "4/d";r=3;t=86401`}, got.header.Values("RateLimit"))
	requireItems(t, got.header, "RateLimit")

	s.get("User: 7", "Refund: signup")
	require.Equal(t, []string{`"9/h";r=7;t=3601`, `"3/h";r=0;t=3601, "4/d";r=1;t=86401`}, s.get("User: 7", "Refund: login").header.Values("RateLimit"))
	require.Equal(t, []string{`"9/h";r=6;t=3601`, `"3/h";r=0;t=3601, "4/d";r=1;t=86401`}, s.get("User: 7").header.Values("RateLimit"))
	got = s.get("User: 7")
	require.Equal(t, 429, got.status)
	require.Equal(t, []string{`"9/h";r=5;t=3601`, `"3/h";r=0;t=3601, "4/d";r=1;t=86401`}, got.header.Values("RateLimit"), "both speak when the inner one denies")
	require.Contains(t, got.body, `["3/h"]`)

	got = s.get("User: 8", "Refund: export")
	require.Equal(t, 500, got.status)
	require.Equal(t, "httplimit: refund: no middleware for event \"export\" around this handler has VerdictInContext or RefundIf\n", got.body)
}

// The same event twice: a handler means the inner middleware.
func TestNestedOfOneEvent(t *testing.T) {
	outer := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "9/h")), Features: []httplimit.Source{byIP}, LegacyHeaders: true, VerdictInContext: true})
	inner := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "5/h")), Features: []httplimit.Source{byIP}, LegacyHeaders: true, VerdictInContext: true})
	s := newSite(t, outer(inner(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := httplimit.VerdictOf(r.Context(), "signup")
		fmt.Fprint(w, v.Limit, httplimit.Refund(r.Context(), "signup"))
	}))))
	for _, left := range []string{"8", "7"} {
		got := s.get()
		require.Equal(t, "5/h <nil>", got.body)
		require.Equal(t, []string{`"9/h";r=` + left + `;t=3601`, `"5/h";r=4;t=3601`}, got.header.Values("RateLimit"))
		require.Equal(t, []string{"5"}, got.header.Values("X-RateLimit-Limit"), "which is no list")
	}
}

// A client who hangs up cannot keep his hit from being given back.
func TestRefundForAClientWhoIsGone(t *testing.T) {
	for _, byStatus := range []bool{true, false} {
		var refunded error
		hangUp := func() {}
		h := newLimit(t, httplimit.Config{
			Limiter: newLimiter(t, newClock(), by("ip", "1/d")), Features: []httplimit.Source{byIP},
			RefundIf: func(status int) bool { return status == 200 },
		})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if hangUp(); byStatus {
				w.WriteHeader(200)
				return
			}
			refunded = httplimit.Refund(r.Context(), "signup")
			w.WriteHeader(500)
		}))
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			hangUp = cancel
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			require.NoError(t, refunded)
			require.NotEqual(t, 429, w.Code)
		}
	}
}

// The doubles below are ResponseWriters of few abilities.
type (
	bare     struct{ http.ResponseWriter }
	flushing struct {
		http.ResponseWriter
		http.Flusher
	}
	hijacking struct {
		http.ResponseWriter
		http.Hijacker
	}
)

type noHijack struct{ err error }

func (h noHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, h.err }

// A handler's ResponseWriter has the same methods with the middleware as
// without.
func TestAbilitiesOfTheWriter(t *testing.T) {
	type abilities struct{ flusher, hijacker, readerFrom, stringWriter, pusher bool }
	of := func(w http.ResponseWriter) (a abilities) {
		_, a.flusher = w.(http.Flusher)
		_, a.hijacker = w.(http.Hijacker)
		_, a.readerFrom = w.(io.ReaderFrom)
		_, a.stringWriter = w.(io.StringWriter)
		_, a.pusher = w.(http.Pusher)
		return a
	}
	recorder := httptest.NewRecorder()
	for _, refundIf := range []func(int) bool{nil, func(int) bool { return true }} {
		limit := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "99/d")), Features: []httplimit.Source{byIP}, RefundIf: refundIf})
		for want, w := range map[abilities]http.ResponseWriter{
			{}:                                  bare{recorder},
			{flusher: true}:                     flushing{recorder, recorder},
			{hijacker: true}:                    hijacking{recorder, noHijack{}},
			{flusher: true, stringWriter: true}: recorder,
		} {
			var got abilities
			limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = of(w) })).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			require.Equal(t, want, got)
		}
		var plain, limited abilities
		var deadline, duplex error
		newSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { plain = of(w) })).get()
		newSite(t, limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			limited = of(w)
			rc := http.NewResponseController(w)
			deadline = errors.Join(rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}))
			duplex = rc.EnableFullDuplex()
		}))).get()
		require.Equal(t, abilities{flusher: true, hijacker: true, readerFrom: true, stringWriter: true}, plain)
		require.Equal(t, plain, limited)
		require.NoError(t, deadline)
		require.NoError(t, duplex)
	}
}

// An HTTP/2 writer has other methods, and cannot be taken over.
func TestHTTP2(t *testing.T) {
	pushes, proto := false, ""
	limit := newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "1/d")), Features: []httplimit.Source{byIP},
		RefundIf: func(status int) bool { return status == 200 },
	})
	s := httptest.NewUnstartedServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pushes = w.(http.Pusher)
		proto = r.Proto
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil || r.Header.Get("Password") != "right" {
			w.WriteHeader(401)
			return
		}
		w.WriteHeader(200)
	})))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	for _, row := range []struct {
		password string
		status   int
	}{{"right", 200}, {"right", 200}, {"wrong", 401}, {"right", 429}} {
		got := (&site{t, s}).get("Password: " + row.password)
		require.Equal(t, row.status, got.status)
		require.Equal(t, `"1/d";q=1;w=86400`, got.header.Get("RateLimit-Policy"))
	}
	require.True(t, pushes)
	require.Equal(t, "HTTP/2.0", proto)
}

// noting is a ResponseWriter that notes each status.
type noting struct {
	http.ResponseWriter
	notes *[]string
}

func (n noting) WriteHeader(int) { *n.notes = append(*n.notes, "answer") }

func TestRefundIfComesFirst(t *testing.T) {
	var notes []string
	var v limiter.Verdict
	newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "1/d")), Features: []httplimit.Source{byIP},
		RefundIf: func(int) bool { notes = append(notes, "refund"); return true },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(201)
		v, _ = httplimit.VerdictOf(r.Context(), "signup")
	})).ServeHTTP(noting{httptest.NewRecorder(), &notes}, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, []string{"refund", "answer"}, notes)
	require.True(t, v.Allowed, "it is still what was decided")
}

// A connection that cannot be taken over can still be answered.
func TestHijackThatFails(t *testing.T) {
	var heard []int
	w := httptest.NewRecorder()
	newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "99/d")), Features: []httplimit.Source{byIP},
		RefundIf: func(status int) bool { heard = append(heard, status); return false },
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := w.(http.Hijacker).Hijack(); errors.Is(err, errBroken) {
			http.Error(w, "no", http.StatusNotImplemented)
		}
	})).ServeHTTP(hijacking{w, noHijack{errBroken}}, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, []int{501}, heard)
	require.Equal(t, 501, w.Code)
}

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

// A refund for a status that the client never sees would let him in for ever.
func TestRefundIfHearsWhatTheClientSees(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"flushed past the wrapper, then 500": func(w http.ResponseWriter, _ *http.Request) {
			assert.NoError(t, http.NewResponseController(w).Flush())
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
			refundIf := func(status int) bool { return status >= 500 || status == http.StatusOK && name[0] == 'h' }
			for outer, wrap := range map[string]func(w http.ResponseWriter) http.ResponseWriter{
				"only unwraps":  func(w http.ResponseWriter) http.ResponseWriter { return onlyUnwraps{w} },
				"also flushes":  func(w http.ResponseWriter) http.ResponseWriter { return alsoFlushes{onlyUnwraps{w}} },
				"also hijacks":  func(w http.ResponseWriter) http.ResponseWriter { return alsoHijacks{onlyUnwraps{w}} },
				"wrapped twice": func(w http.ResponseWriter) http.ResponseWriter { return onlyUnwraps{onlyUnwraps{w}} },
			} {
				inside := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "1/d")), Features: []httplimit.Source{byIP}, RefundIf: refundIf})(handler)
				s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inside.ServeHTTP(wrap(w), r) }))
				require.Equal(t, 200, s.get().status, outer)
				require.Equal(t, 429, s.get().status, outer)
			}
		})
	}
}

// A limit of failed attempts also bounds the attempts under way. Whoever finds all
// places taken by attempts that may be given back is told a second or two, by every
// field; and whoever finds them used up by failures, the window.
func TestOpenHitsAreNoWindow(t *testing.T) {
	const clients, most = 30, 2
	for name, refunds := range map[string]bool{"RefundIf": false, "Refund": true} {
		t.Run(name, func(t *testing.T) {
			gate, arrived := make(chan struct{}), make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			cfg := httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "10/15m")), Features: []httplimit.Source{byIP}, LegacyHeaders: true, VerdictInContext: refunds}
			if !refunds {
				cfg.RefundIf = func(status int) bool { return status < 400 }
			}
			s := newSite(t, newLimit(t, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Wait") != "" {
					arrived <- struct{}{}
					<-gate
				}
				switch {
				case r.Header.Get("Password") != "right":
					w.WriteHeader(401)
				case refunds && httplimit.Refund(r.Context(), "signup") != nil:
					w.WriteHeader(500)
				default:
					w.WriteHeader(200)
				}
			})))
			t.Cleanup(open) // before the server is closed, which waits for its handlers
			wait := func(a answer) int {
				require.Equal(t, 429, a.status)
				seconds := try.To(strconv.Atoi(a.header.Get("Retry-After")))(t)
				require.Equal(t, []string{"", fmt.Sprint(seconds)}, regexp.MustCompile(`r=0(.*);t=(\d+)$`).FindStringSubmatch(a.header.Get("RateLimit"))[1:])
				return seconds
			}
			require.Equal(t, 200, s.get("Password: right").status) // from now on Refund is known

			// Ten attempts are under way, and others come.
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if got := s.get("Password: right", "Wait: yes"); got.status != 200 {
						t.Error(got)
					}
				})
			}
			for range 10 {
				<-arrived
			}
			for range 3 {
				require.LessOrEqual(t, wait(s.get("Password: right")), most)
			}
			open()
			all.Wait()

			// Everybody knows the password.
			answers := make(chan answer, 10*clients)
			for range clients {
				all.Go(func() {
					for range 10 {
						answers <- s.get("Password: right")
					}
				})
			}
			go func() { all.Wait(); close(answers) }()
			for got := range answers {
				if got.status != 200 {
					require.LessOrEqual(t, wait(got), most)
				}
			}

			// Nobody does.
			for range 10 {
				require.Equal(t, 401, s.get("Password: wrong").status)
			}
			require.Greater(t, wait(s.get("Password: right")), 890)
		})
	}
}

// A connection that the handler takes over without a status is no open hit: nobody is
// asked about it later, however long the handler talks.
func TestHijackedHitsAreNotOpen(t *testing.T) {
	cfg := httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "1/15m")), Features: []httplimit.Source{byIP},
		RefundIf: func(status int) bool { return status < 400 },
	}
	var h http.Handler
	denied := httptest.NewRecorder()
	h = newLimit(t, cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		h.ServeHTTP(denied, httptest.NewRequest("GET", "/", nil))
	}))
	h.ServeHTTP(hijacking{httptest.NewRecorder(), noHijack{}}, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 429, denied.Code)
	require.Greater(t, try.To(strconv.Atoi(denied.Header().Get("Retry-After")))(t), 890)
}
