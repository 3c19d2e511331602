// Shortener makes short links, so many per user and day, and more for those who
// pay. Support sees what a user has used, and lets a user in again.
//
//	go run ./examples/shortener
//	curl -i -u ada:lovelace -d url=https://go.dev localhost:8080/links
//	curl -u root:toor localhost:8080/users/ada
//	curl -u root:toor -X POST localhost:8080/users/ada/unlock
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
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
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
	site, lim, err := newSite(store, map[string]account{
		"ada":  {password: "lovelace"},
		"alan": {password: "turing", pays: true},
		"root": {password: "toor", support: true},
	})
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

// account is a user of the site.
type account struct {
	password string
	pays     bool
	support  bool
}

var (
	free = counter.MustLimits("10/m, 100/d")
	paid = counter.MustLimits("60/m, 5000/d")
)

func newSite(store backend.Store, accounts map[string]account) (http.Handler, *limiter.Limiter, error) {
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, nil, err
	}
	// If the store fails, links are made all the same, and counted locally.
	local, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + limiter.DefaultDecideWithin})
	if err != nil {
		return nil, nil, err
	}
	lim, err := limiter.New(c, limiter.Config{Local: local, Rules: []limiter.Rule{
		{
			Event: "shorten", Kind: "user", Limits: free, OnFailure: limiter.FailLocal,
			Plans: []counter.Limits{paid},
			// Both plans share the counts: who begins to pay has the links of before
			// counted.
			LimitsOf: func(_ context.Context, c limiter.Call) counter.Limits {
				if accounts[c.Feature.Value()].pays {
					return paid
				}
				return nil // the limits of the rule
			},
		},
	}})
	if err != nil {
		return nil, nil, err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: lim,
		Event:   "shorten",
		// The user whom authenticate has let in, not the user in the request: an
		// unverified name may be someone else's.
		Features: []httplimit.Source{
			httplimit.NewSource("user", func(r *http.Request) (string, error) { return user(r.Context()), nil }),
		},
		VerdictInContext: true,             // for Refund
		Show:             []string{"user"}, // so a user sees the count of his own links
		Denied:           http.HandlerFunc(refuse), Failed: http.HandlerFunc(refuse),
	})
	if err != nil {
		return nil, nil, err
	}
	links, support := &links{}, &support{lim}
	mux := http.NewServeMux()
	mux.Handle("POST /links", authenticate(accounts, limit(http.HandlerFunc(links.shorten))))
	mux.Handle("GET /users/{name}", authenticate(accounts, only(accounts, support.usage)))
	mux.Handle("POST /users/{name}/unlock", authenticate(accounts, only(accounts, support.unlock)))
	mux.HandleFunc("GET /{id}", links.follow) // is free
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { show(w, r, http.StatusOK, "", "") })
	return http.MaxBytesHandler(mux, 16<<10), lim, nil // plenty for a form, also of refuse
}

type userKey struct{}

func user(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func authenticate(accounts map[string]account, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		account, known := accounts[name]
		if !known || subtle.ConstantTimeCompare([]byte(password), []byte(account.password)) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="shortener"`)
			answer(w, r, httplimit.Problem{Title: "Unauthorized", Status: http.StatusUnauthorized, Detail: "Please log in."})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

// only lets the support in.
func only(accounts map[string]account, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accounts[user(r.Context())].support {
			answer(w, r, httplimit.Problem{Title: "Forbidden", Status: http.StatusForbidden, Detail: "This page is for support staff only."})
			return
		}
		next(w, r)
	})
}

// support shows and pardons users.
type support struct{ limiter *limiter.Limiter }

func (s *support) usage(w http.ResponseWriter, r *http.Request) {
	all, err := s.limiter.Usage(r.Context(), "shorten", feature.New("user", r.PathValue("name")))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	for _, usage := range all {
		for _, limit := range usage.Limits {
			fmt.Fprintf(w, "%s: %d used, %d left", limit.Limit, limit.Count.High, limit.Remaining)
			if limit.RetryAfter > 0 {
				fmt.Fprintf(w, ", full for %s", limit.RetryAfter.Round(time.Second))
			}
			fmt.Fprintln(w)
		}
		for _, point := range usage.Series {
			if point.Count > 0 {
				fmt.Fprintf(w, "%s %6d\n", point.Start.Format("Mon 15:04"), point.Count)
			}
		}
	}
}

func (s *support) unlock(w http.ResponseWriter, r *http.Request) {
	if err := s.limiter.Forget(r.Context(), "shorten", feature.New("user", r.PathValue("name"))); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
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
		answer(w, r, httplimit.Problem{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "Please enter a link that begins with https://."})
		return
	}
	l.mu.Lock()
	l.targets = append(l.targets, target.String())
	id := len(l.targets) - 1
	l.mu.Unlock()
	link := fmt.Sprintf("http://%s/%s", r.Host, strconv.FormatInt(int64(id), 36))
	if isBrowser(r) {
		show(w, r, http.StatusCreated, "Your link:", link)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, link)
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

// refuse answers a request that was not admitted. Retry-After is set already.
func refuse(w http.ResponseWriter, r *http.Request) {
	p, _ := httplimit.ProblemOf(r.Context())
	if p.Status == http.StatusTooManyRequests {
		v, _ := httplimit.VerdictOf(r.Context(), "shorten")
		p.Detail = fmt.Sprintf("Your plan has %s. Try again in %s.", v.Limit, inWords(v.RetryAfter))
	}
	answer(w, r, p)
}

// answer answers a browser with the form, and any other client with p itself.
func answer(w http.ResponseWriter, r *http.Request, p httplimit.Problem) {
	if isBrowser(r) {
		show(w, r, p.Status, p.Detail, "")
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
<html lang="en"><title>Short links</title>
{{with .Message}}<p role="alert">{{.}} {{with $.Link}}<a href="{{.}}">{{.}}</a>{{end}}</p>
{{end}}<form method="post" action="/links">
<label>Page <input type="url" name="url" value="{{.URL}}" required></label> <button>Shorten</button>
</form></html>
`))

// show shows the form, filled in as r has it.
func show(w http.ResponseWriter, r *http.Request, status int, message, link string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := page.Execute(w, struct{ Message, Link, URL string }{message, link, r.PostFormValue("url")}); err != nil {
		log.Print(err) // the client hung up
	}
}
