package httplimit

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// Value finds the text in a request by which it is limited: a mail address, a
// user's name, a token. It returns "" if there is none; absent and empty are
// the same.
//
// [Header], [Cookie], [BasicUser], [Form] and [JSON] are Values, and so is any
// function like this one:
//
//	func(r *http.Request) (string, error) { return r.PathValue("tenant"), nil }
//
// A Value of the middleware is given a copy of the request, for as long as it
// runs; what the copy points to, the headers for one, it must not change. It may
// read the copy's Body, by FormValue and its like too: every Value and then the
// handler read it from its first byte. Beyond the middleware's bound a read is
// an error. A body that no Value reads stays a stream.
//
// A [*ValueError] is the request's fault, any other error the Value's own.
// What a request says is its client's word, which nobody has verified.
//
// Outside of the middleware Form and JSON read at most [DefaultMaxBody] bytes,
// and put a Body in r that begins again.
type Value func(r *http.Request) (string, error)

// ValueError is why a [Value] cannot be had from a request. Its text names the
// source and never what stands there, so it may be logged, and sent to the
// client.
type ValueError struct {
	Status int    // 400; 413: the body is too large; 415: it has a Content-Encoding
	Source string // what was looked for: form field "email"
	Reason string
	Err    error // what net/http or the body said, or nil; its text may hold what the client sent
}

func (e *ValueError) Error() string {
	return "httplimit: " + e.Source + ": " + e.Reason
}

// Unwrap is Err.
func (e *ValueError) Unwrap() error { return e.Err }

func badRequest(source, reason string) *ValueError {
	return &ValueError{Status: http.StatusBadRequest, Source: source, Reason: reason}
}

// Header is the header called name. Several lines of it are an error unless
// all are the same, since a handler or another server may read any of them. A
// line is one text: commas in it separate nothing.
func Header(name string) Value {
	key := http.CanonicalHeaderKey(name)
	source := fmt.Sprintf("header %q", key)
	if key == "Host" { // net/http keeps it elsewhere
		return func(r *http.Request) (string, error) { return r.Host, nil }
	}
	return func(r *http.Request) (string, error) { return same(r.Header[key], source) }
}

// BasicUser is the user's name of basic authentication, which nobody has
// verified yet: anybody can use up the limit of anybody else's name. What
// [http.Request.BasicAuth] cannot read is absent.
func BasicUser() Value {
	return func(r *http.Request) (string, error) {
		if _, err := same(r.Header["Authorization"], `header "Authorization"`); err != nil {
			return "", err
		}
		user, _, _ := r.BasicAuth()
		return user, nil
	}
}

// same is what all texts are, or "" if there are none.
func same(texts []string, source string) (string, error) {
	if len(texts) == 0 {
		return "", nil
	}
	for _, text := range texts[1:] {
		if text != texts[0] {
			return "", badRequest(source, "has two different values, want one")
		}
	}
	return texts[0], nil
}

// Cookie is the cookie called name, as [http.Request.CookiesNamed] reads it. A
// name that comes twice with different values is an error: browsers do so for
// cookies of different paths, but no handler can tell which is which.
func Cookie(name string) Value {
	source := fmt.Sprintf("cookie %q", name)
	valid := (&http.Cookie{Name: name}).Valid() == nil
	return func(r *http.Request) (string, error) {
		if !valid {
			return "", nil // net/http finds none either
		}
		lines := r.Header["Cookie"]
		if len(lines) == 0 {
			return "", nil
		}
		if len(lines) == 1 {
			if text, ok := plainCookie(lines[0], name); ok {
				return text, nil
			}
		}
		var texts []string
		for _, c := range r.CookiesNamed(name) {
			texts = append(texts, c.Value)
		}
		return same(texts, source)
	}
}

// plainCookie reads line for the cookie called name without the allocations of
// net/http, which has its say on everything unusual: ok is false if the cookie
// comes twice, has a byte whose meaning takes a rule, or is one of many.
func plainCookie(line, name string) (text string, ok bool) {
	const many = 100 // far below net/http's limit
	if strings.Count(line, ";") >= many {
		return "", false
	}
	found := false
	for line != "" {
		var part string
		part, line, _ = strings.Cut(line, ";")
		key, value, _ := strings.Cut(part, "=")
		if textproto.TrimString(key) != name {
			continue
		}
		if found || !isPlainCookie(value) {
			return "", false
		}
		text, found = value, true
	}
	return text, true
}

func isPlainCookie(value string) bool {
	for i := range len(value) {
		if b := value[i]; b <= ' ' || b >= 0x7f || b == '"' || b == '\\' {
			return false
		}
	}
	return true
}
