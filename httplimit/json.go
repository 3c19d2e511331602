package httplimit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// JSON is a field of a JSON body, under the keys in path: JSON("user", "email")
// is "a@b" of {"user": {"email": "a@b"}}. JSON() is the whole body. A string is
// read as its text, a whole number as decimal digits, however many: "7", and "0"
// for -0. The field is absent if null or not there, if a key on the path is, or
// if the body is empty.
//
// Keys match as encoding/json matches keys to a struct, in any case of letters.
// Two matching keys on the path are an error, since decoders differ about the key
// that counts. Any other value is an error, a fraction and an exponent too: 1e2
// is 100 to a few decoders only. A body must be a single JSON text, nested at
// most 10,000 deep as in encoding/json, with nothing after the text.
//
// The Content-Type is ignored: few handlers look at the Content-Type, and a
// handler that ignores the Content-Type would otherwise read a field that was not
// limited.
func JSON(path ...string) Value {
	source := fmt.Sprintf("JSON field %q", strings.Join(path, "."))
	return named(!slices.Contains(path, ""), source, inBody(source, func(q *request) (string, error) {
		data, err := q.plain()
		if err != nil || len(data) == 0 {
			return "", err
		}
		if !json.Valid(data) {
			return "", badRequest(wholeBody, "the request is not valid JSON")
		}
		text, reason := fieldOf(data, path)
		if reason != "" {
			return "", badRequest(source, reason)
		}
		return text, nil
	}))
}

// fieldOf finds path in data, which is valid. reason is the error of a value without
// text.
//
// encoding/json decides what is valid, and decodes strings. In valid JSON, finding a
// value takes little more than counting brackets. The tokens of a json.Decoder find the
// same (a test compares the two), but allocate for each token: a body of 1 MiB would
// cost six times as much as in a handler.
func fieldOf(data []byte, path []string) (text, reason string) {
	value := bytes.TrimSpace(data)
	for _, name := range path {
		switch value[0] {
		case '{':
		case 'n':
			return "", ""
		default:
			return "", "is not in an object"
		}
		var n int
		switch value, n = member(value, name); {
		case n == 0:
			return "", ""
		case n > 1:
			return "", "has a key twice on its path"
		}
	}
	switch c := value[0]; {
	case c == 'n':
		return "", ""
	case c == '"':
		return unquote(value), ""
	case string(value) == "-0":
		return "0", ""
	case (c == '-' || '0' <= c && c <= '9') && !bytes.ContainsAny(value, ".eE"):
		return string(value), ""
	}
	return "", "must be text or a whole number"
}

// member returns the last value of object whose key is name, and how many there are.
func member(object []byte, name string) (found []byte, n int) {
	var key []byte // of the member at hand; nil: not there yet
	depth, value := 0, 0
	for at := 0; at < len(object); at++ {
		switch c := object[at]; c {
		case '"':
			begin := at
			for at++; object[at] != '"'; at++ {
				if object[at] == '\\' {
					at++
				}
			}
			if depth == 1 && key == nil {
				key, value = object[begin:at+1], at+1
			}
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 1 {
				if key != nil && isKey(key, name) {
					found, n = bytes.TrimLeft(object[value:at], ": \t\r\n"), n+1
				}
				key = nil
			}
			if c != ',' {
				depth--
			}
		}
	}
	return bytes.TrimSpace(found), n
}

// isKey reports whether a quoted key is name by the rules of encoding/json: in any case,
// and each byte outside of UTF-8 is a U+FFFD.
func isKey(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		return strings.EqualFold(unquote(quoted), name)
	}
	return bytes.EqualFold(quoted[1:len(quoted)-1], []byte(name))
}

// unquote decodes a string as encoding/json does.
func unquote(quoted []byte) (s string) {
	_ = json.Unmarshal(quoted, &s) // cannot fail: quoted is valid
	return s
}
