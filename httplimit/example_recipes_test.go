package httplimit_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// configure is the Config of the examples below: an event that is limited by the
// client's address.
func configure(event, limits string) httplimit.Config {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: event, Kind: "ip", Limits: counter.MustLimits(limits)}}})
	if err != nil {
		log.Fatal(err)
	}
	return httplimit.Config{Limiter: lim, Event: event, Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{})}}
}

func must(limit func(http.Handler) http.Handler, err error) func(http.Handler) http.Handler {
	if err != nil {
		log.Fatal(err)
	}
	return limit
}

// send sends a request with header lines: "Origin: https://example.org".
func send(h http.Handler, method, body string, lines ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, "/", strings.NewReader(body)), httptest.NewRecorder()
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	h.ServeHTTP(w, r)
	return w
}

// A problem detail of one's own: a link to a page, the kind of problem by that page,
// and the same for each answer of the middleware.
func ExampleProblemOf() {
	cfg := configure("export", "1/d")
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := httplimit.ProblemOf(r.Context())
		p.Type = "https://docs.example.org/limits"
		if p.Banned {
			p.Type += "#bans"
		}
		p.Instance = "/requests/" + r.Header.Get("X-Request-ID")
		w.Header().Set("Link", `<https://docs.example.org/limits>; rel="help"`)
		p.ServeHTTP(w, r) // or a page, if the client is a browser
	})
	cfg.Denied, cfg.Failed, cfg.Invalid = answer, answer, answer
	export := must(httplimit.New(cfg))(http.NotFoundHandler())
	send(export, "GET", "", "X-Request-ID: 1")
	fmt.Print(send(export, "GET", "", "X-Request-ID: 2").Body)
	// Output:
	// {"type":"https://docs.example.org/limits","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"instance":"/requests/2","violated-policies":["1/d"]}
}

// A page of another origin reads the fields that are exposed, if the layer for CORS
// is outside: a denial inside of it has its fields too, and preflights never reach
// the limit.
func ExampleConfig_crossOrigin() {
	cors := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "https://shop.example.org")
			w.Header().Add("Vary", "Origin")
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Header().Set("Access-Control-Expose-Headers", "RateLimit, RateLimit-Policy, Retry-After, Link")
			next.ServeHTTP(w, r)
		})
	}
	limit := must(httplimit.New(configure("order", "1/d")))
	orders := cors(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) })))
	for _, method := range []string{"OPTIONS", "POST", "OPTIONS", "POST"} {
		w := send(orders, method, "", "Origin: https://shop.example.org", "Access-Control-Request-Method: POST")
		fmt.Println(method, w.Code, w.Header().Get("RateLimit") != "", w.Header().Get("Access-Control-Allow-Origin"))
	}
	// Output:
	// OPTIONS 204 false https://shop.example.org
	// POST 201 true https://shop.example.org
	// OPTIONS 204 false https://shop.example.org
	// POST 429 true https://shop.example.org
}

// A layer that takes the method from a header stands outside of WritesOnly. Inside,
// a GET that is a POST to the handler would not be counted.
func ExampleConfig_methodOverride() {
	override := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if method := r.Header.Get("X-HTTP-Method-Override"); method != "" {
				r.Method = method
			}
			next.ServeHTTP(w, r)
		})
	}
	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) })
	for _, outside := range []bool{true, false} {
		cfg := configure("order", "1/d")
		cfg.WritesOnly = true
		limit := must(httplimit.New(cfg))
		h := override(limit(order))
		if !outside {
			h = limit(override(order)) // wrong
		}
		for range 2 {
			fmt.Print(send(h, "GET", "", "X-HTTP-Method-Override: POST").Code, " ")
		}
		fmt.Println("outside:", outside)
	}
	// Output:
	// 201 429 outside: true
	// 201 201 outside: false
}

// One request of GraphQL can guess many passwords, by aliases. Cost counts the
// guarded field wherever the query has the word: rather too often than too seldom.
func ExampleConfig_graphQL() {
	guarded := regexp.MustCompile(`\blogin\b`)
	cfg := configure("login", "5/h")
	cfg.Cost = func(r *http.Request) (int64, error) {
		var body struct{ Query string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return 0, err
		}
		return int64(max(1, len(guarded.FindAllStringIndex(body.Query, -1)))), nil
	}
	api := must(httplimit.New(cfg))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, query := range []string{
		`mutation {a: login(password: \"1\") {id} b: login(password: \"2\") {id} c: \u006cogin(password: \"3\") {id}}`,
		`mutation {a: login(password: \"4\") {id} b: login(password: \"5\") {id} c: login(password: \"6\") {id}}`,
		`{news {title}}`,
	} {
		w := send(api, "POST", `{"query": "`+query+`"}`)
		fmt.Println(w.Code, strings.Split(w.Header().Get("RateLimit"), ";t=")[0])
	}
	// Output:
	// 200 "5/h";r=2
	// 429 "5/h";r=2
	// 200 "5/h";r=1
}

// A denied client gets no answer: net/http closes the connection, and over HTTP/2
// resets the stream.
func ExampleConfig_drop() {
	cfg := configure("order", "1/d")
	cfg.Refuse = httplimit.RefuseSilently // no field tells of the limit before
	cfg.Denied = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(must(httplimit.New(cfg))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })))
	defer server.Close()
	for range 2 {
		w, err := http.Post(server.URL, "", nil)
		if err != nil {
			fmt.Println(strings.TrimPrefix(err.Error(), fmt.Sprintf("Post %q: ", server.URL)))
			continue
		}
		_ = w.Body.Close()
		fmt.Println(w.Status)
	}
	// Output:
	// 201 Created
	// EOF
}

// From the third try of an hour on the client solves a puzzle, and after five tries
// nothing helps. A try without the solution is counted as well.
func ExampleVerdictOf_stepUp() {
	const free = 2
	cfg := configure("login", "5/h")
	cfg.VerdictInContext = true
	limit := must(httplimit.New(cfg))
	login := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := httplimit.VerdictOf(r.Context(), "login")
		if v.Limit.Max-v.Remaining > free && r.Header.Get("Puzzle") != "solved" {
			w.WriteHeader(http.StatusForbidden) // and show the puzzle
			return
		}
		w.WriteHeader(http.StatusUnauthorized) // look at the password
	}))
	for _, puzzle := range []string{"", "", "", "solved", "solved", "solved"} {
		fmt.Print(send(login, "POST", "", "Puzzle: "+puzzle).Code, " ")
	}
	// Output:
	// 401 401 403 401 401 429
}
