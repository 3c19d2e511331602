package httplimit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

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
		// As encoding/json folds. To both, each byte that is no UTF-8 is a U+FFFD.
		if bytes.EqualFold(key, name) {
			found, n = value, n+1
		}
	}
	var escaped []byte  // keys that have escapes, as a JSON array
	var values [][]byte // values[i] belongs to the i-th of them
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
	// Together: one by one they would take a client's megabyte five times as
	// long as decoding it does.
	if escaped != nil {
		var keys []string
		escaped[0] = '['
		_ = json.Unmarshal(append(escaped, ']'), &keys) // it is valid
		for i, key := range keys {
			take([]byte(key), values[i])
		}
	}
	return found, n
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
