package httplimit_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// Sign-ups: two a day for each mail address, and a hundred an hour from each IP
// address, of which alone the client is told.
func Example() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("100/h")},
		{Event: "signup", Kind: "email", Limits: counter.MustLimits("2/d")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter:  lim,
		Event:    "signup",
		Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{}), httplimit.Email(httplimit.Form("email"))},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /signup", limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "welcome,", r.FormValue("email"))
	})))

	server := httptest.NewServer(mux)
	defer server.Close()
	for _, email := range []string{"ada@example.org", "ADA@example.org", "ada@example.org", "nobody"} {
		answer, err := http.PostForm(server.URL+"/signup", url.Values{"email": {email}})
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			log.Fatal(err)
		}
		_ = answer.Body.Close()
		fmt.Printf("%s [%s]\n%s", answer.Status, answer.Header.Get("RateLimit-Policy"), body)
	}
	// Output:
	// 200 OK ["100/h";q=100;w=3600, "2/d";q=2;w=86400]
	// welcome, ada@example.org
	// 200 OK ["100/h";q=100;w=3600, "2/d";q=2;w=86400]
	// welcome, ADA@example.org
	// 429 Too Many Requests ["100/h";q=100;w=3600, "2/d";q=2;w=86400]
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["2/d"]}
	// 400 Bad Request ["100/h";q=100;w=3600, "2/d";q=2;w=86400]
	// {"title":"Bad Request","status":400,"detail":"The form field \"email\" must be an e-mail address."}
}

// Two sign-ups an hour for each address.
func ExampleByIP() {
	limit, err := httplimit.ByIP(memory.New(memory.Config{}), "signup", "2/h, 20/d")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /signup", limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "welcome")
	})))
	for range 3 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", "/signup", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "2/h";q=2;w=3600, "20/d";q=20;w=86400
	// 200 "2/h";q=2;w=3600, "20/d";q=20;w=86400
	// 429 "2/h";q=2;w=3600, "20/d";q=20;w=86400
}

// limitBy limits the event "login" for the examples below, at a time that stands
// still.
func limitBy(rule limiter.Rule, f httplimit.Source) func(http.Handler) http.Handler {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{rule}})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: lim, Event: rule.Event, Features: []httplimit.Source{f}, VerdictInContext: true})
	if err != nil {
		log.Fatal(err)
	}
	return limit
}

// Two wrong passwords an hour; a right one is no event.
func ExampleRefund() {
	limit := limitBy(limiter.Rule{Event: "login", Kind: "user", Limits: counter.MustLimits("2/h")}, httplimit.NewSource("user", httplimit.BasicUser()))
	login := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := httplimit.Refund(r.Context(), "login"); err != nil {
			log.Print(err) // the store's: the log-in counts, that is all
		}
	}))
	for _, password := range []string{"right", "wrong", "right", "wrong", "right"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth("ada", password)
		w := httptest.NewRecorder()
		login.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
	}
	// Output:
	// right 200
	// wrong 401
	// right 200
	// wrong 401
	// right 429
}

// Behind a proxy in 10.0.0.0/8, which appends to X-Forwarded-For: what the client
// wrote there itself makes no other client of it.
func ExampleClientIP() {
	limit := limitBy(limiter.Rule{Event: "login", Kind: "ip", Limits: counter.MustLimits("2/h")}, httplimit.IP(httplimit.ClientIP{
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}))
	login := limit(http.NotFoundHandler())
	for _, line := range []string{"198.51.100.7", "192.0.2.1, 198.51.100.7", "192.0.2.2, 198.51.100.7", "198.51.100.8"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:5678"
		r.Header.Set("X-Forwarded-For", line)
		w := httptest.NewRecorder()
		login.ServeHTTP(w, r)
		fmt.Println(line, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 198.51.100.7 404 "2/h";r=1;t=3601
	// 192.0.2.1, 198.51.100.7 404 "2/h";r=0;t=3601
	// 192.0.2.2, 198.51.100.7 429 "2/h";r=0;t=3601
	// 198.51.100.8 404 "2/h";r=1;t=3601
}
