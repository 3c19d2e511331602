package door

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
	"github.com/abacus-go/abacus/metrics/tally"
	"github.com/abacus-go/abacus/service/callers"
	"github.com/abacus-go/abacus/service/config"
)

// site is a handler of New behind a real server. Each of its answers is held to the
// OpenAPI file.
type site struct {
	*httptest.Server
	t       *testing.T
	limiter *limiter.Limiter
	clock   *limitertest.Clock
	faults  limitertest.Faults
	routes  routers.Router

	mu    sync.Mutex
	notes []string // of Config.Observe
}

const token = "0123456789abcdef"

var loopback = config.Network{Prefix: netip.MustParsePrefix("127.0.0.0/8")}

func newSite(t *testing.T, receipts bool, who ...config.Caller) *site {
	t.Helper()
	s := &site{t: t}
	cfg := limiter.Config{Rules: []limiter.Rule{
		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("2/m, 3/h")},
		{Event: "login", Kind: "ip", Limits: counter.MustLimits("9/h"), IfMissing: limiter.MissingShare},
		{Event: "login", Kind: "ip+user", Limits: counter.MustLimits("1/h")},
		{Event: "mail", Kind: "user", Limits: counter.MustLimits("2/m")},
	}}
	if receipts {
		cfg.ReceiptKey = []byte(token)
	}
	var numbers *tally.Tally
	cfg.Observe = func(d limiter.Decision) { numbers.Observe(d) }
	s.limiter, s.clock = limitertest.NewOn(t, s.faults.Wrap(memory.New(memory.Config{})), cfg)
	numbers = tally.New(s.limiter.Counter())
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	for i := range who {
		if who[i].TokenFile != "" {
			who[i].TokenFile = file
		}
	}
	set, err := callers.New(&config.Config{Callers: who})
	require.NoError(t, err)
	ip := config.Source{Header: "X-Forwarded-For", Proxies: []config.Network{loopback}}
	handler := New(Config{Limiter: s.limiter, Callers: set, Receipts: receipts, Status: tally.Status(s.limiter, numbers), Erase: func(ctx context.Context, _ []string, features []feature.Feature) error {
		return s.limiter.Erase(ctx, features...)
	}, Doors: map[string]config.Door{
		"signup": {Event: "signup", Deny: 429, Features: map[string]config.Source{"ip": ip}},
		"nginx":  {Event: "signup", Deny: 403, Features: map[string]config.Source{"ip": ip}},
		"other":  {Event: "signup", Deny: 401, Features: map[string]config.Source{"ip": ip}},
		"login":  {Event: "login", Deny: 429, Features: map[string]config.Source{"ip": ip, "user": {Header: "x-user"}}},
	}, Observe: func(verb config.Verb, caller string, status int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notes = append(s.notes, fmt.Sprintf("%s %s %d", verb, caller, status))
	}})
	s.Server = httptest.NewServer(handler)
	t.Cleanup(s.Close)
	answer, err := http.Get(s.URL + "/openapi.yaml")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	s.routes, err = legacy.NewRouter(doc)
	require.NoError(t, err)
	return s
}

// got is an answer.
type got struct {
	status int
	header http.Header
	body   string
}

// do sends a request with header lines. The answer is one of the OpenAPI file, and a
// request that the server understands is one too.
func (s *site) do(method, path, body string, lines ...string) got {
	s.t.Helper()
	request := func() *http.Request {
		r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		require.NoError(s.t, err)
		r.Header.Set("Content-Type", "application/json")
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			r.Header[name] = append(r.Header[name], value)
			if name == "Content-Type" {
				r.Header[name] = []string{value}
			}
		}
		return r
	}
	answer, err := http.DefaultClient.Do(request())
	require.NoError(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	if answer.StatusCode >= 400 {
		require.Equal(s.t, "application/problem+json", answer.Header.Get("Content-Type"), "%s", text)
	}
	r := request()
	if route, params, err := s.routes.FindRoute(r); err == nil {
		in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
		}}
		err := openapi3filter.ValidateRequest(context.Background(), in)
		if answer.StatusCode < 300 {
			require.NoError(s.t, err, "%s", body)
		}
		out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: answer.StatusCode, Header: answer.Header, Options: in.Options}
		require.NoError(s.t, openapi3filter.ValidateResponse(context.Background(), out.SetBodyBytes(text)), "%s", text)
	}
	return got{answer.StatusCode, answer.Header, string(text)}
}

var until = regexp.MustCompile(`;t=\d+`)

func TestDoors(t *testing.T) {
	s := newSite(t, false)
	for i, row := range []struct {
		door, lines string // separated by |
		want        int
		fields      string
	}{
		{"signup", "X-Forwarded-For: 192.0.2.1", 204, `"2/m";r=1, "3/h";r=2`},
		{"signup", "X-Forwarded-For: 198.51.100.7, 192.0.2.1", 204, `"2/m";r=0, "3/h";r=1`},
		{"signup", "X-Forwarded-For: 192.0.2.1|X-User: a|X-Real-Ip: 1.2.3.4|Forwarded: for=1.2.3.4", 429, `"2/m";r=0, "3/h";r=1`},
		{"nginx", "X-Forwarded-For: 192.0.2.1", 403, `"2/m";r=0, "3/h";r=1`},
		{"other", "X-Forwarded-For: 192.0.2.1", 401, `"2/m";r=0, "3/h";r=1`},
		{"nginx", "X-Forwarded-For: 192.0.2.2", 204, `"2/m";r=1, "3/h";r=2`},
		{"login", "X-Forwarded-For: 192.0.2.3|X-User: ada", 204, `"9/h";r=8`},
		{"login", "X-Forwarded-For: 192.0.2.3|X-User: ada", 429, `"9/h";r=8`},
		{"login", "X-Forwarded-For: 192.0.2.3|X-User: bob", 204, `"9/h";r=7`},
		{"login", "X-Forwarded-For: 192.0.2.3", 400, `"9/h";r=6`},
		{"login", "X-Forwarded-For: 192.0.2.3|X-User: eve", 204, `"9/h";r=5`},
		{"login", "X-Forwarded-For: 192.0.2.3|X-User: bob|X-User: eve", 400, `"9/h";r=4`},
		{"none", "X-Forwarded-For: 192.0.2.3", 404, ""},
	} {
		got := s.do("GET", "/auth/"+row.door, "", strings.Split(row.lines, "|")...)
		require.Equal(t, row.want, got.status, "%d %+v: %s", i, row, got.body)
		require.Equal(t, row.fields, until.ReplaceAllString(got.header.Get("RateLimit"), ""), "%d", i)
		require.Equal(t, "no-store", got.header.Get("Cache-Control"))
		if over := got.status == 429 || got.status == 403 || got.status == 401; over {
			require.NotEmpty(t, got.header.Get("Retry-After"))
			require.Contains(t, got.body, fmt.Sprintf(`"status":%d`, got.status))
		}
	}
	s.faults.Set(limitertest.Fault{Err: io.ErrUnexpectedEOF})
	require.Equal(t, 503, s.do("GET", "/auth/nginx", "", "X-Forwarded-For: 192.0.2.9").status)
	require.Equal(t, []string{"auth local 204", "auth local 204", "auth local 429"}, s.notes[:3])
}

// A door follows the rules, and a change that leaves a door without a limit is an
// error of Check.
func TestDoorsFollowTheRules(t *testing.T) {
	s := newSite(t, false)
	ask := func(path string) int {
		return s.do("GET", path, "", "X-Forwarded-For: 192.0.2.1", "X-User: ada").status
	}
	require.Equal(t, 204, ask("/auth/signup"))
	rules := s.limiter.Rules("login")
	require.NoError(t, s.limiter.ReplaceAll(append(rules, limiter.Rule{Event: "signup", Kind: "ip", Limits: counter.MustLimits("1/m, 3/h")})...))
	require.Equal(t, 429, ask("/auth/signup"))
	require.NoError(t, s.limiter.ReplaceAll(rules...))
	require.Equal(t, 500, ask("/auth/signup"))
	require.Equal(t, 204, ask("/auth/login"))
	byUser := rules[1]
	byUser.Kind = "user"
	for _, rule := range []limiter.Rule{byUser, rules[1]} { // another source each time
		require.NoError(t, s.limiter.ReplaceAll(rules[0], rule))
		require.NoError(t, s.limiter.Forget(t.Context(), "login", feature.New("ip+user", "192.0.2.1,ada"), feature.New("user", "ada")))
		require.Equal(t, 204, ask("/auth/login"), rule.Kind)
		require.Equal(t, 429, ask("/auth/login"), rule.Kind)
	}

	ip := map[string]config.Source{"ip": {Header: "X", Proxies: []config.Network{loopback}}, "user": {Header: "X-User"}}
	require.NoError(t, Check(s.limiter, &config.Config{
		Doors: map[string]config.Door{"login": {Event: "login", Features: ip}}, Callers: []config.Caller{{Events: []string{"login"}}},
	}))
	err := Check(s.limiter, &config.Config{Doors: map[string]config.Door{
		"a": {Event: "signup", Features: ip},
		"b": {Event: "login", Features: map[string]config.Source{"ip": ip["ip"], "email": {Header: "X"}, "fax": {Header: "X"}}},
	}, Callers: []config.Caller{{}, {Events: []string{"login", "mail", "x"}}}})
	for _, want := range []string{
		`callers[1].events[1]: no rule has the event "mail", want "login"`,
		`callers[1].events[2]: no rule has the event "x", want "login"`,
		`doors.a.event: no rule has the event "signup", want "login"`,
		`doors.b.features.email: no rule of the event limits by this feature`,
		`doors.b.features.fax: no rule of the event limits by this feature`,
		`doors.b.features: has kind "ip" only, but event`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// A peer that is none of the proxies and sends the header of the address is in the log,
// once a minute, with its own address alone.
func TestPeersOutsideOfProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		l, _ := limitertest.New(t, limiter.Rule{Event: "page", Kind: "ip", Limits: counter.MustLimits("1000/h")})
		everyone := config.Caller{Name: "all", From: []config.Peers{{Network: config.Network{Prefix: netip.MustParsePrefix("0.0.0.0/0")}}, {Unix: true}}, May: []config.Verb{config.Auth}}
		set, err := callers.New(&config.Config{Callers: []config.Caller{everyone}})
		require.NoError(t, err)
		handler := New(Config{Limiter: l, Callers: set, Doors: map[string]config.Door{
			"page": {Event: "page", Deny: 429, Features: map[string]config.Source{"ip": {Header: "x-forwarded-for", Proxies: []config.Network{loopback}}}},
		}, Observe: func(config.Verb, string, int) {}})
		lines := func(peer, line string) int {
			log.Reset()
			r := httptest.NewRequest("GET", "/auth/page", nil)
			r.RemoteAddr = peer
			if line != "" {
				r.Header.Set("X-Forwarded-For", line)
			}
			for range 10 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				require.Equal(t, 204, w.Code)
			}
			require.NotContains(t, log.String(), "198.51.100.7")
			return strings.Count(log.String(), "\n")
		}
		require.Zero(t, lines("127.0.0.1:5", "198.51.100.7"))
		require.Zero(t, lines("@", "198.51.100.7"))
		require.Zero(t, lines("192.0.2.7:5", ""))
		require.Equal(t, 1, lines("192.0.2.7:5", "198.51.100.7"))
		require.Contains(t, log.String(), `level=WARN msg="abacusd: a peer outside of proxies sends the header of a door, and is itself the client" door=page header=x-forwarded-for peer=192.0.2.7`)
		time.Sleep(time.Minute - time.Nanosecond)
		require.Zero(t, lines("192.0.2.8:5", "198.51.100.7"))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1, lines("192.0.2.8:5", "198.51.100.7"))
	})
}

func TestCalls(t *testing.T) {
	s := newSite(t, true, config.Caller{Name: "shop", From: []config.Peers{{Network: loopback}}, TokenFile: "set", May: config.Verbs})
	bearer := "Authorization: Bearer " + token
	two := `{"event":"mail","features":["user:ada"]}`
	receipt := ""
	for i, row := range []struct {
		path, body string
		status     int
		want       string // part of the answer
	}{
		{"peek", two, 200, `{"allowed":true,"outcome":"admitted","n":1,"retry_after":0,"limits":[{"feature":0,"kind":"user","limit":"2/m","remaining":1,"retry_after":0,"reset_after":0}]}`},
		{"take", `{"event":"mail","features":["user:ada"],"receipt":true}`, 200, `"remaining":1,"retry_after":0,"reset_after":61.1`},
		{"refund", `{"receipt":"RECEIPT"}`, 204, ""},
		{"refund", `{"receipt":"RECEIPT"}`, 409, "given back before"},
		{"take", `{"event":"mail","features":["user:ada"],"n":2}`, 200, `"allowed":true,"outcome":"admitted","n":2`},
		{"take", two, 200, `{"allowed":false,"outcome":"over-limit","n":0,"retry_after":61.2,"limits":[{"feature":0,"kind":"user","limit":"2/m","remaining":0,"retry_after":61.2,"reset_after":61.1}]}`},
		{"peek", `{"event":"mail","features":["user:ada"],"n":0}`, 200, `"allowed":true,"outcome":"admitted","n":0`},
		{"take", `{"event":"mail","features":["user:ada"],"n":3}`, 200, `"retry_after":null`},
		{"charge", `{"event":"mail","features":["user:ada"],"n":3}`, 200, `"allowed":false,"outcome":"over-limit","n":3`},
		{"usage", two, 200, `{"usage":[{"banned":0,"kind":"user","limits":[{"count":5,"limit":"2/m","remaining":0,"retry_after":61.2`},
		{"charge", `{"event":"mail","features":["user:ada"],"n":-4}`, 200, `"remaining":1`},
		{"forget", two, 204, ""},
		{"peek", `{"event":"mail","features":["user:ada"],"n":2}`, 200, `"allowed":true`},
		{"take", `{"event":"signup","features":["user:ada"]}`, 200, `"allowed":false,"outcome":"missing","n":0,"retry_after":null,"missing":"ip","limits":[]`},
		{"take", `{"event":"login","features":["ip+user:192.0.2.1,ada"]}`, 200, `{"feature":-1,"kind":"ip","limit":"9/h"`},
		{"take", `{"event":"mail","features":["user:a:b ü"]}`, 200, `"allowed":true`},
		{"take", "{\"event\":\"mail\",\"features\":[\"user:a\\u0000\\nb\"]}\n", 200, `"allowed":true`},

		{"take", `{"event":"none","features":["user:ada"]}`, 404, `no rule has the event \"none\".`},
		{"fly", two, 404, "no such verb"},
		{"auth", two, 404, "no such verb"},
		{"take", ``, 400, "no JSON object"},
		{"take", `null`, 400, "the field event is empty"},
		{"take", `[]`, 400, `is a JSON array`},
		{"take", `{"event":1}`, 400, `the field \"event\" is a JSON number`},
		{"take", `{"event":"mail","features":["user:a"],"n":1.5}`, 400, `the field \"n\"`},
		{"take", `{"event":"mail","features":["user:a"],"n":18446744073709551616}`, 400, `the field \"n\"`},
		{"take", `{"event":"mail","features":["user:a"],"n":9223372036854775807}`, 400, "out of range"},
		{"charge", `{"event":"mail","features":["user:a"],"n":-9223372036854775808}`, 400, "out of range"},
		{"take", `{"event":"mail","features":["user:a"],"n":0}`, 400, "out of range for take"},
		{"charge", `{"event":"mail","features":["user:a"],"n":0}`, 400, "out of range for charge"},
		{"peek", `{"event":"mail","features":["user:a"],"n":-1}`, 400, "out of range for peek"},
		{"usage", `{"event":"mail","features":["user:a"],"n":1}`, 400, "the field n is for"},
		{"peek", `{"event":"mail","features":["user:a"],"receipt":true}`, 400, "the field receipt is"},
		{"take", `{"event":"mail","features":["user:a"],"receipt":"true"}`, 400, "the field receipt is"},
		{"charge", `{"event":"mail","features":["user:a"],"receipt":true,"n":-1}`, 400, "no receipt"},
		{"take", two + two, 400, "goes on after"},
		{"take", two + "x", 400, "goes on after"},
		{"take", two[:20], 400, "no JSON object"},
		{"take", `{"event":"mail","features":["user:a"],"evnt":1}`, 400, "evnt"},
		{"take", "{\"event\":\"mail\",\"features\":[\"user:\xff\"]}", 400, "not UTF-8"},
		{"take", `{"event":"mail","features":[]}`, 400, "0 entries"},
		{"take", `{"event":"mail","features":[` + strings.Repeat(`"user:a",`, 100) + `"user:a"]}`, 400, "101 entries"},
		{"take", `{"event":"mail","features":["user"]}`, 400, "features[0] is no feature"},
		{"take", `{"event":"mail","features":["user:"]}`, 400, "features[0] is no feature"},
		{"take", `{"event":"mail","features":["us er:a",":a"]}`, 400, "features[1] is no feature"},
		{"take", `{"event":"signup","features":["ip:192.0.2.256"]}`, 400, "features[0] is no feature"},
		{"take", `{"event":"mail","features":["user:` + strings.Repeat("a", maxFeature) + `"]}`, 400, "features[0] is no feature"},
		{"take", `{"event":"` + strings.Repeat("a", maxFeature+1) + `","features":["user:a"]}`, 400, "the field event is"},
		{"take", strings.Repeat(" ", maxBody) + "{}", 413, "more than 65536"},
		{"take", strings.Repeat("[", maxBody), 400, "no JSON object"},
		{"forget", `{"event":"mail","features":["ip:192.0.2.1"]}`, 400, "no rule for these features"},
		{"erase", `{"features":["user:a"],"event":"mail"}`, 400, "of all events"},
		{"erase", `{"features":["user:a"],"n":1}`, 400, "the field n is for"},
		{"erase", `{"features":[]}`, 400, "0 entries"},
		{"erase", `{"features":["email:a@example.org"]}`, 400, "no rule for these features"},
		{"refund", `{}`, 400, "want the field receipt as text"},
		{"refund", `{"receipt":true}`, 400, "want the field receipt as text"},
		{"refund", `{"receipt":"a","event":"mail"}`, 400, "no other field"},
		{"refund", `{"receipt":"é"}`, 400, "none of this service"},
		{"refund", `{"receipt":"AAAA"}`, 400, "none of this service"},
	} {
		got := s.do("POST", "/v1/"+row.path, strings.Replace(row.body, "RECEIPT", receipt, 1), bearer)
		require.Equal(t, row.status, got.status, "%d %.200s: %s", i, row.body, got.body)
		require.Contains(t, got.body, row.want, "%d %.200s", i, row.body)
		require.NotContains(t, got.body, "192.0.2.256")
		var with struct{ Receipt string }
		if json.Unmarshal([]byte(got.body), &with); with.Receipt != "" {
			receipt = with.Receipt
		}
	}
	require.NotEmpty(t, receipt)

	var late struct{ Receipt string }
	require.NoError(t, json.Unmarshal([]byte(s.do("POST", "/v1/take", `{"event":"mail","features":["user:eve"],"receipt":true}`, bearer).body), &late))
	s.clock.Advance(time.Hour)
	require.Equal(t, 410, s.do("POST", "/v1/refund", `{"receipt":"`+late.Receipt+`"}`, bearer).status)
	for verb, body := range map[string]string{"usage": two, "forget": two, "erase": `{"features":["user:ada"]}`, "charge": `{"event":"mail","features":["user:a"],"n":-1}`} {
		s.faults.Set(limitertest.Fault{Err: io.ErrUnexpectedEOF})
		got := s.do("POST", "/v1/"+verb, body, bearer)
		require.Equal(t, 503, got.status, "%s: %s", verb, got.body)
		require.Equal(t, "1", got.header.Get("Retry-After"))
		s.faults.Set(limitertest.Fault{})
	}
	s.faults.Set(limitertest.Fault{Err: io.ErrUnexpectedEOF})
	require.Contains(t, s.do("POST", "/v1/take", two, bearer).body, `{"allowed":false,"outcome":"failed-closed"`)
	s.faults.Set(limitertest.Fault{})
}

func TestWhoIsAnswered(t *testing.T) {
	s := newSite(t, false,
		config.Caller{Name: "shop", TokenFile: "set", May: []config.Verb{config.Take, config.Auth}, Events: []string{"mail"}})
	bearer, two := "Authorization: Bearer "+token, `{"event":"mail","features":["user:ada"]}`
	for _, row := range []struct {
		method, path, body, line string
		status                   int
		note                     string
	}{
		{"POST", "/v1/take", two, bearer, 200, "take shop 200"},
		{"POST", "/v1/take", two, "X: y", 401, "take  401"},
		{"POST", "/v1/take", "not read", bearer + "0", 401, "take  401"},
		{"POST", "/v1/forget", "not read", bearer, 403, "forget  403"},
		{"POST", "/v1/erase", "not read", bearer, 403, "erase  403"},
		{"GET", "/v1/status", "", bearer, 403, "status  403"},
		{"GET", "/v1/status", "", "X: y", 401, "status  401"},
		{"POST", "/v1/take", strings.Replace(two, "mail", "signup", 1), bearer, 403, "take shop 403"},
		{"POST", "/v1/take", `{"event":"mail","features":["user:a"],"receipt":true}`, bearer, 400, "take shop 400"},
		{"GET", "/v1/take", "", bearer, 405, "take shop 405"},
		{"PUT", "/v1/take", two, bearer, 405, "take shop 405"},
		{"POST", "/v1/take", two, bearer + "|Content-Type: text/plain", 415, "take shop 415"},
		{"POST", "/v1/take", two, bearer + "|Content-Type: application/json; charset=utf-8", 200, "take shop 200"},
		{"POST", "/v1/no-verb", two, bearer, 404, "  404"},
		{"GET", "/auth/signup", "", "X: y", 500, "auth  500"},
		{"GET", "/auth/signup", "", bearer, 500, "auth shop 500"},
		{"GET", "/auth/none", "", "X: y", 404, "auth  404"},
	} {
		s.notes = nil
		got := s.do(row.method, row.path, row.body, strings.Split(row.line, "|")...)
		require.Equal(t, row.status, got.status, "%+v: %s", row, got.body)
		require.Equal(t, []string{row.note}, s.notes, "%+v", row)
		require.Equal(t, row.status == 401, got.header.Get("WWW-Authenticate") != "")
	}
	require.Equal(t, 404, s.do("GET", "/", "").status)
	require.Equal(t, 404, s.do("POST", "/v1/take/x", "").status)
}

// Support finds a user on the status page, and erases the user of all events: from the
// store and from the page.
func TestStatusAndErase(t *testing.T) {
	s := newSite(t, true, config.Caller{Name: "support", TokenFile: "set", May: []config.Verb{config.Take, config.Usage, config.Erase, config.Status}})
	bearer := "Authorization: Bearer " + token
	const ip, both = `"ip:192.0.2.7"`, `"ip:192.0.2.7","ip+user:192.0.2.7,ada"`
	for event, features := range map[string]string{"mail": `"user:ada"`, "login": both, "signup": ip} {
		for n, want := range map[string]string{"1": `"allowed":true`, "10": `"allowed":false`} {
			require.Contains(t, s.do("POST", "/v1/take", fmt.Sprintf(`{"event":%q,"features":[%s],"n":%s}`, event, features, n), bearer).body, want)
		}
	}
	asked := []string{"Accept: application/json", "Accept: text/plain"}
	for _, accept := range asked {
		got := s.do("GET", "/v1/status", "", bearer, accept)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, "no-store", got.header.Get("Cache-Control"))
		for _, want := range []string{"ada", "192.0.2.7", "over-limit", "2/m"} {
			require.Contains(t, got.body, want)
		}
	}
	require.Equal(t, 405, s.do("POST", "/v1/status", "{}", bearer).status)
	require.Equal(t, 204, s.do("POST", "/v1/erase", `{"features":[`+both+`]}`, bearer).status)
	for _, accept := range asked {
		got := s.do("GET", "/v1/status", "", bearer, accept)
		require.NotContains(t, got.body, "192.0.2.7")
		require.Contains(t, got.body, "ada")
	}
	for of, count := range map[string]string{`"login","features":[` + both: "0", `"signup","features":[` + ip: "0", `"mail","features":["user:ada"`: "1"} {
		require.Contains(t, s.do("POST", "/v1/usage", `{"event":`+of+`]}`, bearer).body, `"count":`+count)
	}
}

// A body that is cut off is no answer and no hit.
func TestABodyThatIsCutOff(t *testing.T) {
	s := newSite(t, false)
	body := bytes.NewReader([]byte(`{"event":"mail","features":["user:ada"]}`))
	r, err := http.NewRequest("POST", s.URL+"/v1/take", io.MultiReader(body, broken{}))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	_, err = http.DefaultClient.Do(r)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Contains(t, s.do("POST", "/v1/peek", `{"event":"mail","features":["user:ada"]}`).body, `"remaining":1`)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
