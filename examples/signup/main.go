// Signup is a sign-up form, limited per client and per mail address.
//
//	go run ./examples/signup
//
// Then send more than two sign-ups for the same address, in a browser or by:
//
//	curl -i -d email=ada@example.org localhost:8080/signup
//
// A browser gets pages, any other client problem details.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "address to listen on")
	counts := flag.String("counts", "", "file that keeps the counts from one run to the next; none: they begin at zero")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *counts); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done. The counts are written when the last request has
// its answer, so that no hit is missing in the file.
func run(ctx context.Context, listen, counts string) error {
	// Several servers share their counts through redis.Open or memcache.New.
	store := memory.New(memory.Config{})
	if counts != "" {
		if err := store.LoadFile(counts); err != nil {
			return err // or log the error and count from zero
		}
	}
	site, lim, err := newSite(store)
	if err != nil {
		return err
	}
	server := http.Server{Addr: listen, Handler: site, ReadTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Printf("listening on http://%s", listen)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = server.Shutdown(patience)
	err = errors.Join(err, lim.Close(patience)) // after the last request
	if counts != "" {
		err = errors.Join(err, store.SaveFile(counts))
	}
	return err
}

func newSite(store backend.Store) (http.Handler, *limiter.Limiter, error) {
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, nil, err
	}
	// A sign-up counts under both rules or under none: in the store, or in this
	// process while the store does not answer.
	local, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + limiter.DefaultDecideWithin})
	if err != nil {
		return nil, nil, err
	}
	lim, err := limiter.New(c, limiter.Config{
		Rules: []limiter.Rule{
			{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h, 20/d"), OnFailure: limiter.FailLocal},
			{Event: "signup", Kind: "email", Limits: counter.MustLimits("2/d"), OnFailure: limiter.FailLocal},
		},
		Local: local,
		Forms: feature.Forms{EmailIgnoreTags: true}, // ada+1@example.org is ada@example.org
	})
	if err != nil {
		return nil, nil, err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: lim,
		Event:   "signup",
		Features: []httplimit.Source{
			// Behind a proxy: ClientIP{Proxies:
			// []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
			httplimit.IP(httplimit.ClientIP{}),
			httplimit.Email(httplimit.Form("email")),
		},
		Denied: http.HandlerFunc(refuse), Failed: http.HandlerFunc(refuse), Invalid: http.HandlerFunc(refuse),
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { show(w, r, http.StatusOK, "") })
	mux.Handle("POST /signup", limit(http.HandlerFunc(signUp)))
	return http.MaxBytesHandler(mux, 16<<10), lim, nil // plenty for a form, also of refuse
}

// signUp reads the form as if the middleware had not.
func signUp(w http.ResponseWriter, r *http.Request) {
	message := fmt.Sprintf("We have sent a mail to %s.", r.FormValue("email"))
	if isBrowser(r) {
		show(w, r, http.StatusOK, message)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, message)
}

// refuse answers a request that was not admitted. Retry-After is set already.
func refuse(w http.ResponseWriter, r *http.Request) {
	p, _ := httplimit.ProblemOf(r.Context())
	switch p.Status {
	case http.StatusTooManyRequests:
		v, _ := httplimit.VerdictOf(r.Context(), "signup")
		p.Detail = fmt.Sprintf("Too many sign-ups. Try again in %s.", inWords(v.RetryAfter))
	case http.StatusServiceUnavailable:
		p.Detail = "We cannot sign you up at the moment. Try again in a minute."
	case http.StatusBadRequest: // missing, or malformed
		p.Detail = "Please enter an e-mail address, such as ada@example.org."
	}
	if isBrowser(r) {
		show(w, r, p.Status, p.Detail)
		return
	}
	p.ServeHTTP(w, r)
}

func isBrowser(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// inWords rounds up.
func inWords(wait time.Duration) string {
	unit, name := time.Second, "seconds"
	switch {
	case wait > 2*time.Hour:
		unit, name = time.Hour, "hours"
	case wait > 2*time.Minute:
		unit, name = time.Minute, "minutes"
	}
	return fmt.Sprintf("%d %s", max((wait+unit-1)/unit, 2), name)
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><title>Sign up</title>
{{with .Message}}<p role="alert">{{.}}</p>
{{end}}<form method="post" action="/signup">
<label>Mail <input type="email" name="email" value="{{.Email}}" required></label> <button>Sign up</button>
</form></html>
`))

// show shows the form, filled in as r has it.
func show(w http.ResponseWriter, r *http.Request, status int, message string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := page.Execute(w, struct{ Message, Email string }{message, r.FormValue("email")}); err != nil {
		log.Print(err) // the client hung up
	}
}
