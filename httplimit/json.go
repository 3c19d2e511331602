package httplimit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// JSON is a field of a JSON body, under the keys in path: JSON("user", "email")
// is "a@b" of {"user": {"email": "a@b"}}. JSON() is the whole body. A string is
// read as its text, a whole number as its decimal digits, however many: "7",
// and "0" for -0. The field is absent if null or not there, if a key on the
// path is, or if the body is empty.
//
// Keys match as encoding/json matches keys to a struct, whatever their case.
// Two keys on the path that match are an error, since decoders differ about
// which key counts. Any other value is an error, a fraction and an exponent
// too: 1e2 is 100 to a few decoders only. A body must be a single JSON text as
// encoding/json reads it: nested at most 10,000 deep, with nothing after the
// text.
//
// The Content-Type is ignored: few handlers look at it, and a handler that
// ignores the Content-Type would otherwise read a field that was not limited.
func JSON(path ...string) Value {
	source := fmt.Sprintf("JSON field %q", strings.Join(path, "."))
	var names [][]byte
	for _, name := range path {
		names = append(names, []byte(name))
	}
	return inBody(source, func(q *request) (string, error) {
		data, err := q.json()
		if err != nil || len(data) == 0 {
			return "", err
		}
		text, reason := fieldOf(data, names)
		if reason != "" {
			return "", badRequest(source, reason)
		}
		return text, nil
	})
}

// fieldOf finds path in data, which is valid JSON; reason is the error of a
// value without text.
//
// fieldOf walks the bytes: json.Valid has checked data before, so only the ends
// of values are left to find. The tokens of a json.Decoder give the same
// answers (a test compares the two), in several times the time and with an
// allocation for each token on the way.
func fieldOf(data []byte, path [][]byte) (text, reason string) {
	data = skipSpace(data)
	for _, name := range path {
		if data[0] == 'n' {
			return "", ""
		}
		if data[0] != '{' {
			return "", "is not in an object"
		}
		value, n := member(data, name)
		if n == 0 {
			return "", ""
		}
		if n > 1 {
			return "", "has a key twice on its path"
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
	return "", "is neither a string nor a whole number"
}

// member is the last value in object whose key is name, and how many there are.
func member(object, name []byte) (found []byte, n int) {
	take := func(key, value []byte) {
		// As encoding/json folds. For both, each byte outside of UTF-8 is a U+FFFD.
		if bytes.EqualFold(key, name) {
			found, n = value, n+1
		}
	}
	var escaped []byte  // keys with escapes, as a JSON array
	var values [][]byte // values[i] belongs to key i of escaped
	rest := skipSpace(object[1:])
	for rest[0] != '}' {
		var key, value []byte
		key, rest = cutValue(rest)
		rest = skipSpace(skipSpace(rest)[1:]) // the colon
		value, rest = cutValue(rest)
		if bytes.IndexByte(key, '\\') < 0 {
			take(key[1:len(key)-1], value)
		} else {
			escaped, values = append(append(escaped, ','), key...), append(values, value)
		}
		rest = skipSpace(rest)
		if rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
	}
	// All keys at once: key by key a megabyte from a client would take five
	// times as long as to decode.
	if escaped != nil {
		var keys []string
		escaped[0] = '['
		_ = json.Unmarshal(append(escaped, ']'), &keys) // cannot fail: data is valid
		for i, key := range keys {
			take([]byte(key), values[i])
		}
	}
	return found, n
}

// cutValue cuts off the first value, or key, of data.
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

// unquote decodes a string as encoding/json does.
func unquote(quoted []byte) (s string) {
	_ = json.Unmarshal(quoted, &s) // cannot fail: quoted is valid
	return s
}

// json is the whole body, which is empty or valid JSON.
func (q *request) json() ([]byte, error) {
	data, err := q.plain()
	if err != nil || len(data) == 0 || q.valid {
		return data, err
	}
	if !json.Valid(data) {
		return nil, badRequest(wholeBody, "the body is not JSON")
	}
	q.valid = true
	return data, nil
}
