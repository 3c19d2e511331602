package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// Value finds the text of a feature in a request: a mail address, a user's
// name, a token. The text is "" if there is none; absent and empty are the
// same.
//
// [Header], [Cookie], [BasicUser], [Form] and [JSON] are Values, and so is any
// function like:
//
//	func(r *http.Request) (string, error) { return r.PathValue("tenant"), nil }
//
// The middleware calls a Value with a copy of the request, valid during the
// call; a Value must not change the headers, or anything else to which the copy
// points. A Value may read the copy's Body, by FormValue and its like too:
// every Value and then the handler read the body from its first byte. Beyond
// the middleware's bound a read is an error. A body that no Value reads stays a
// stream. A Value that reads a body is called twice: at first every read of the body
// is an error, and the result is dropped; and again once the rules that need no body
// would admit the request.
//
// A [*ValueError] is the request's fault, any other error the Value's own. The
// text of a request is the client's word, which no one has verified.
//
// Outside of the middleware Form and JSON read at most [DefaultMaxBody] bytes,
// and put a Body in r that begins again.
type Value func(r *http.Request) (string, error)

// ValueError is the error of a request in which a [Value] cannot be read. The
// text of the error names the source and never the client's text, so the error
// may be logged, and sent to the client.
type ValueError struct {
	Status int    // 400; 408 for a body that is too slow; 413 for a body that is too large; 415 for a body with a Content-Encoding; 503 for a body beyond Config.MaxBodyTotal
	Source string // the part of the request, such as: form field "email"; or the kind of the feature
	Reason string // a predicate of Source, "is required", or a clause of its own, "the form could not be read"
	Err    error  // from net/http or the body, or nil; the text of Err may hold text of the client
}

func (e *ValueError) Error() string { return "httplimit: " + e.Source + ": " + e.Reason }

// Unwrap is Err.
func (e *ValueError) Unwrap() error { return e.Err }

// status is the status of an answer: a Value may have set any number, and net/http
// panics below 100 and above 999.
func (e *ValueError) status() int {
	if e.Status < 400 || e.Status > 599 {
		return http.StatusBadRequest
	}
	return e.Status
}

// valueError returns the ValueError in err; nil if there is none.
func valueError(err error) *ValueError {
	if err == nil {
		return nil // without an allocation
	}
	var value *ValueError
	errors.As(err, &value)
	return value
}

func badRequest(source, reason string) *ValueError {
	return &ValueError{Status: http.StatusBadRequest, Source: source, Reason: reason}
}

// Header is the header called name. Several lines with different values are an
// error, since a handler or another server may read any line. A line is a
// single text: commas separate nothing.
func Header(name string) Value {
	key := http.CanonicalHeaderKey(name)
	source := fmt.Sprintf("header %q", key)
	if key == "Host" { // net/http keeps the Host elsewhere
		return func(r *http.Request) (string, error) { return r.Host, nil }
	}
	return named(isName(name), "", func(r *http.Request) (string, error) { return same(r.Header[key], source) })
}

// isName reports whether a header or a cookie can have the name.
func isName(name string) bool { return name != "" && trimRight(name, isToken) == "" }

// named is v with the name of its source for the errors of missing and malformed text, or
// nameless. Without a source, as for a header, these errors name the kind: a proxy may have
// set the header, under a name that clients need not know.
func named(ok bool, source string, v Value) Value {
	if !ok {
		return nameless
	}
	return func(r *http.Request) (string, error) {
		text, err := v(r)
		if b, is := r.Body.(*viewBody); is {
			b.source, b.text = source, text
		}
		return text, err
	}
}

// nameless is a Value that finds nothing in any request. NewSource refuses it.
func nameless(*http.Request) (string, error) { return "", nil }

// BasicUser is the user's name of basic authentication, which no one has
// verified yet: anyone can use up the limit of anyone else's name. A header that
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

// same returns the common value of texts, or "" without texts.
func same(texts []string, source string) (common string, err error) {
	for i, text := range texts {
		if i > 0 && text != common {
			return "", badRequest(source, "has two different values")
		}
		common = text
	}
	return common, nil
}

// Cookie is the cookie called name, as read by [http.Request.CookiesNamed]. Two
// cookies of the name with different values are an error: browsers send both for
// different paths, but no handler can tell them apart.
func Cookie(name string) Value {
	source := fmt.Sprintf("cookie %q", name)
	return named(isName(name), source, func(r *http.Request) (string, error) {
		if lines := r.Header["Cookie"]; len(lines) == 1 {
			if text, ok := plainCookie(lines[0], name); ok {
				return text, nil
			}
		}
		var texts []string
		for _, c := range r.CookiesNamed(name) {
			texts = append(texts, c.Value)
		}
		return same(texts, source)
	})
}

// plainCookie reads line for the cookie called name without the allocations of
// net/http. ok is false for all that net/http should decide: two cookies of the
// name, a byte with a meaning of its own, many cookies.
func plainCookie(line, name string) (text string, ok bool) {
	const many = 100 // far below net/http's limit
	if strings.Count(line, ";") >= many {
		return "", false
	}
	found := false
	for part := range strings.SplitSeq(line, ";") {
		key, value, _ := strings.Cut(part, "=")
		switch {
		case textproto.TrimString(key) != name:
		case found || strings.ContainsFunc(value, special):
			return "", false
		default:
			text, found = value, true
		}
	}
	return text, true
}

// special is true for what may be no part of a cookie's value as it is.
func special(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '\\' }
