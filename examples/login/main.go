// Login is a log-in that counts failures only: a user with the right password
// is never limited, however often he logs in, and a good log-in clears the
// failures of the account before it.
//
//	go run ./examples/login
//	curl -i -d 'user=ada&password=wrong' localhost:8080/login
//
// A browser gets pages, any other client problem details.
package main

import (
	"context"
	"crypto/subtle"
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
	store := memory.New(memory.Config{})
	if counts != "" {
		if err := store.LoadFile(counts); err != nil {
			return err // or log the error and count from zero
		}
	}
	site, lim, err := newSite(store, map[string]string{"ada": "lovelace"})
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

func newSite(store backend.Store, passwords map[string]string) (http.Handler, *limiter.Limiter, error) {
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, nil, err
	}
	// Ten wrong guesses an hour for an account, from all networks together, and
	// thirty from a network, for all accounts together. The first rule lets a
	// stranger lock an account's owner out for an hour: the price of limiting
	// guesses from many networks. While the store does not answer, this process
	// counts by itself, so no one guesses more and no one is locked out.
	local, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + limiter.DefaultDecideWithin})
	if err != nil {
		return nil, nil, err
	}
	lim, err := limiter.New(c, limiter.Config{Local: local, Rules: []limiter.Rule{
		{Event: "login", Kind: "user", Limits: counter.MustLimits("10/h"), OnFailure: limiter.FailLocal},
		{Event: "login", Kind: "ip", Limits: counter.MustLimits("30/h, 100/d"), OnFailure: limiter.FailLocal},
	}})
	if err != nil {
		return nil, nil, err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: lim,
		Event:   "login",
		Features: []httplimit.Source{
			httplimit.NewSource("user", httplimit.Form("user")),
			httplimit.IP(httplimit.ClientIP{}),
		},
		VerdictInContext: true, // for Refund
		Denied:           http.HandlerFunc(refuse), Failed: http.HandlerFunc(refuse), Invalid: http.HandlerFunc(refuse),
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { show(w, r, http.StatusOK, "") })
	mux.Handle("POST /login", limit(logIn(lim, passwords)))
	return http.MaxBytesHandler(mux, 16<<10), lim, nil // plenty for a form, also of refuse
}

// logIn is counted before it looks at the password, else many guesses at once
// would slip through. If the password is right, logIn gives the hit back, and
// clears the failures of the account; those of the network stay.
func logIn(lim *limiter.Limiter, passwords map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.PostFormValue("user")
		want, known := passwords[user]
		if !known || subtle.ConstantTimeCompare([]byte(r.PostFormValue("password")), []byte(want)) == 0 {
			answer(w, r, httplimit.Problem{Title: "Unauthorized", Status: http.StatusUnauthorized, Detail: "Wrong user or password."})
			return
		}
		if err := httplimit.Refund(r.Context(), "login"); err != nil {
			log.Print(err) // the log-in is good all the same, but was counted
		}
		if err := lim.Forget(r.Context(), "login", feature.New("user", user)); err != nil {
			log.Print(err) // the failures stay
		}
		if isBrowser(r) {
			show(w, r, http.StatusOK, "Welcome.")
			return
		}
		fmt.Fprintln(w, "Welcome.")
	})
}

// refuse answers a request that was not admitted. Retry-After is set already.
func refuse(w http.ResponseWriter, r *http.Request) {
	p, _ := httplimit.ProblemOf(r.Context())
	switch p.Status {
	case http.StatusTooManyRequests:
		v, _ := httplimit.VerdictOf(r.Context(), "login")
		p.Detail = fmt.Sprintf("Too many wrong passwords. Try again in %s.", inWords(v.RetryAfter))
	case http.StatusBadRequest: // missing, or malformed
		p.Detail = "Please enter your name."
	}
	answer(w, r, p)
}

// answer answers a browser with the form, and any other client with p itself.
func answer(w http.ResponseWriter, r *http.Request, p httplimit.Problem) {
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
<html lang="en"><title>Log in</title>
{{with .Message}}<p role="alert">{{.}}</p>
{{end}}<form method="post" action="/login">
<label>Name <input name="user" value="{{.User}}" autocomplete="username" required></label>
<label>Password <input type="password" name="password" autocomplete="current-password" required></label>
<button>Log in</button>
</form></html>
`))

// show shows the form with the user of r, without the password.
func show(w http.ResponseWriter, r *http.Request, status int, message string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := page.Execute(w, struct{ Message, User string }{message, r.PostFormValue("user")}); err != nil {
		log.Print(err) // the client hung up
	}
}
