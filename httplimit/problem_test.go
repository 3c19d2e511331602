package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// A handler that is Invalid itself shows its form again, filled in, and works only
// for requests that were admitted.
func TestInvalidByTheHandlerItself(t *testing.T) {
	worked := 0
	signUp := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := httplimit.ProblemOf(r.Context()); ok {
			var e *httplimit.ValueError
			v, _ := httplimit.VerdictOf(r.Context(), "signup")
			w.WriteHeader(p.Status)
			fmt.Fprintf(w, "%t %q %q", errors.As(p.Err, &e) && !v.Allowed, e.Reason, r.FormValue("name"))
			return
		}
		worked++
	})
	asked := 0
	s := newSite(t, newLimit(t, httplimit.Config{
		Limiter:  newLimiter(t, newClock(), by("ip", "99/h"), by("email", "9/h")),
		Features: []httplimit.Source{byIP, byEmail}, MaxBody: 100, Invalid: signUp,
		RefundIf: func(int) bool { asked++; return true },
	})(signUp))
	for _, row := range []struct {
		form, line string
		status     int
		body       string
	}{
		{"name=Ada", "Accept: */*", 400, `true "is required" "Ada"`},
		{"name=Ada&email=nonsense", "Accept: */*", 400, `true "must be an e-mail address" "Ada"`},
		{"name=Ada&email=" + strings.Repeat("a", 100), "Accept: */*", 413, `true "the request is larger than 100 bytes" "Ada"`},
		{"name=Ada", "Content-Encoding: gzip", 415, `true "the request must not be compressed" "Ada"`},
	} {
		for range 3 {
			got := s.do("POST", "/", row.form, asForm, row.line)
			require.Equal(t, row.status, got.status)
			require.Equal(t, row.body, got.body)
		}
	}
	require.Zero(t, worked)
	require.Zero(t, asked, "there is no hit to give back")
	require.Equal(t, 200, s.signUp("ada@example.org").status)
	require.Equal(t, 1, worked)
}

// Handlers of one's own change the Problem, add a Link, or leave the answer as it
// would have been.
func TestProblemOf(t *testing.T) {
	banning := by("ip", "1/h")
	banning.Ban = limiter.Bans{2 * time.Hour}
	const link = `<https://docs.example.org/limits>; rel="help"`
	changed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := httplimit.ProblemOf(r.Context())
		p.Type, p.Instance, p.Detail = "https://docs.example.org/limits#"+fmt.Sprint(p.Banned), "/requests/7", "Buy a plan."
		w.Header().Set("Link", link)
		p.ServeHTTP(w, r)
	})
	same := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := httplimit.ProblemOf(r.Context())
		p.ServeHTTP(w, r)
	})
	for _, row := range []struct {
		name string
		lim  func() *limiter.Limiter
		want string // the type
	}{
		{"over", func() *limiter.Limiter { return newLimiter(t, newClock(), by("ip", "1/h")) }, "#quota-exceeded"},
		{"over both", func() *limiter.Limiter { return newLimiter(t, newClock(), by("ip", "1/h, 1/d")) }, "#quota-exceeded"},
		{"banned", func() *limiter.Limiter { return newLimiter(t, newClock(), banning) }, "#abnormal-usage-detected"},
		{"by plan, banned", func() *limiter.Limiter {
			by := banning
			by.Else, by.ElseLimits = "email", banning.Limits
			return newLimiter(t, newClock(), by)
		}, "#abnormal-usage-detected"},
		{"missing", func() *limiter.Limiter { return newLimiter(t, newClock(), by("ip", "9/h"), by("user", "9/h")) }, ""},
		{"failed", func() *limiter.Limiter {
			return newLimiterOn(t, backend.FromDo(brokenStore{}.Do), counter.Config{}, limiter.Config{Rules: []limiter.Rule{by("ip", "1/h")}})
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			last := func(h http.Handler) (answer, map[string]any) {
				cfg := httplimit.Config{Limiter: row.lim(), Features: []httplimit.Source{byIP}, Denied: h, Failed: h, Invalid: h}
				if row.name == "missing" {
					cfg.Features = append(cfg.Features, byUser)
				}
				s := newSite(t, newLimit(t, cfg)(welcome))
				s.get()
				got := s.get()
				require.NotEqual(t, 200, got.status)
				return got, requireProblem(t, got, got.status)
			}
			plain, byDefault := last(nil)
			asIs, _ := last(same)
			asIs.header["Date"] = plain.header["Date"]
			if row.name == "failed" { // at random
				asIs.header["Retry-After"] = plain.header["Retry-After"]
			}
			require.Equal(t, plain, asIs)
			require.Equal(t, row.want != "", byDefault["type"] != nil)
			if row.want != "" {
				require.Contains(t, byDefault["type"], row.want)
			}
			banned := strings.HasSuffix(row.name, "banned")
			require.Equal(t, banned, byDefault["banned"] == true)
			require.Equal(t, banned, strings.Contains(fmt.Sprint(byDefault["title"]), "abnormal"))

			got, problem := last(changed)
			require.Equal(t, []string{link}, got.header.Values("Link"))
			require.Equal(t, fmt.Sprintf("https://docs.example.org/limits#%t", banned), problem["type"])
			require.Equal(t, "Buy a plan.", problem["detail"])
			require.Equal(t, "/requests/7", problem["instance"])
			require.Equal(t, byDefault["violated-policies"], problem["violated-policies"])
		})
	}
}

// Of several middlewares the Problem is that of the middleware that did not admit
// the request, even if a middleware further inside admitted the request.
func TestProblemOfNested(t *testing.T) {
	_, known := httplimit.ProblemOf(t.Context())
	require.False(t, known)
	form := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, bad := httplimit.ProblemOf(r.Context())
		fmt.Fprint(w, bad, " ", p.Status, " ", p.Detail)
	})
	c := newClock()
	inner := newLimit(t, httplimit.Config{Limiter: newLimiter(t, c, by("ip", "9/h")), Features: []httplimit.Source{byIP}})(form)
	outer := newLimit(t, httplimit.Config{Limiter: newLimiter(t, c, by("email", "9/h")), Features: []httplimit.Source{byEmail}, Invalid: inner})(inner)
	s := newSite(t, outer)
	require.Equal(t, "true 400 The form field \"email\" must be an e-mail address.", s.signUp("nonsense").body)
	require.Equal(t, "false 0 ", s.signUp("ada@example.org").body)
}

// A rule whose kind is shown shows the addresses of Else as well, and by default
// addresses only.
func TestShowOfElse(t *testing.T) {
	rule := by("user", "2/h")
	rule.Else, rule.ElseLimits = "ip", counter.MustLimits("5/h")
	for _, row := range []struct {
		show          []string
		address, user bool // sees its count
	}{{nil, true, false}, {[]string{"user"}, true, true}, {[]string{"ip"}, true, false}, {[]string{}, false, false}} {
		s := newSite(t, newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rule), Features: []httplimit.Source{byUser, byIP}, Show: row.show})(welcome))
		require.Equal(t, row.address, s.get().header.Get("RateLimit") != "", row)
		require.Equal(t, row.user, s.get("User: 7").header.Get("RateLimit") != "", row)
	}
}
