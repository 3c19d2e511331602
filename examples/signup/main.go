// Signup is a sign-up form, limited per client and per mail address.
//
//	go run ./examples/signup
//
// Then send more than two sign-ups for the same address:
//
//	curl -i -d email=ada@example.org localhost:8080/signup
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "address to listen on")
	flag.Parse()
	// Several servers share their counts through redis.Open or memcache.New.
	site, err := newSite(memory.New(memory.Config{}))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", *listen)
	server := http.Server{Addr: *listen, Handler: site, ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func newSite(store backend.Store) (http.Handler, error) {
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, err
	}
	// A sign-up counts under both rules or under none. Whether nobody or
	// everybody may sign up when the store fails, OnFailure says; a sign-up
	// sends a mail, so nobody, which is the default.
	lim, err := limiter.New(c, limiter.Config{
		Rules: []limiter.Rule{
			{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h, 20/d")},
			{Event: "signup", Kind: "email", Limits: counter.MustLimits("2/d")},
		},
		EmailIgnoreTags: true, // ada+1@example.org is ada@example.org
	})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: lim,
		Event:   "signup",
		Features: []httplimit.Source{
			// Behind a proxy: ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
			httplimit.IP(httplimit.ClientIP{}),
			httplimit.Email(httplimit.Form("email")),
		},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", showForm)
	mux.Handle("POST /signup", limit(http.HandlerFunc(signUp)))
	return mux, nil
}

func showForm(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, `<!doctype html><title>Sign up</title>
<form method="post" action="/signup"><label>Mail <input type="email" name="email" required></label> <button>Sign up</button></form>
`)
}

// signUp reads the form as if the middleware had not.
func signUp(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "We have sent a mail to %s.\n", r.FormValue("email"))
}
