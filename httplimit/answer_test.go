package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// brokenStore fails after each call.
type brokenStore struct{ wait func(context.Context) }

var errBroken = errors.New("connection refused to 10.1.2.3")

func (s brokenStore) Do(ctx context.Context, _ *backend.Request) error {
	if s.wait != nil {
		s.wait(ctx)
	}
	return errBroken
}

// requireProblem reads a problem detail and checks the fields that all problem
// details have.
func requireProblem(t testing.TB, got answer, status int) map[string]any {
	require.Equal(t, status, got.status, got.body)
	require.Equal(t, []string{"application/problem+json"}, got.header.Values("Content-Type"))
	require.Equal(t, []string{"no-store"}, got.header.Values("Cache-Control"))
	var problem map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.body), &problem))
	require.Equal(t, float64(status), problem["status"])
	return problem
}

func TestDenied(t *testing.T) {
	for refuse, status := range map[httplimit.Refusal]int{httplimit.RefuseTooManyRequests: 429, httplimit.RefuseForbidden: 403} {
		ran := 0
		s := newSite(t, newLimit(t, httplimit.Config{
			Limiter:  newLimiter(t, newClock(), by("ip", "1/h, 5/d"), by("email", "1/h")),
			Features: []httplimit.Source{byIP, byEmail}, Refuse: refuse,
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })))
		got := s.signUp("a@b.example")
		require.Equal(t, 200, got.status)
		require.Empty(t, got.header.Values("Cache-Control"))

		got = s.signUp("a@b.example")
		require.Equal(t, map[string]any{
			"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title":             "Request cannot be satisfied as assigned quota has been exceeded",
			"status":            float64(status),
			"violated-policies": []any{"ip:1/h"}, // the body, with the mail, is not read
		}, requireProblem(t, got, status))
		require.Equal(t, "3601", got.header.Get("Retry-After"))
		require.Equal(t, `"ip:1/h";q=1;w=3600, "5/d";q=5;w=86400, "email:1/h";q=1;w=3600`, got.header.Get("RateLimit-Policy"))
		require.Equal(t, `"ip:1/h";r=0;t=3601, "5/d";r=4;t=86401`, got.header.Get("RateLimit"))
		require.Equal(t, 1, ran)
	}
}

var dates = regexp.MustCompile(`(?m)^Date: .*$`)

// exchange sends a request on a connection of its own, and no more after it if it ends,
// and returns all bytes of the answer but the date.
func (s *site) exchange(request string, ends bool) string {
	conn := try.To(net.Dial(s.Listener.Addr().Network(), s.Listener.Addr().String()))(s.t)
	defer conn.Close()
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	try.To(io.WriteString(conn, request))(s.t)
	if ends {
		require.NoError(s.t, conn.(*net.TCPConn).CloseWrite())
	}
	return dates.ReplaceAllString(string(try.To(io.ReadAll(conn))(s.t)), "Date: today")
}

func TestSilently(t *testing.T) {
	ran := 0
	s := newSite(t, newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "1/h")), Features: []httplimit.Source{byIP},
		Refuse: httplimit.RefuseSilently, LegacyHeaders: true,
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })))
	for range 3 {
		got := s.get()
		require.Equal(t, 200, got.status)
		require.Empty(t, got.body)
		for name := range got.header {
			require.Contains(t, []string{"Date", "Content-Length"}, name)
		}
	}
	require.Equal(t, 1, ran)
}

// With a look-alike nobody can tell a silent refusal, by no byte.
func TestSilentlyAlike(t *testing.T) {
	thanks := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/thanks")
		w.WriteHeader(http.StatusSeeOther)
		_, _ = io.WriteString(w, strings.Repeat("thank you ", 1000))
	}
	body := "email=a%40b.example"
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n" + asForm + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"GET /?" + body + " HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n",
		"HEAD /?" + body + " HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n",
		"GET /?" + body + " HTTP/1.0\r\n\r\n",
	} {
		for _, refundIf := range []func(int) bool{nil, func(status int) bool { return status >= 400 }} {
			ran := 0
			s := newSite(t, newLimit(t, httplimit.Config{
				Limiter: newLimiter(t, newClock(), by("ip", "100/h"), by("email", "2/h")), Features: []httplimit.Source{byIP, byEmail},
				Refuse: httplimit.RefuseSilently, Denied: http.HandlerFunc(thanks), RefundIf: refundIf,
			})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ran++
				thanks(w, r)
			})))
			accepted := s.exchange(request, false)
			require.Contains(t, accepted, "303 See Other")
			for range 3 {
				require.Equal(t, accepted, s.exchange(request, false))
			}
			require.Equal(t, 2, ran)
		}
	}
}

// A body that the handler would read is read up to MaxBody, so that neither 100 Continue
// nor a closed connection tells a refusal.
func TestSilentlyAlikeWithABody(t *testing.T) {
	next := "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"
	for _, row := range []struct {
		name, head string
		size       int
	}{
		{"Expect", "Expect: 100-continue\r\n", 22},
		{"400 kB", "", 400_000},
		{"Expect and 400 kB", "Expect: 100-continue\r\n", 400_000},
		{"MaxBody", "Expect: 100-continue\r\n", 500_000},
	} {
		for _, features := range [][]httplimit.Source{{byIP}, {byIP, byEmail}} {
			for _, denied := range []http.Handler{nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "thank you ", len(r.FormValue("email")))
			})} {
				body := "email=a%40b.example&x=" + strings.Repeat("x", row.size-22)
				request := "POST / HTTP/1.1\r\nHost: shop.example\r\n" + row.head + asForm + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(body), body) + next
				rules := []limiter.Rule{by("ip", "2/h"), skipped(by("email", "9/h"))}[:len(features)]
				s := newSite(t, newLimit(t, httplimit.Config{
					Limiter: newLimiter(t, newClock(), rules...), Features: features, MaxBody: 500_000,
					Refuse: httplimit.RefuseSilently, Denied: denied,
				})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_ = r.ParseForm()
					if denied != nil {
						denied.ServeHTTP(w, r)
					}
				})))
				accepted := s.exchange(request, false)
				require.Equal(t, 2, strings.Count(accepted, "HTTP/1.1 200 OK"), "the connection is kept")
				require.Equal(t, row.head != "", strings.HasPrefix(accepted, "HTTP/1.1 100 Continue"))
				require.Equal(t, accepted, s.exchange(request, false), row.name)
			}
		}
	}
}

// A mistake in a request is told even then, but not the existence of limits.
func TestSilentlyTellsNothing(t *testing.T) {
	config := func(lim *limiter.Limiter) httplimit.Config {
		return httplimit.Config{Limiter: lim, Features: []httplimit.Source{byIP, byEmail}, Refuse: httplimit.RefuseSilently}
	}
	counting := newSite(t, newLimit(t, config(newLimiter(t, newClock(), by("ip", "9/h"), by("email", "2/h"))))(welcome))
	broken := newSite(t, newLimit(t, config(newLimiterOn(t, backend.FromDo(brokenStore{}.Do), counter.Config{},
		limiter.Config{Rules: []limiter.Rule{by("ip", "9/h"), by("email", "2/h")}})))(welcome))
	for _, got := range []answer{counting.get(), counting.signUp("nonsense"), broken.signUp("a@b.example")} {
		require.Contains(t, []int{400, 503}, got.status)
		require.NotContains(t, strings.ToLower(fmt.Sprint(got)), "limit")
		require.Equal(t, got.status == 503, got.header.Get("Retry-After") != "", "a service that is down may say so")
	}
}

func TestDeniedHandlerOfOnesOwn(t *testing.T) {
	for _, refuse := range []httplimit.Refusal{httplimit.RefuseTooManyRequests, httplimit.RefuseForbidden, httplimit.RefuseSilently} {
		var refunded error
		s := newSite(t, newLimit(t, httplimit.Config{
			Limiter: newLimiter(t, newClock(), by("ip", "9/h"), by("email", "1/h")), Features: []httplimit.Source{byIP, byEmail}, Refuse: refuse,
			Denied: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				v, ok := httplimit.VerdictOf(r.Context(), "signup")
				refunded = httplimit.Refund(r.Context(), "signup")
				w.WriteHeader(http.StatusPaymentRequired)
				fmt.Fprintln(w, ok, v.Allowed, v.Kind(), v.Limit, r.FormValue("email"))
			}),
		})(welcome))
		require.Equal(t, "welcome", s.signUp("a@b.example").body)
		for range 2 {
			got := s.signUp("a@b.example")
			require.Equal(t, 402, got.status)
			require.Equal(t, "true false email 1/h a@b.example\n", got.body, "it can read the form as well")
			require.NoError(t, refunded, "of what was not counted nothing is given back")
			if refuse == httplimit.RefuseSilently {
				require.NotContains(t, got.header, "Retry-After")
				require.NotContains(t, got.header, "Ratelimit-Policy")
				continue
			}
			require.Equal(t, "3601", got.header.Get("Retry-After"))
			require.Equal(t, `"9/h";r=8;t=3601`, got.header.Get("RateLimit"))
		}
	}
}

func TestStoreThatFails(t *testing.T) {
	open := func(r limiter.Rule) limiter.Rule { r.OnFailure = limiter.FailOpen; return r }
	for _, row := range []struct {
		name  string
		rules []limiter.Rule
		with  func(*httplimit.Config)
		want  int
		body  string
	}{
		{"closed", []limiter.Rule{by("ip", "1/h")}, nil, 503, "The service is not available at the moment. Please try again later."},
		{"open", []limiter.Rule{open(by("ip", "1/h"))}, nil, 200, "handler: failed-open, the store failed"},
		{"one of each", []limiter.Rule{open(by("ip", "1/h")), by("email", "1/h")}, nil, 503, "The service is not available at the moment. Please try again later."},
		{"forbidden", []limiter.Rule{by("ip", "1/h")}, func(c *httplimit.Config) { c.Refuse = httplimit.RefuseForbidden }, 503, "The service is not available at the moment. Please try again later."},
		{"silently", []limiter.Rule{by("ip", "1/h")}, func(c *httplimit.Config) { c.Refuse = httplimit.RefuseSilently }, 503, "Service Unavailable"},
		{"an answer of one's own", []limiter.Rule{by("ip", "1/h"), by("email", "1/h")}, func(c *httplimit.Config) {
			c.Denied = welcome
			c.Failed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				v, _ := httplimit.VerdictOf(r.Context(), "signup")
				w.WriteHeader(http.StatusTeapot)
				fmt.Fprint(w, "failed: ", v.Outcome(), " ", r.FormValue("email"))
			})
		}, 418, "failed: failed-closed a@b.example"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := httplimit.Config{VerdictInContext: true, Limiter: newLimiterOn(t, backend.FromDo(brokenStore{}.Do), counter.Config{}, limiter.Config{Rules: row.rules}), Features: []httplimit.Source{byIP}}
			if len(row.rules) > 1 {
				cfg.Features = append(cfg.Features, byEmail)
			}
			if row.with != nil {
				row.with(&cfg)
			}
			s := newSite(t, newLimit(t, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				v, _ := httplimit.VerdictOf(r.Context(), "signup")
				failed := ""
				if errors.Is(v.Degraded, counter.ErrStore) {
					failed = ", the store failed"
				}
				fmt.Fprint(w, "handler: ", v.Outcome(), failed)
			})))
			for range 2 {
				got := s.signUp("a@b.example")
				require.Equal(t, row.want, got.status)
				require.Contains(t, got.body, row.body)
				require.NotContains(t, fmt.Sprint(got), "10.1.2.3")
				requireRetryAfter(t, got, row.want != 200)
				require.Empty(t, got.header.Values("RateLimit"), "nobody knows what is left")
				if row.want == 503 {
					problem := requireProblem(t, got, 503)
					require.NotContains(t, problem, "type")
					require.NotContains(t, problem, "violated-policies")
				}
			}
		})
	}
}

// requireRetryAfter looks at the Retry-After of an answer without the store's: a
// second or two if the request was refused, none if it was let through.
func requireRetryAfter(t testing.TB, got answer, refused bool) {
	if !refused {
		require.NotContains(t, got.header, "Retry-After")
		return
	}
	require.Len(t, got.header.Values("Retry-After"), 1)
	require.Contains(t, []string{"1", "2"}, got.header.Get("Retry-After"))
}

func TestRequestsThatCannotBeAskedAbout(t *testing.T) {
	big, ran, left := strings.Repeat("x", 1001), false, 20
	own := errors.New("no connection to 10.1.2.3")
	var failures []error
	limited := newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "20/h"), by("email", "1/h"), skipped(by("user", "9/h")), skipped(by("token", "9/h"))),
		Features: []httplimit.Source{byIP, byEmail, byUser, httplimit.NewSource("token", func(r *http.Request) (string, error) {
			switch r.Header.Get("Token") {
			case "unknown":
				return "", own
			case "bad":
				return "", fmt.Errorf("token: %w", &httplimit.ValueError{Source: "token", Reason: "is bad"})
			case "odd":
				return "", &httplimit.ValueError{Status: 200, Source: "token", Reason: "is odd"}
			case "old":
				return "", &httplimit.ValueError{Status: 401, Source: "token", Reason: "is old"}
			}
			return "", nil
		})},
		MaxBody: 1000, OnError: func(_ *http.Request, err error) { failures = append(failures, err) },
	})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ran = r.FormValue("email") != "a@b.example" }))
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html") // for all answers of the site
		w.Header().Set("Cache-Control", "public")
		limited.ServeHTTP(w, r)
	}))
	for _, row := range []struct {
		form   string
		lines  []string
		status int
		detail any
	}{
		{"", nil, 400, `The form field "email" is required.`},
		{"email=", nil, 400, `The form field "email" is required.`},
		{"email=nonsense-xyzzy", nil, 400, `The form field "email" must be an e-mail address.`},
		{"email=a%40b.example&email=c%40d.example", nil, 400, `The form field "email" has two different values.`},
		{"email=%zz", nil, 400, "The form could not be read."},
		{"email=a%40b.example&text=" + big, nil, 413, "The request is larger than 1000 bytes."},
		{"email=a%40b.example", []string{"User: 7", "User: xyzzy"}, 400, `The header "User" has two different values.`},
		{"email=a%40b.example", []string{"Content-Encoding: gzip"}, 415, "The request must not be compressed."},
		{"email=a%40b.example", []string{"Token: bad"}, 400, `The field "token" is bad.`},
		{"email=a%40b.example", []string{"Token: odd"}, 400, `The field "token" is odd.`},
		{"email=a%40b.example", []string{"Token: old"}, 401, `The field "token" is old.`},
		{"email=a%40b.example", []string{"Token: unknown"}, 500, nil},
	} {
		got := s.do("POST", "/", row.form, append(slices.Clone(row.lines), asForm)...)
		problem := requireProblem(t, got, row.status)
		require.Equal(t, row.detail, problem["detail"])
		require.Equal(t, http.StatusText(row.status), problem["title"])
		require.NotContains(t, problem, "type")
		for _, text := range []string{"xyzzy", "10.1.2.3", "127.0.0.1"} {
			require.NotContains(t, fmt.Sprint(got), text)
		}
		require.NotContains(t, got.header, "Retry-After")
		if row.status < 500 {
			left--
			require.Equal(t, fmt.Sprintf(`"20/h";r=%d;t=3601`, left), got.header.Get("RateLimit"), "the address is known, and counted")
		} else {
			require.Empty(t, got.header.Values("RateLimit"))
		}
	}
	require.False(t, ran)
	require.Equal(t, []error{own}, failures)
	require.Equal(t, 200, s.signUp("a@b.example").status, "no mail was counted, under 1/h")
	for range left - 1 {
		require.Equal(t, 400, s.signUp("nonsense").status)
	}
	got := s.signUp("nonsense")
	require.Equal(t, []any{"20/h"}, requireProblem(t, got, 429)["violated-policies"])
	require.Equal(t, "3601", got.header.Get("Retry-After"))
}

// A client who hangs up while the store is asked has not been let in.
func TestClientHangsUp(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	store := brokenStore{wait: func(ctx context.Context) {
		hangUp()
		<-ctx.Done()
	}}
	open := by("ip", "1/h")
	open.OnFailure = limiter.FailOpen
	var v limiter.Verdict
	newLimit(t, httplimit.Config{
		Limiter:  newLimiterOn(t, backend.FromDo(store.Do), counter.Config{Patience: -1}, limiter.Config{DecideWithin: -1, Rules: []limiter.Rule{open}}),
		Features: []httplimit.Source{byIP},
		Failed:   http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { v, _ = httplimit.VerdictOf(r.Context(), "signup") }),
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	require.False(t, v.Allowed)
	require.ErrorIs(t, v.Degraded, context.Canceled)
	require.Positive(t, v.RetryAfter)
}

// localSite limits by address while the store fails, by a share of the limits.
func localSite(t *testing.T, limits string, share float64, cfg httplimit.Config) *site {
	rule := by("ip", limits)
	rule.OnFailure = limiter.FailLocal
	cfg.Limiter, _ = limitertest.NewOn(t, backend.FromDo(brokenStore{}.Do), limiter.Config{Rules: []limiter.Rule{rule}, Share: share})
	cfg.Features = []httplimit.Source{byIP}
	return newSite(t, newLimit(t, cfg)(welcome))
}

// A client whom the local counter denies is answered like any client over the
// limit, with the numbers of the rule.
func TestLocalDecisions(t *testing.T) {
	s := localSite(t, "4/h", 0.5, httplimit.Config{})
	for _, left := range []string{"r=1", "r=0"} {
		got := s.get()
		require.Equal(t, 200, got.status)
		require.Contains(t, got.header.Get("RateLimit"), left)
	}
	got := s.get()
	requireProblem(t, got, 429)
	require.Len(t, got.header.Get("Retry-After"), 4, "an hour in seconds")
	require.Contains(t, got.header.Get("RateLimit-Policy"), "q=4")
}

// A call for more than the share, but not for more than Max, has fields that a
// client can read.
func TestALocalDenialOfMoreThanTheShare(t *testing.T) {
	s := localSite(t, "10/h, 20/d", 0.25, httplimit.Config{LegacyHeaders: true, Cost: func(*http.Request) (int64, error) { return 6, nil }})
	got := s.get()
	requireProblem(t, got, 429)
	require.NotContains(t, got.header.Get("RateLimit"), "t=-")
	require.NotContains(t, got.header.Get("X-RateLimit-Reset"), "-")
}
