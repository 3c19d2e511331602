// Login is a log-in that counts failures only: a user with the right password
// is never limited, however often he logs in, and a good log-in clears the
// failures of the account before it.
//
//	go run ./examples/login
//	curl -i -d 'user=ada&password=wrong' localhost:8080/login
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
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
	site, err := newSite(store, map[string]string{"ada": "lovelace"})
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
	if counts != "" {
		err = errors.Join(err, store.SaveFile(counts))
	}
	return err
}

func newSite(store backend.Store, passwords map[string]string) (http.Handler, error) {
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, err
	}
	// Ten wrong guesses an hour for an account, from all networks together, and
	// thirty from a network, for all accounts together. The first rule lets a
	// stranger lock an account's owner out for an hour: the price of limiting
	// guesses from many networks. While the store does not answer, this process
	// counts by itself, so nobody guesses more and nobody is locked out.
	local, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Skew() + limiter.DefaultDecideWithin})
	if err != nil {
		return nil, err
	}
	lim, err := limiter.New(c, limiter.Config{Local: local, Rules: []limiter.Rule{
		{Event: "login", Kind: "user", Limits: counter.MustLimits("10/h"), OnFailure: limiter.FailLocal},
		{Event: "login", Kind: "ip", Limits: counter.MustLimits("30/h, 100/d"), OnFailure: limiter.FailLocal},
	}})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: lim,
		Event:   "login",
		Features: []httplimit.Source{
			httplimit.NewSource("user", httplimit.Form("user")),
			httplimit.IP(httplimit.ClientIP{}),
		},
		Denied: http.HandlerFunc(tellWhen),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /login", limit(logIn(lim, passwords)))
	return mux, nil
}

// logIn is counted before it looks at the password, else many guesses at once
// would slip through. If the password is right, logIn gives the hit back, and
// clears the failures of the account; those of the network stay.
func logIn(lim *limiter.Limiter, passwords map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.PostFormValue("user")
		want, known := passwords[user]
		if !known || subtle.ConstantTimeCompare([]byte(r.PostFormValue("password")), []byte(want)) == 0 {
			http.Error(w, "Wrong user or password.", http.StatusUnauthorized)
			return
		}
		if err := httplimit.Refund(r.Context(), "login"); err != nil {
			log.Print(err) // the log-in is good all the same, but was counted
		}
		if err := lim.Forget(r.Context(), "login", limiter.NewFeature("user", user)); err != nil {
			log.Print(err) // the failures stay
		}
		fmt.Fprintln(w, "Welcome.")
	})
}

// tellWhen answers in place of the problem detail. Retry-After is set already.
func tellWhen(w http.ResponseWriter, r *http.Request) {
	v, _ := httplimit.VerdictOf(r.Context(), "login")
	http.Error(w, fmt.Sprintf("Too many wrong passwords. Try again in %s.", v.RetryAfter.Round(time.Second)), http.StatusTooManyRequests)
}
