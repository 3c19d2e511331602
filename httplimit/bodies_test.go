package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// bodyOf counts the bytes that are read of a form.
type bodyOf struct {
	io.Reader
	read int
}

func (b *bodyOf) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *bodyOf) Close() error { return nil }

// post sends a form to h, and returns how many bytes were read before the answer.
func post(h http.Handler, form string, lines ...string) (*httptest.ResponseRecorder, int) {
	b := &bodyOf{Reader: strings.NewReader(form)}
	r := httptest.NewRequest("POST", "/", nil)
	r.Body, r.ContentLength = b, int64(len(form))
	for _, line := range append(lines, asForm) {
		key, value, _ := strings.Cut(line, ": ")
		r.Header.Add(key, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, b.read
}

// stall sends a form that stops short to h, and returns a function that ends the body
// with err and returns the status.
func stall(t *testing.T, h http.Handler, err error, form string, lines ...string) (end func() int) {
	in, out := io.Pipe()
	r := httptest.NewRequest("POST", "/", in)
	for _, line := range append(lines, asForm) {
		key, value, _ := strings.Cut(line, ": ")
		r.Header.Add(key, value)
	}
	answered := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answered <- w.Code
	}()
	_, failed := io.WriteString(out, form)
	require.NoError(t, failed)
	return func() int {
		require.NoError(t, out.CloseWithError(err))
		return <-answered
	}
}

// A client over a limit that needs no body is denied before the body is read, and
// as by Allow: a ban begins, Observe hears of one decision.
func TestBodyIsReadIfTheOtherRulesAdmit(t *testing.T) {
	banned := by("ip", "2/m")
	banned.Ban = limiter.Bans{time.Hour}
	byField := httplimit.NewSource("user", httplimit.Form("user"))
	elseIP := limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits("9/h"), Else: "ip", ElseLimits: counter.MustLimits("2/h")}
	for _, row := range []struct {
		name     string
		rules    []limiter.Rule
		features []httplimit.Source
		cost     func(*http.Request) (int64, error)
		form     string
		want     []int // of the requests, 0 for 200 with the body read
		outcomes string
	}{
		{"an address", []limiter.Rule{by("ip", "2/h"), by("email", "9/h")}, []httplimit.Source{byEmail, byIP}, nil,
			"email=a%40b.example", []int{0, 0, 429, 429}, "admitted admitted over-limit over-limit"},
		{"with a ban", []limiter.Rule{banned, by("email", "9/h")}, []httplimit.Source{byEmail, byIP}, nil,
			"email=a%40b.example", []int{0, 0, 429, 429}, "admitted admitted banned banned"},
		{"the cost needs the body", []limiter.Rule{by("ip", "4/h")}, []httplimit.Source{byIP}, func(r *http.Request) (n int64, err error) {
			_, err = fmt.Sscan(r.FormValue("n"), &n)
			return n, err
		}, "n=2", []int{0, 0, 429}, "admitted admitted over-limit"},
		{"Else is no reason while the body may have a user", []limiter.Rule{elseIP}, []httplimit.Source{byIP, byField}, nil,
			"user=7", []int{0, 0, 0}, "admitted admitted admitted"},
		{"Else counts without one", []limiter.Rule{elseIP}, []httplimit.Source{byIP, byField}, nil,
			"user=", []int{0, 0, -429}, "admitted admitted over-limit"},
		{"a shared key is no reason either", []limiter.Rule{{Event: "signup", Kind: "user", Limits: counter.MustLimits("1/h"), IfMissing: limiter.MissingShare}}, []httplimit.Source{byField}, nil,
			"user=7", []int{0, -429}, "admitted over-limit"},
		{"a feature is missing anyhow", []limiter.Rule{by("user", "9/h"), by("ip", "1/h"), by("email", "9/h")}, []httplimit.Source{byUser, byIP, byEmail}, nil,
			"email=a%40b.example", []int{400, 429}, "missing admitted missing over-limit"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var outcomes []string
			lim := newLimiterOn(t, memory.New(memory.Config{}), counter.Config{Now: newClock().Now}, limiter.Config{
				Rules: row.rules, Observe: func(d limiter.Decision) { outcomes = append(outcomes, d.Outcome.String()) },
			})
			h := newLimit(t, httplimit.Config{Limiter: lim, Features: row.features, Cost: row.cost})(mirror)
			for i, want := range row.want {
				got, read := post(h, row.form)
				switch {
				case want > 0:
					require.Equal(t, want, got.Code, "request %d", i)
					require.Zero(t, read)
					require.Equal(t, want == 429, got.Header().Get("Retry-After") != "")
				case want < 0:
					require.Equal(t, -want, got.Code, "request %d", i)
					require.Equal(t, len(row.form), read)
				default:
					require.Equal(t, 200, got.Code, "request %d: %s", i, got.Body)
					require.Equal(t, row.form, got.Body.String())
				}
			}
			require.Equal(t, row.outcomes, strings.Join(outcomes, " "))
		})
	}
}

// A request that cannot be read counts as a request without the feature.
func TestInvalidRequestsCount(t *testing.T) {
	share, elseIP := by("email", "2/h"), by("email", "9/h")
	share.IfMissing = limiter.MissingShare
	elseIP.Else, elseIP.ElseLimits = "ip", counter.MustLimits("2/h")
	for name, rules := range map[string][]limiter.Rule{
		"beside another": {by("ip", "2/h"), by("email", "9/h")}, "with Else": {elseIP}, "shared": {share},
		"beside another, skipped": {by("ip", "2/h"), skipped(by("email", "9/h"))},
	} {
		for _, form := range []string{"email=nonsense", "email=%zz", "email=a%40b.example&email=c%40d.example"} {
			t.Run(name+", "+form, func(t *testing.T) {
				features := []httplimit.Source{byEmail, byIP}
				if name == "shared" {
					features = features[:1]
				}
				h := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rules...), Features: features})(welcome)
				for _, want := range []int{400, 400, 429} {
					got, _ := post(h, form)
					require.Equal(t, want, got.Code, got.Body)
				}
			})
		}
	}
}

// A Value that drops the error of a body does not find that a feature is missing.
func TestBodyThatCannotBeReadIsNoMissingFeature(t *testing.T) {
	careless := httplimit.NewSource("user", func(r *http.Request) (string, error) { return r.FormValue("user"), nil })
	h := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), skipped(by("user", "9/h")), by("ip", "9/h")), Features: []httplimit.Source{careless, byIP}, MaxBody: 100})(welcome)
	for form, want := range map[string]int{"user=7": 200, "user=7&x=" + strings.Repeat("x", 100): 413} {
		got, _ := post(h, form)
		require.Equal(t, want, got.Code)
	}
}

// Bodies that hold Config.MaxBodyTotal leave room for forms of 16 KiB, and for all
// when they are gone.
func TestMaxBodyTotal(t *testing.T) {
	const large = 100 << 10
	var failed atomic.Int64
	cfg := httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "1000/h"), skipped(by("email", "1000/h"))), Features: []httplimit.Source{byIP, byEmail},
		MaxBody: large, MaxBodyTotal: large,
	}
	h := newLimit(t, cfg)(mirror)
	cfg.Failed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := httplimit.VerdictOf(r.Context(), "signup")
		if !v.Allowed && v.Degraded != nil && w.Header().Get("Retry-After") != "" {
			failed.Add(1)
		}
		w.WriteHeader(http.StatusTeapot)
	})
	hooked := newLimit(t, cfg)(mirror)
	form := func(size int) string { return "email=a%40b.example&x=" + strings.Repeat("x", size-22) }
	for _, h := range []http.Handler{h, hooked} {
		end := stall(t, h, errors.New("gone"), form(large-1))
		got, _ := post(h, form(16<<10-1))
		require.Equal(t, 200, got.Code, "small")
		got, _ = post(h, form(large))
		if h := got.Header(); got.Code != http.StatusTeapot {
			require.Equal(t, 503, got.Code)
			require.Regexp(t, "^[12]$", h.Get("Retry-After"))
		}
		require.Equal(t, 400, end())
		for range 3 {
			got, _ = post(h, form(large))
			require.Equal(t, 200, got.Code)
			require.Equal(t, form(large), got.Body.String())
		}
	}
	require.EqualValues(t, 1, failed.Load())
	cfg.MaxBodyTotal--
	require.EqualError(t, try.Err(httplimit.New(httplimit.Config{Limiter: cfg.Limiter, Event: "signup", Features: cfg.Features, MaxBody: large, MaxBodyTotal: large - 1})), "httplimit: Config.MaxBodyTotal is 102399, want 102400, the bytes of one body, or more, or 0 for 67108864")
}

// Bodies of clients that are refused silently leave room for admitted ones, whatever
// reads them.
func TestSilentRefusalsLeaveRoom(t *testing.T) {
	const large = 100 << 10
	form := "email=a%40b.example&x=" + strings.Repeat("x", large-22)
	for name, denied := range map[string]http.Handler{
		"without Denied": nil,
		"Denied reads": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			h := newLimit(t, httplimit.Config{
				Limiter: newLimiter(t, newClock(), by("user", "1/h"), by("email", "9/h")), Features: []httplimit.Source{byUser, byEmail},
				MaxBody: large, MaxBodyTotal: 2 * large, Refuse: httplimit.RefuseSilently, Denied: denied,
			})(mirror)
			got, _ := post(h, form, "User: 7")
			require.Equal(t, large, got.Body.Len())
			for range 2 {
				end := stall(t, h, nil, form[1:], "User: 7")
				defer func() { require.Equal(t, 200, end()) }()
			}
			got, read := post(h, form, "User: 7")
			require.Equal(t, 200, got.Code)
			require.Zero(t, got.Body.Len(), "refused")
			require.Equal(t, large, read, "as by the handler")
			got, _ = post(h, form, "User: 8")
			require.Equal(t, 200, got.Code, got.Body)
			require.Equal(t, large, got.Body.Len())
		})
	}
}

// pipes is a listener within the process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// connect starts s, and returns a connection to s and a function that closes both.
func connect(t *testing.T, s *http.Server) (client net.Conn, end func()) {
	l, served := make(pipes), make(chan error)
	go func() { served <- s.Serve(l) }()
	client, conn := net.Pipe()
	l <- conn
	return client, func() {
		require.NoError(t, client.Close())
		require.NoError(t, s.Close())
		<-served
	}
}

// A body that stalls ends in 408 when BodyTimeout is over, or the server's ReadTimeout
// if that is sooner; and holds the server for a second if nobody needs the body. For
// the handler the deadline of the server stands again.
func TestBodyTimeout(t *testing.T) {
	const half = "email=a%40b.example&x="
	for _, row := range []struct {
		name              string
		timeout, server   time.Duration
		rest, want        string
		limits            string
		after             time.Duration
		handler, deadline time.Duration // how long the handler runs, and the read deadline of an outer handler; zero: none
	}{
		{"stalled", 3 * time.Second, 0, "", "408", "9/h", 3 * time.Second, 0, 0},
		{"stalled, the default", 0, 0, "", "408", "9/h", httplimit.DefaultBodyTimeout, 0, 0},
		{"stalled, unbounded here", -1, time.Minute, "", "408", "9/h", time.Minute, 0, 0},
		{"stalled, the server is stricter", 0, 2 * time.Second, "", "408", "9/h", 2 * time.Second, 0, 0},
		{"stalled, the server is more patient", 0, time.Minute, "", "408", "9/h", httplimit.DefaultBodyTimeout, 0, 0},
		{"stalled, an outer handler is stricter", 0, 0, "", "408", "9/h", 2 * time.Second, 0, 2 * time.Second},
		{"stalled, an outer handler and the server are more patient", 0, time.Hour, "", "408", "9/h", httplimit.DefaultBodyTimeout, 0, time.Minute},
		{"whole: the deadlines were for reading", 3 * time.Second, time.Minute, "yy", "200", "9/h", time.Hour, time.Hour, 2 * time.Minute},
		{"over the limit already", 0, 0, "", "429", "1/h", time.Second, 0, 0},
		{"whole: the handler has its time", 3 * time.Second, 0, "yy", "200", "9/h", time.Hour, time.Hour, 0},
		{"whole, and over the limit", 3 * time.Second, 0, "yy", "429", "1/h", 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gone error
				lim := newLimiterOn(t, memory.New(memory.Config{}), counter.Config{}, limiter.Config{Rules: []limiter.Rule{by("ip", row.limits), skipped(by("email", "9/h"))}})
				try.To(lim.Allow(t.Context(), "signup", feature.New("ip", "192.0.2.1")))(t)
				local := httplimit.NewSource("ip", func(*http.Request) (string, error) { return "192.0.2.1", nil })
				h := newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{local, byEmail}, BodyTimeout: row.timeout})(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(row.handler)
						gone = r.Context().Err()
					}))
				s := &http.Server{ReadTimeout: row.server, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if row.deadline > 0 {
						require.NoError(t, http.NewResponseController(w).SetReadDeadline(time.Now().Add(row.deadline)))
					}
					h.ServeHTTP(w, r)
				})}
				client, end := connect(t, s)
				begin := time.Now()
				go func() {
					_, _ = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: %d\r\n\r\n%s%s", asForm, len(half)+2, half, row.rest)
				}()
				require.Contains(t, try.To(bufio.NewReader(client).ReadString('\n'))(t), "HTTP/1.1 "+row.want)
				require.Equal(t, row.after, time.Since(begin))
				require.NoError(t, gone)
				end()
			})
		})
	}
}

// A body whose end comes in the moment of BodyTimeout is late if the read deadline of
// the connection has passed by then: net/http would end the context of the handler.
func TestBodyThatEndsWithItsTime(t *testing.T) {
	for want, err := range map[int]error{408: nil, 200: http.ErrNotSupported} {
		synctest.Test(t, func(t *testing.T) {
			h := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("email", "9/h")), Features: []httplimit.Source{byEmail}})(welcome)
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("Content-Type", urlencoded)
			r.Body = &lateBody{io.NopCloser(strings.NewReader("email=a%40b.example")), 0, httplimit.DefaultBodyTimeout + 1}
			w := httptest.NewRecorder()
			h.ServeHTTP(&deadlined{w, err}, r)
			require.Equal(t, want, w.Code, w.Body)
		})
	}
}

// deadlined is a ResponseWriter whose read deadlines are set, unless err is.
type deadlined struct {
	http.ResponseWriter
	err error
}

func (d *deadlined) SetReadDeadline(time.Time) error { return d.err }

// lateBody is a body with a text and an end that come after a while.
type lateBody struct {
	io.ReadCloser
	text, end time.Duration
}

func (b *lateBody) Read(p []byte) (int, error) {
	time.Sleep(b.text)
	n, err := b.ReadCloser.Read(p)
	if b.text = 0; err == io.EOF {
		time.Sleep(b.end)
		b.end = 0
	}
	return n, err
}

// A store that hangs takes the time of one decision, though the rules are asked
// before and after a body. A store that came back while a long body was on its way
// is asked.
func TestAHangingStoreIsWaitedForOnce(t *testing.T) {
	for _, row := range []struct {
		name      string
		ip, email limiter.OnFailure
		body      time.Duration // until the body is there
		back      time.Duration // when the store answers again
		want      int
		after     time.Duration
		outcome   limiter.Outcome
	}{
		{"open", limiter.FailOpen, limiter.FailOpen, 0, time.Hour, 200, time.Second, limiter.OutcomeFailedOpen},
		{"open without, closed with a body", limiter.FailOpen, limiter.FailClosed, 0, time.Hour, 503, time.Second, limiter.OutcomeFailedClosed},
		{"closed", limiter.FailClosed, limiter.FailOpen, 0, time.Hour, 503, time.Second, limiter.OutcomeFailedClosed},
		{"local", limiter.FailLocal, limiter.FailLocal, 0, time.Hour, 200, time.Second, limiter.OutcomeLocalAdmitted},
		{"a short body", limiter.FailOpen, limiter.FailOpen, 500 * time.Millisecond, time.Hour, 200, 1500 * time.Millisecond, limiter.OutcomeFailedOpen},
		{"a long body", limiter.FailOpen, limiter.FailOpen, 5 * time.Second, 3 * time.Second, 200, 6 * time.Second, limiter.OutcomeAdmitted},
		{"a long body, the store still hangs", limiter.FailOpen, limiter.FailClosed, 5 * time.Second, time.Hour, 503, 7 * time.Second, limiter.OutcomeFailedClosed},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &frozenStore{Atomic: memory.New(memory.Config{}), until: time.Now().Add(row.back)}
				here := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Skew: counter.DefaultSkew + limiter.DefaultDecideWithin}))(t)
				ip, email := by("ip", "5/h"), by("email", "5/h")
				ip.OnFailure, email.OnFailure = row.ip, row.email
				var outcomes []limiter.Outcome
				lim := newLimiterOn(t, store, counter.Config{}, limiter.Config{
					Rules: []limiter.Rule{ip, email}, Local: here,
					Observe: func(d limiter.Decision) { outcomes = append(outcomes, d.Outcome) },
				})
				h := newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{byIP, byEmail}})(welcome)
				r := httptest.NewRequest("POST", "/", iotest.OneByteReader(strings.NewReader("email=ada@example.org")))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Body = &lateBody{r.Body, row.body, 0}
				w, began := httptest.NewRecorder(), time.Now()
				h.ServeHTTP(w, r)
				require.Equal(t, row.after, time.Since(began))
				require.Equal(t, row.want, w.Code, w.Body)
				require.Equal(t, []limiter.Outcome{row.outcome}, outcomes)
				_ = lim.Close(t.Context()) // local hits may be on their way
			})
		})
	}
}

// frozenStore answers nothing for a while.
type frozenStore struct {
	backend.Atomic
	until time.Time
}

func (s *frozenStore) Take(ctx context.Context, t *backend.TakeRequest) error {
	if wait := time.Until(s.until); wait > 0 {
		select {
		case <-time.After(wait):
		case <-time.After(time.Until(t.Deadline)):
			return os.ErrDeadlineExceeded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Atomic.Take(ctx, t)
}

func (s *frozenStore) Together([]backend.TakeKey) bool { return true }

// A Value that panics, as on text that its author did not expect, holds no room of
// other bodies afterwards.
func TestAPanicHoldsNoRoom(t *testing.T) {
	lim := newLimiter(t, newClock(), by("ip", "900/h"), by("user", "900/h"))
	h := newLimit(t, httplimit.Config{
		Limiter: lim, MaxBody: 64 << 10, MaxBodyTotal: 64 << 10,
		Features: []httplimit.Source{byIP, httplimit.NewSource("user", func(r *http.Request) (string, error) {
			text, err := io.ReadAll(r.Body)
			if err == nil && text[0] == '!' {
				panic(http.ErrAbortHandler)
			}
			return "ada", err
		})},
	})(welcome)
	body := strings.Repeat("a", 60<<10)
	for range 3 {
		require.PanicsWithValue(t, http.ErrAbortHandler, func() { post(h, "!"+body) })
	}
	w, _ := post(h, body)
	require.Equal(t, 200, w.Code, w.Body)
}

// A handler that takes over the connection of a denied request owns its deadlines.
func TestDeniedTakesOverTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan error, 1)
		lim := newLimiter(t, newClock(), by("user", "1/h"))
		local := httplimit.NewSource("user", func(*http.Request) (string, error) { return "7", nil })
		try.To(lim.Allow(t.Context(), "signup", feature.New("user", "7")))(t)
		h := newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{local}, Denied: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			require.NoError(t, err)
			go func() {
				_, err := io.ReadFull(conn, make([]byte, 5))
				heard <- err
				_ = conn.Close()
			}()
		})})(welcome)
		client, end := connect(t, &http.Server{Handler: h})
		try.To(io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"))(t)
		time.Sleep(time.Minute)
		_, _ = io.WriteString(client, "later")
		require.NoError(t, <-heard)
		end()
	})
}
