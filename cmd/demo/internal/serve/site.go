package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/watch"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/metrics/tally"
)

// siteRules are short enough to wait for.
var siteRules = []limiter.Rule{
	{Event: "signup", Kind: feature.KindIP, Limits: counter.MustLimits("3/20s, 30/h")},
	{Event: "signup", Kind: feature.KindEmail, Limits: counter.MustLimits("1/15s, 10/h")},
	{Event: "shorten", Kind: feature.KindIP, Limits: counter.MustLimits("5/30s, 100/d")},
}

// siteFields are the fields of the forms, by event.
var siteFields = map[string]struct{ name, example string }{
	"signup":  {"email", "ada@example.org"},
	"shorten": {"url", "https://example.org/"},
}

const (
	maxLinks  = 1_000
	maxTarget = 2_000 // bytes of an address
)

// site is a sign-up form and a URL shortener under siteRules, in real time.
type site struct {
	limiter *limiter.Limiter
	numbers *tally.Tally
	links   links
}

// siteForm is a form, and the answer to it.
type siteForm struct {
	Event   string
	Rules   []limiter.Rule
	Value   string // of the field
	Status  int    // of the answer; 0: none yet
	Headers []siteHeader
	Message string
	Link    string
}

// Wrong reports whether the value of the field is at fault.
func (f siteForm) Wrong() bool {
	return f.Status == http.StatusBadRequest || f.Status == http.StatusRequestEntityTooLarge
}

func (f siteForm) StatusText() string { return http.StatusText(f.Status) }

type siteHeader struct{ Name, Value string }

func (s *Server) addSite() error {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		return err
	}
	s.site.numbers = tally.New(c)
	s.site.limiter, err = limiter.New(c, limiter.Config{
		Rules:   siteRules,
		Forms:   feature.Forms{EmailIgnoreTags: true}, // ada+1@example.org is ada@example.org
		Observe: s.site.numbers.Observe,
	})
	if err != nil {
		return err
	}
	s.Handle("GET /site", func(w http.ResponseWriter, r *http.Request) { s.showSite(w, siteForm{}) })
	s.Handle("GET /site/key", s.siteKey)
	s.Handle("GET /s/{id}", s.site.links.follow) // is free
	for event, handle := range map[string]http.HandlerFunc{"signup": s.signUp, "shorten": s.shorten} {
		refuse := s.refused(event)
		features := []httplimit.Source{httplimit.IP(httplimit.ClientIP{})}
		if event == "signup" {
			features = append(features, httplimit.Email(httplimit.Form("email")))
		}
		limit, err := httplimit.New(httplimit.Config{
			Limiter: s.site.limiter, Event: event, Features: features,
			Denied: refuse, Failed: refuse, Invalid: refuse, VerdictInContext: true,
		})
		if err != nil {
			return err
		}
		s.Handle("POST /site/"+event, limit(handle).ServeHTTP)
	}
	return nil
}

// signUp takes any address that the limiter lets through.
func (s *Server) signUp(w http.ResponseWriter, r *http.Request) {
	email := r.FormValue("email")
	s.admit(w, r, siteForm{Event: "signup", Value: email, Status: http.StatusOK, Message: "Signed up: " + email})
}

// shorten gives the hit back where no link is made.
func (s *Server) shorten(w http.ResponseWriter, r *http.Request) {
	target, wrong := targetOf(r)
	if wrong != nil {
		if err := httplimit.Refund(r.Context(), "shorten"); err != nil {
			wrong = &httplimit.Problem{Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Detail: err.Error()}
		}
		s.refuse(w, r, "shorten", *wrong)
		return
	}
	link := "http://" + r.Host + "/s/" + s.site.links.add(target)
	w.Header().Set("Location", link)
	s.admit(w, r, siteForm{Event: "shorten", Value: target, Status: http.StatusCreated, Message: "Your link: ", Link: link})
}

// targetOf reads the address that a link is to lead to.
func targetOf(r *http.Request) (string, *httplimit.Problem) {
	wrong := func(status int, detail string) (string, *httplimit.Problem) {
		return "", &httplimit.Problem{Title: http.StatusText(status), Status: status, Detail: detail}
	}
	var tooLarge *http.MaxBytesError
	if errors.As(errors.Join(r.ParseForm(), r.ParseMultipartForm(web.MaxBody)), &tooLarge) { // other mistakes leave the field empty
		return wrong(http.StatusRequestEntityTooLarge, fmt.Sprintf("The form has more than %d bytes.", tooLarge.Limit))
	}
	text := r.PostFormValue("url")
	target, err := url.Parse(text)
	switch {
	case len(text) > maxTarget:
		return wrong(http.StatusBadRequest, fmt.Sprintf("The address has %d bytes, want at most %d.", len(text), maxTarget))
	case err != nil, target.Scheme != "http" && target.Scheme != "https", target.Hostname() == "":
		return wrong(http.StatusBadRequest, "Want an address of http or https, such as https://example.org/.")
	}
	return target.String(), nil
}

// refused answers a request that the limiter did not admit. Retry-After is set
// already.
func (s *Server) refused(event string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, _ := httplimit.ProblemOf(r.Context())
		switch p.Status {
		case http.StatusTooManyRequests:
			v, _ := httplimit.VerdictOf(r.Context(), event)
			p.Detail = fmt.Sprintf("The limit %s by %s is used up. Try again in %s s.", v.Limit, v.Kind(), w.Header().Get("Retry-After"))
		case http.StatusBadRequest: // missing, or malformed
			p.Detail = "Want a mail address, such as ada@example.org."
		}
		s.refuse(w, r, event, p)
	}
}

// refuse answers a browser with the page, and any other client with p itself.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, event string, p httplimit.Problem) {
	if isBrowser(r) {
		s.showSite(w, siteForm{Event: event, Value: r.FormValue(siteFields[event].name), Status: p.Status, Message: p.Detail})
		return
	}
	p.ServeHTTP(w, r)
}

// admit answers a browser with the page, and any other client with the link or the
// message.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, f siteForm) {
	if isBrowser(r) {
		s.showSite(w, f)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(f.Status)
	fmt.Fprintln(w, cmp.Or(f.Link, f.Message))
}

func isBrowser(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// showSite writes the page with the answer to one of the forms, or with none.
func (s *Server) showSite(w http.ResponseWriter, answered siteForm) {
	status := http.StatusOK
	forms := map[string]siteForm{}
	for event, field := range siteFields {
		f := siteForm{Event: event, Value: field.example}
		if event == answered.Event {
			f = answered
			status = f.Status
			for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
				if value := w.Header().Get(name); value != "" {
					f.Headers = append(f.Headers, siteHeader{name, value})
				}
			}
		}
		f.Rules = s.site.limiter.Rules(event)
		forms[event] = f
	}
	s.Show(w, status, "site", "Be denied yourself", forms)
}

// siteKey tells the keys of an event in the store: of the client's address, and of
// a mail address.
func (s *Server) siteKey(w http.ResponseWriter, r *http.Request) {
	event, lim := r.FormValue("event"), s.site.limiter
	if !lim.Has(event) {
		http.Error(w, fmt.Sprintf("event: got %q, want one of %s", event, lim.Events()), http.StatusBadRequest)
		return
	}
	features := []feature.Feature{feature.IP((&httplimit.ClientIP{}).Of(r))}
	if email := feature.Email(r.FormValue("email")); email.Err() == nil {
		features = append(features, email)
	}
	keys, err := watch.Keys(r.Context(), lim, event, "shortest", features...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(keys) // an error is a client that hung up
}

// links are the last maxLinks targets. The name of a link is its number, in base 36.
type links struct {
	mu      sync.Mutex
	next    int64
	targets [maxLinks]string // by number modulo maxLinks
}

// add drops the oldest link if there are maxLinks.
func (l *links) add(target string) (name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.next
	l.targets[n%maxLinks] = target
	l.next++
	return strconv.FormatInt(n, 36)
}

func (l *links) follow(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("id"), 36, 64)
	l.mu.Lock()
	known := err == nil && n >= max(0, l.next-maxLinks) && n < l.next
	var target string
	if known {
		target = l.targets[n%maxLinks]
	}
	l.mu.Unlock()
	if !known {
		http.Error(w, fmt.Sprintf("No such link. The last %d links are kept, until the program ends.", maxLinks), http.StatusNotFound)
		return
	}
	http.Redirect(w, r, target, http.StatusFound)
}
