package eventlog

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Requests name the events of a web server's log by the patterns of [http.ServeMux],
// such as "POST /login" and "/users/{id}".
type Requests struct {
	mux   *http.ServeMux
	names map[string]string // by pattern
}

// ParseRequests reads patterns. The event of a request is the pattern that a ServeMux
// would choose, or name for "name=pattern".
func ParseRequests(patterns []string) (r *Requests, err error) {
	r = &Requests{http.NewServeMux(), map[string]string{}}
	for _, given := range patterns {
		name, pattern, named := strings.Cut(given, "=")
		if !named || name == "" || strings.ContainsAny(name, " /") {
			name, pattern = given, given
		}
		if err := r.add(pattern); err != nil {
			return nil, err
		}
		r.names[pattern] = name
	}
	return r, nil
}

// add adds a pattern, whose mistakes a ServeMux tells in a panic.
func (r *Requests) add(pattern string) (err error) {
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("pattern %q: %v, want one such as \"POST /login\" or login=\"POST /login\"", pattern, wrong)
		}
	}()
	r.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// event is the event of a request line, or nothing for a request of no pattern.
func (r *Requests) event(line []byte) string {
	method, rest, _ := strings.Cut(string(line), " ")
	target, _, _ := strings.Cut(rest, " ")
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return ""
	}
	_, pattern := r.mux.Handler(&http.Request{Method: method, URL: u, Host: u.Host})
	return r.names[pattern]
}
