// Shortener makes short links, so many per user and day.
//
//	go run ./examples/shortener
//	curl -i -u ada:lovelace -d url=https://go.dev localhost:8080/links
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
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
	// If the store fails, links are made all the same, and counted locally.
	local, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Skew() + limiter.DefaultDecideWithin})
	if err != nil {
		return nil, err
	}
	lim, err := limiter.New(c, limiter.Config{Local: local, Rules: []limiter.Rule{
		{Event: "shorten", Kind: "user", Limits: counter.MustLimits("10/m, 100/d"), OnFailure: limiter.FailLocal},
	}})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: lim,
		Event:   "shorten",
		// The user whom authenticate has let in, not the user in the request: an
		// unverified name may be somebody else's.
		Features: []httplimit.Source{
			httplimit.NewSource("user", func(r *http.Request) (string, error) { return user(r.Context()), nil }),
		},
		Show: []string{"user"}, // so a user sees the count of his own links
	})
	if err != nil {
		return nil, err
	}
	links := &links{}
	mux := http.NewServeMux()
	mux.Handle("POST /links", authenticate(passwords, limit(http.HandlerFunc(links.shorten))))
	mux.HandleFunc("GET /{id}", links.follow) // is free
	return mux, nil
}

type userKey struct{}

func user(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func authenticate(passwords map[string]string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		want, known := passwords[name]
		if !known || subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="shortener"`)
			http.Error(w, "Who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

// links are the targets; the name of a link is its index, in base 36.
type links struct {
	mu      sync.Mutex
	targets []string
}

func (l *links) shorten(w http.ResponseWriter, r *http.Request) {
	target, err := url.Parse(r.PostFormValue("url"))
	if err != nil || target.Scheme != "https" || target.Host == "" {
		// No link, no hit.
		if err := httplimit.Refund(r.Context(), "shorten"); err != nil {
			log.Print(err)
		}
		http.Error(w, "Want an https URL.", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	l.targets = append(l.targets, target.String())
	id := len(l.targets) - 1
	l.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "http://%s/%s\n", r.Host, strconv.FormatInt(int64(id), 36))
}

func (l *links) follow(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 36, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || id < 0 || id >= int64(len(l.targets)) {
		http.NotFound(w, r)
		return
	}
	http.Redirect(w, r, l.targets[id], http.StatusFound)
}
