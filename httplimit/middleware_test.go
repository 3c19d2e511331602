package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// newClock stands still until Advance. Its first second begins a minute and an hour
// too, so a hit leaves a window of a minute after 61 s.
func newClock() *limitertest.Clock { return new(limitertest.Clock) }

// by is a rule of the event "signup".
func by(kind, limits string) limiter.Rule {
	return limiter.Rule{Event: "signup", Kind: kind, Limits: counter.MustLimits(limits)}
}

func skipped(r limiter.Rule) limiter.Rule { r.IfMissing = limiter.MissingSkip; return r }

// newLimiter counts on the embedded store, at c's time.
func newLimiter(t testing.TB, c *limitertest.Clock, rules ...limiter.Rule) *limiter.Limiter {
	t.Helper()
	return newLimiterOn(t, memory.New(memory.Config{}), counter.Config{Now: c.Now}, limiter.Config{Rules: rules})
}

func newLimiterOn(t testing.TB, store backend.Store, cc counter.Config, lc limiter.Config) *limiter.Limiter {
	c := try.To(counter.New(store, cc))(t)
	return try.To(limiter.New(c, lc))(t)
}

// newLimit is a middleware for the event "signup", unless cfg says otherwise.
func newLimit(t testing.TB, cfg httplimit.Config) func(http.Handler) http.Handler {
	if cfg.Event == "" {
		cfg.Event = "signup"
	}
	return try.To(httplimit.New(cfg))(t)
}

var (
	byIP    = httplimit.IP(httplimit.ClientIP{})
	byEmail = httplimit.Email(httplimit.Form("email"))
	byUser  = httplimit.NewSource("user", httplimit.Header("User"))
)

// site is a server with a connection of its own.
type site struct {
	t testing.TB
	*httptest.Server
}

func newSite(t testing.TB, h http.Handler) *site {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &site{t, s}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request with header lines: "User: 7".
func (s *site) do(method, path, body string, lines ...string) answer {
	r := try.To(http.NewRequest(method, s.URL+path, strings.NewReader(body)))(s.t)
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		r.Header.Add(key, value)
	}
	got := try.To(s.Client().Do(r))(s.t)
	defer got.Body.Close()
	return answer{got.StatusCode, got.Header, string(try.To(io.ReadAll(got.Body))(s.t))}
}

func (s *site) get(lines ...string) answer { s.t.Helper(); return s.do("GET", "/", "", lines...) }

const asForm = "Content-Type: application/x-www-form-urlencoded"

func (s *site) signUp(email string) answer {
	s.t.Helper()
	return s.do("POST", "/", url.Values{"email": {email}}.Encode(), asForm)
}

var welcome = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "welcome") })

// mirror answers with its body.
var mirror = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusTeapot)
	}
	_, _ = w.Write(body)
})

func TestNewNamesWhatIsWrong(t *testing.T) {
	lim := newLimiter(t, newClock(), by("ip", "1/d"), by("email", "1/d"),
		limiter.Rule{Event: "export", Kind: "user", Limits: counter.MustLimits("1/d"), IfMissing: limiter.MissingSkip})
	both := []httplimit.Source{byIP, byEmail}
	for _, row := range []struct {
		want string
		cfg  httplimit.Config
	}{
		{`httplimit: Config.Limiter is nil, want one of limiter.New`, httplimit.Config{Event: "signup", Features: both}},
		{`httplimit: Config.Event is "", but Config.Limiter has rules for "export" and "signup" only`, httplimit.Config{Limiter: lim, Features: both}},
		{`httplimit: Config.Event is "sign-up", but Config.Limiter has rules for "export" and "signup" only`, httplimit.Config{Limiter: lim, Event: "sign-up", Features: both}},
		{`httplimit: Config.Features has nothing, but event "signup" has a rule by "ip" that denies a request without (IfMissing is deny)`, httplimit.Config{Limiter: lim, Event: "signup"}},
		{`httplimit: Config.Features has kind "ip" only, but event "signup" has a rule by "email" that denies a request without (IfMissing is deny)`, httplimit.Config{Limiter: lim, Event: "signup", Features: both[:1]}},
		{`httplimit: Config.Features has kind "user", but event "signup" has rules by "ip" and "email" only`, httplimit.Config{Limiter: lim, Event: "signup", Features: append(both, byUser)}},
		{`httplimit: Config.Features[2] is the zero Source, want one of IP, Email or NewSource`, httplimit.Config{Limiter: lim, Event: "signup", Features: append(both, httplimit.Source{})}},
		{`httplimit: Config.Features has nothing, but event "export" has only rules that skip a request without (IfMissing is skip)`, httplimit.Config{Limiter: lim, Event: "export"}},
		{`httplimit: Config.Refuse is 3, want RefuseTooManyRequests (0), RefuseForbidden (1) or RefuseSilently (2)`, httplimit.Config{Limiter: lim, Event: "signup", Features: both, Refuse: 3}},
		{`httplimit: Config.Features[2] has kind "email": the Value is nil, want a function such as Form("email")`, httplimit.Config{Limiter: lim, Event: "signup", Features: append(both, httplimit.Email(nil))}},
		{`httplimit: Config.Features[2] has kind "ip": the Value is nil, want a function such as Form("ip")`, httplimit.Config{Limiter: lim, Event: "signup", Features: append(both, httplimit.NewSource("ip", nil))}},
	} {
		limit, err := httplimit.New(row.cfg)
		require.EqualError(t, err, row.want)
		require.Nil(t, limit)
	}
	try.To(httplimit.New(httplimit.Config{Limiter: lim, Event: "signup", Features: both}))(t)
	shared := limiter.Rule{Event: "export", Kind: "all", Limits: counter.MustLimits("1/d"), IfMissing: limiter.MissingShare}
	_, err := httplimit.New(httplimit.Config{Limiter: newLimiter(t, newClock(), shared), Event: "export"})
	require.NoError(t, err, "one key for all needs no feature")
}

func TestConfigIsCopied(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	cfg := httplimit.Config{
		Limiter:  newLimiter(t, newClock(), by("ip", "1/d"), by("user", "5/d")),
		Event:    "signup",
		Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{Proxies: proxies}), byUser},
		Show:     []string{"ip"},
	}
	limit := try.To(httplimit.New(cfg))(t)
	proxies[0] = netip.MustParsePrefix("127.0.0.0/8")
	cfg.Features[1] = httplimit.NewSource("user", httplimit.Header("Other"))
	cfg.Show[0] = "user"
	require.NoError(t, cfg.Limiter.Replace(by("ip", "1/d"), by("user", "5/d"))) // fields are made again
	s := newSite(t, limit(welcome))
	got := s.get("User: 7", "X-Forwarded-For: 198.51.100.1")
	require.Equal(t, 200, got.status)
	require.Equal(t, `"1/d";r=0;t=86401`, got.header.Get("RateLimit"))
	require.Equal(t, 429, s.get("User: 8", "X-Forwarded-For: 198.51.100.2").status)
}

func TestWritesOnly(t *testing.T) {
	s := newSite(t, newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "2/d")), Features: []httplimit.Source{byIP}, WritesOnly: true})(welcome))
	limited, reading := []string{"POST", "PUT", "PATCH", "DELETE", "get", "PROPFIND", "CONNECTED"}, []string{"GET", "HEAD", "OPTIONS", "TRACE"}
	for _, method := range limited { // which use up the limit
		require.NotEmpty(t, s.do(method, "/", "").header.Get("RateLimit-Policy"), method)
	}
	for _, method := range reading {
		got := s.do(method, "/", "")
		require.Equal(t, 200, got.status, method)
		require.Empty(t, got.header.Get("RateLimit-Policy"), method)
	}
	require.Equal(t, 429, s.do("POST", "/", "").status)
}

func TestAppliesSaysWhoIsLimited(t *testing.T) {
	var refund error
	s := newSite(t, newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "1/d")), Features: []httplimit.Source{byIP},
		Applies: func(r *http.Request) bool { return r.Header.Get("Staff") == "" }, VerdictInContext: true,
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, limited := httplimit.VerdictOf(r.Context(), "signup")
		refund = httplimit.Refund(r.Context(), "signup")
		fmt.Fprint(w, limited)
	})))
	require.Equal(t, "true", s.get().body)
	require.NoError(t, refund)
	for range 3 {
		got := s.get("Staff: yes")
		require.Equal(t, "false", got.body)
		require.Empty(t, got.header.Values("RateLimit-Policy"))
		require.EqualError(t, refund, `httplimit: refund: no middleware for event "signup" around this handler has VerdictInContext or RefundIf`)
	}
	require.Equal(t, "true", s.get().body, "the refund stands")
}

func TestCost(t *testing.T) {
	const form = "name=A&seats=3&email=a%40b.example"
	broken := errors.New("no such plan: 198.51.100.7")
	for _, row := range []struct {
		name   string
		cost   func(r *http.Request) (int64, error)
		status int
		left   string // RateLimit, or the problem's detail
	}{
		{"default", nil, 200, `"10/d";r=9;t=86401`},
		{"one", func(*http.Request) (int64, error) { return 1, nil }, 200, `"10/d";r=9;t=86401`},
		{"seven", func(*http.Request) (int64, error) { return 7, nil }, 200, `"10/d";r=3;t=86401`},
		{"all", func(*http.Request) (int64, error) { return 10, nil }, 200, `"10/d";r=0;t=86401`},
		{"more than ever", func(*http.Request) (int64, error) { return 11, nil }, 429, ""},
		{"the largest number", func(*http.Request) (int64, error) { return counter.MaxCount, nil }, 429, ""},
		{"zero", func(*http.Request) (int64, error) { return 0, nil }, 400, "The cost of this request must be 1 to 9007199254740991."},
		{"negative", func(*http.Request) (int64, error) { return -1, nil }, 400, "The cost of this request must be 1 to 9007199254740991."},
		{"lowest", func(*http.Request) (int64, error) { return math.MinInt64, nil }, 400, "The cost of this request must be 1 to 9007199254740991."},
		{"huge", func(*http.Request) (int64, error) { return counter.MaxCount + 1, nil }, 400, "The cost of this request must be 1 to 9007199254740991."},
		{"error", func(*http.Request) (int64, error) { return 1, broken }, 400, "The cost of this request is not known."},
		{"ValueError", func(*http.Request) (int64, error) {
			return 1, fmt.Errorf("%w", &httplimit.ValueError{Status: 422, Source: "seats", Reason: "are too many"})
		}, 422, `The field \"seats\" are too many.`},
		{"of a form", func(r *http.Request) (n int64, err error) {
			_, err = fmt.Sscan(r.FormValue("seats"), &n)
			return n, err
		}, 200, `"10/d";r=7;t=86401`},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSite(t, newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "10/d")), Features: []httplimit.Source{byIP}, Cost: row.cost})(mirror))
			got := s.do("POST", "/", form, asForm)
			require.Equal(t, row.status, got.status, got.body)
			switch row.status {
			case 200:
				require.Equal(t, form, got.body)
				require.Equal(t, row.left, got.header.Get("RateLimit"))
			case 429:
				require.NotContains(t, got.header, "Retry-After")
				require.NotContains(t, got.header.Get("RateLimit"), "t=")
			default:
				require.Contains(t, got.body, row.left)
				require.NotContains(t, got.body, "198.51.100.7")
				require.Equal(t, `"10/d";r=9;t=86401`, got.header.Get("RateLimit"), "a hit is counted")
			}
		})
	}
}

// FuzzRequest sends anything through a middleware: no panic, no failure of the
// server, and the handler reads the bytes that were sent.
func FuzzRequest(f *testing.F) {
	f.Add(uint8(0), "POST", "/?email=a@b.example", "Content-Type: application/x-www-form-urlencoded\nUser: 7", "email=a%40b.example")
	f.Add(uint8(1), "POST", "/", "Content-Type: application/json\nCookie: s=1; s=2", `{"email": "a@b.example", "n": 7}`)
	f.Add(uint8(2), "PUT", "/%zz?;", "Content-Type: multipart/form-data; boundary=x\nForwarded: for=_a\nAuthorization: Basic Og==", "--x\r\n\r\n--x--")
	f.Add(uint8(3), "GET", "*", "X-Forwarded-For: ,, 198.51.100.7\nContent-Encoding: gzip", "\x00")
	trusted := httplimit.IP(httplimit.ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	sets := [][]httplimit.Source{
		{trusted, byEmail, byUser},
		{trusted, httplimit.Email(httplimit.JSON("email")), httplimit.NewSource("user", httplimit.JSON("n"))},
		{trusted, httplimit.NewSource("email", httplimit.Cookie("s")), httplimit.NewSource("user", httplimit.BasicUser())},
		{trusted, httplimit.Email(httplimit.Header("From")), httplimit.NewSource("user", httplimit.Form("name"))},
	}
	f.Fuzz(func(t *testing.T, set uint8, method, target, lines, body string) {
		r := &http.Request{
			Method: method, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RequestURI: target,
			RemoteAddr: "192.0.2.1:567", Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}
		var err error
		if r.URL, err = url.ParseRequestURI(target); err != nil {
			r.URL = &url.URL{RawQuery: target}
		}
		for line := range strings.SplitSeq(lines, "\n") {
			key, value, _ := strings.Cut(line, ": ")
			r.Header.Add(key, value)
		}
		ran := false
		handler := newLimit(t, httplimit.Config{
			Limiter:  newLimiter(t, newClock(), skipped(by("ip", "1/d")), skipped(by("email", "2/m, 3/d")), skipped(by("user", "1/d"))),
			Features: sets[int(set)%len(sets)], Show: []string{"ip", "email", "user"}, LegacyHeaders: true,
			RefundIf: func(status int) bool { return status == 200 },
		})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			mirror(w, r)
		}))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Less(t, w.Code, 500)
		if ran {
			require.Equal(t, body, w.Body.String())
		} else {
			require.NotEqual(t, 200, w.Code)
		}
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			requireItems(t, w.Header(), name)
		}
	})
}

type outerKey struct{}

// An admitted request goes on itself, unless the handler is to have the verdict, or the
// body was read and begins again.
func TestAdmittedRequestGoesOnItself(t *testing.T) {
	for _, row := range []struct {
		name              string
		with              func(*httplimit.Config)
		body              string
		itself, inContext bool
	}{
		{"by default", func(*httplimit.Config) {}, "", true, false},
		{"with a body that no Value reads", func(*httplimit.Config) {}, "email=a%40b.example", true, false},
		{"after Values", func(c *httplimit.Config) { c.Features = append(c.Features, byUser) }, "email=a%40b.example", true, false},
		{"after its body was read", func(c *httplimit.Config) { c.Features = append(c.Features, byEmail) }, "email=a%40b.example", false, false},
		{"with VerdictInContext", func(c *httplimit.Config) { c.VerdictInContext = true }, "", false, true},
		{"with RefundIf", func(c *httplimit.Config) { c.RefundIf = func(int) bool { return false } }, "", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := httplimit.Config{
				Limiter:  newLimiter(t, newClock(), by("ip", "9/h"), skipped(by("email", "9/h")), skipped(by("user", "9/h"))),
				Features: []httplimit.Source{byIP},
			}
			row.with(&cfg)
			r := httptest.NewRequest("POST", "/", strings.NewReader(row.body)).WithContext(context.WithValue(t.Context(), outerKey{}, "outer"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			ran := false
			newLimit(t, cfg)(http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) {
				ran = true
				require.Equal(t, row.itself, inner == r)
				require.Equal(t, "outer", inner.Context().Value(outerKey{}))
				_, ok := httplimit.VerdictOf(inner.Context(), "signup")
				require.Equal(t, row.inContext, ok)
				require.Equal(t, row.inContext, httplimit.Refund(inner.Context(), "signup") == nil)
				require.Equal(t, row.body != "", inner.FormValue("email") == "a@b.example")
			})).ServeHTTP(httptest.NewRecorder(), r)
			require.True(t, ran)
		})
	}
}
