package httplimit

import (
	"bytes"
	"encoding/json"
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
// place and never what stands there, so it may be logged, and sent to the
// client.
type ValueError struct {
	Status int    // 400; 413: the body is too large; 415: it has a Content-Encoding
	Place  string // what was looked for: form field "email"
	Reason string
	Err    error // what net/http or the body said, or nil; its text may hold what the client sent
}

func (e *ValueError) Error() string {
	return "httplimit: " + e.Place + ": " + e.Reason
}

// Unwrap is Err.
func (e *ValueError) Unwrap() error { return e.Err }

func badRequest(place, reason string) *ValueError {
	return &ValueError{Status: http.StatusBadRequest, Place: place, Reason: reason}
}

// Header is the header called name. Several lines of it are an error unless
// all are the same, since a handler or another server may read any of them. A
// line is one text: commas in it separate nothing.
func Header(name string) Value {
	key := http.CanonicalHeaderKey(name)
	place := fmt.Sprintf("header %q", key)
	if key == "Host" { // net/http keeps it elsewhere
		return func(r *http.Request) (string, error) { return r.Host, nil }
	}
	return func(r *http.Request) (string, error) { return same(r.Header[key], place) }
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
func same(texts []string, place string) (string, error) {
	if len(texts) == 0 {
		return "", nil
	}
	for _, text := range texts[1:] {
		if text != texts[0] {
			return "", badRequest(place, "two different values")
		}
	}
	return texts[0], nil
}

// Cookie is the cookie called name, as [http.Request.CookiesNamed] reads it. A
// name that comes twice with different values is an error: browsers do so for
// cookies of different paths, but no handler can tell which is which.
func Cookie(name string) Value {
	place := fmt.Sprintf("cookie %q", name)
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
		return same(texts, place)
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

// Form is the form field, as [http.Request.FormValue] reads it, by the same
// rules of method and Content-Type: from the query, and from an urlencoded or
// multipart body. If an outer handler has parsed the form, that is the form.
//
// It is an error if the field has two different values, in query and body
// together, since a handler may read either; if it comes as a file; and if any
// part of query or body is malformed, a semicolon between fields for one, which
// FormValue would skip. An urlencoded body above the 10 MB that net/http reads
// is too large, whatever the bound.
func Form(field string) Value {
	place := fmt.Sprintf("form field %q", field)
	return inBody(place, func(q *request) (string, error) {
		form, files, err := q.parseForm()
		if err != nil {
			return "", err
		}
		if len(files[field]) > 0 {
			return "", badRequest(place, "a file")
		}
		return same(form[field], place)
	})
}

// JSON is a field of a JSON body, which is named by the keys that lead to it:
// JSON("user", "email") is "a@b" of {"user": {"email": "a@b"}}. JSON() is the
// whole body. A string is itself, a whole number its decimal digits, however
// many: "7", and "0" for -0. The field is absent if it is null or not there, if
// a key that leads to it is, or if the body is empty.
//
// Keys match as encoding/json matches them to a struct, whatever their case.
// Two keys on the way that match are an error, since decoders differ about
// which of them counts. So is any other value, a fraction and an exponent
// too: 1e2 is 100 to some decoders only. So is a body that is not one JSON text
// as encoding/json has it: nested at most 10,000 deep, nothing after it.
//
// The Content-Type is not looked at: few handlers do, and one that does not
// would read what this had not.
func JSON(path ...string) Value {
	place := fmt.Sprintf("JSON field %q", strings.Join(path, "."))
	var names [][]byte
	for _, name := range path {
		names = append(names, []byte(name))
	}
	return inBody(place, func(q *request) (string, error) {
		data, err := q.json()
		if err != nil || len(data) == 0 {
			return "", err
		}
		text, reason := fieldOf(data, names)
		if reason != "" {
			return "", badRequest(place, reason)
		}
		return text, nil
	})
}

// fieldOf finds path in data, which is valid JSON, or says why it has no text.
//
// It walks the bytes itself: json.Valid has been there before, so all that is
// left is to see where values end. A json.Decoder's tokens say the same (a test
// holds the two together), in several times the time and with an allocation for
// each token on the way.
func fieldOf(data []byte, path [][]byte) (text, reason string) {
	data = skipSpace(data)
	for _, name := range path {
		if data[0] == 'n' {
			return "", ""
		}
		if data[0] != '{' {
			return "", "not in an object"
		}
		value, n := member(data, name)
		if n == 0 {
			return "", ""
		}
		if n > 1 {
			return "", "a key comes twice"
		}
		data = value
	}
	value, _ := cutValue(data)
	switch c := value[0]; {
	case c == 'n':
		return "", ""
	case c == '"':
		return unquote(value), ""
	case (c == '-' || '0' <= c && c <= '9') && !bytes.ContainsAny(value, ".eE"):
		if string(value) == "-0" {
			return "0", ""
		}
		return string(value), ""
	}
	return "", "neither a string nor a whole number"
}

// member is the last value in object whose key is name, and how many there are.
func member(object, name []byte) (found []byte, n int) {
	rest := skipSpace(object[1:])
	for rest[0] != '}' {
		var key, value []byte
		key, rest = cutValue(rest)
		rest = skipSpace(skipSpace(rest)[1:]) // the colon
		value, rest = cutValue(rest)
		if isKey(key, name) {
			found, n = value, n+1
		}
		rest = skipSpace(rest)
		if rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
	}
	return found, n
}

// isKey folds as encoding/json does. To both, each byte that is no UTF-8 is a
// U+FFFD.
func isKey(quoted, name []byte) bool {
	key := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		key = []byte(unquote(quoted))
	}
	return bytes.EqualFold(key, name)
}

// cutValue cuts off the value, or the key, that data begins with.
func cutValue(data []byte) (value, rest []byte) {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inString = !inString
		case inString:
			if c == '\\' {
				i++
			}
		case c == '{' || c == '[':
			depth++
		case depth > 0:
			if c == '}' || c == ']' {
				depth--
			}
		case c == ',' || c == ':' || c == '}' || isSpace(c):
			return data[:i], data[i:]
		}
	}
	return data, nil
}

func skipSpace(data []byte) []byte {
	for len(data) > 0 && isSpace(data[0]) {
		data = data[1:]
	}
	return data
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// unquote is what encoding/json makes of a string.
func unquote(quoted []byte) (s string) {
	_ = json.Unmarshal(quoted, &s) // it is valid
	return s
}
