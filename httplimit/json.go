package httplimit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
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
	var names [][]byte
	for _, name := range path {
		names = append(names, []byte(name))
	}
	return inBody(source, func(q *request) (string, error) {
		data, err := q.plain()
		if err != nil || len(data) == 0 {
			return "", err
		}
		text, reason, valid := fieldOf(data, names)
		if !valid {
			return "", badRequest(wholeBody, "the request is not valid JSON")
		}
		if reason != "" {
			return "", badRequest(source, reason)
		}
		return text, nil
	})
}

// fieldOf finds path in data; reason is the error of a value without text. valid is
// false if data is not JSON, whatever the path.
//
// fieldOf walks the bytes once for each object on the path, and checks what
// json.Valid checks. The tokens of a json.Decoder give the same answers (a test
// compares the two), in several times the time and with an allocation for each
// token on the way.
func fieldOf(data []byte, path [][]byte) (text, reason string, valid bool) {
	data = data[spaceAt(data, 0):]
	end := 0
	for i, name := range path {
		if len(data) == 0 || data[0] != '{' {
			if i == 0 && !isWhole(data, skip(data, 0)) {
				return "", "", false
			}
			if data[0] == 'n' {
				return "", "", true
			}
			return "", "is not in an object", true
		}
		var value []byte
		var n int
		value, n, end = member(data, name)
		switch {
		case i == 0 && !isWhole(data, end):
			return "", "", false
		case n == 0:
			return "", "", true
		case n > 1:
			return "", "has a key twice on its path", true
		}
		data = value
	}
	if end = skip(data, 0); !isWhole(data, end) {
		return "", "", false
	}
	text, reason = textOf(data[:end])
	return text, reason, true
}

// isWhole tells whether nothing but white space follows the value that ends at end;
// an end below 0 stands for no value.
func isWhole(data []byte, end int) bool { return end >= 0 && spaceAt(data, end) == len(data) }

// textOf is the text of a value.
func textOf(value []byte) (text, reason string) {
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
	return "", "must be text or a whole number"
}

// member is the last value in the object at the beginning of data whose key is name,
// and how many there are. end is the end of the object, below 0 if data is not JSON.
func member(data, name []byte) (found []byte, n, end int) {
	at := spaceAt(data, 1)
	if at < len(data) && data[at] == '}' {
		return nil, 0, at + 1
	}
	for {
		begin := at
		if at = skipString(data, at); at < 0 {
			return nil, 0, -1
		}
		key := data[begin:at]
		if at = spaceAt(data, at); at == len(data) || data[at] != ':' {
			return nil, 0, -1
		}
		begin = spaceAt(data, at+1)
		if at = skip(data, begin, '{'); at < 0 {
			return nil, 0, -1
		}
		if isKey(key[1:len(key)-1], name) {
			found, n = data[begin:at], n+1
		}
		if at = spaceAt(data, at); at == len(data) {
			return nil, 0, -1
		}
		if data[at] == '}' {
			return found, n, at + 1
		}
		if data[at] != ',' {
			return nil, 0, -1
		}
		at = spaceAt(data, at+1)
	}
}

// isKey tells whether key, as it is written between quotes, is name by the rules of
// encoding/json: in any case, and each byte outside of UTF-8 is a U+FFFD.
func isKey(key, name []byte) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return bytes.EqualFold(key, name)
	}
	for len(key) > 0 && len(name) > 0 {
		a, n := letter(key)
		b, m := utf8.DecodeRune(name)
		if a != b {
			r := unicode.SimpleFold(a)
			for r != a && r != b {
				r = unicode.SimpleFold(r)
			}
			if r != b {
				return false
			}
		}
		key, name = key[n:], name[m:]
	}
	return len(key) == len(name)
}

// letter is the first letter of key, and the number of its bytes.
func letter(key []byte) (r rune, n int) {
	if key[0] != '\\' {
		return utf8.DecodeRune(key)
	}
	if key[1] != 'u' {
		const signs, meaning = "bfnrt", "\b\f\n\r\t"
		if i := strings.IndexByte(signs, key[1]); i >= 0 {
			return rune(meaning[i]), 2
		}
		return rune(key[1]), 2
	}
	r = unit(key)
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(key) >= 12 && key[6] == '\\' && key[7] == 'u' {
		if r := utf16.DecodeRune(r, unit(key[6:])); r != utf8.RuneError {
			return r, 12
		}
	}
	return utf8.RuneError, 6
}

// unit is the number of the escape at the beginning of key, four digits after \u.
func unit(key []byte) rune {
	n, _ := strconv.ParseUint(string(key[2:6]), 16, 16) // cannot fail: the key is valid
	return rune(n)
}

// maxDepth is the greatest depth of nesting of encoding/json.
const maxDepth = 10000

// skip returns the end of the value at data[at], below 0 if there is none that
// encoding/json accepts. outer are the brackets around the value.
func skip(data []byte, at int, outer ...byte) int {
	var room [64]byte
	open := append(room[:0], outer...)
	for {
		if at >= len(data) {
			return -1
		}
		switch c := data[at]; {
		case c == '"':
			at = skipString(data, at)
		case c == '{' || c == '[':
			if open = append(open, c); len(open) > maxDepth {
				return -1
			}
			if at = spaceAt(data, at+1); at == len(data) {
				return -1
			}
			if data[at] != c+2 { // the closing bracket, in ASCII
				if c == '{' {
					if at = skipKey(data, at); at < 0 {
						return -1
					}
				}
				continue
			}
			open = open[:len(open)-1]
			at++
		case c == '-' || '0' <= c && c <= '9':
			at = skipNumber(data, at)
		default:
			at = skipWord(data, at)
		}
		// A value has ended, and maybe what is around it.
		for {
			if at < 0 || len(open) == len(outer) {
				return at
			}
			if at = spaceAt(data, at); at == len(data) {
				return -1
			}
			c := open[len(open)-1]
			if data[at] == c+2 {
				open = open[:len(open)-1]
				at++
				continue
			}
			if data[at] != ',' {
				return -1
			}
			at = spaceAt(data, at+1)
			if c == '{' {
				if at = skipKey(data, at); at < 0 {
					return -1
				}
			}
			break
		}
	}
}

// skipKey skips a key, its colon and the space around both.
func skipKey(data []byte, at int) int {
	if at = skipString(data, at); at < 0 {
		return -1
	}
	if at = spaceAt(data, at); at == len(data) || data[at] != ':' {
		return -1
	}
	return spaceAt(data, at+1)
}

func skipString(data []byte, at int) int {
	if at >= len(data) || data[at] != '"' {
		return -1
	}
	for at++; at < len(data); at++ {
		switch c := data[at]; {
		case c == '"':
			return at + 1
		case c < ' ':
			return -1
		case c != '\\':
		default:
			if at++; at == len(data) {
				return -1
			}
			switch data[at] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if at++; at == len(data) || !isHex(data[at]) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
	return -1
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func skipNumber(data []byte, at int) int {
	if data[at] == '-' {
		at++
	}
	begin := at
	if at = skipDigits(data, at); at < 0 || data[begin] == '0' && at > begin+1 {
		return -1
	}
	if at < len(data) && data[at] == '.' {
		if at = skipDigits(data, at+1); at < 0 {
			return -1
		}
	}
	if at < len(data) && data[at]|0x20 == 'e' {
		if at++; at < len(data) && (data[at] == '+' || data[at] == '-') {
			at++
		}
		at = skipDigits(data, at)
	}
	return at
}

// skipDigits skips digits, one at least.
func skipDigits(data []byte, at int) int {
	begin := at
	for at < len(data) && '0' <= data[at] && data[at] <= '9' {
		at++
	}
	if at == begin {
		return -1
	}
	return at
}

func skipWord(data []byte, at int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if rest := data[at:]; len(rest) >= len(word) && string(rest[:len(word)]) == word {
			return at + len(word)
		}
	}
	return -1
}

// spaceAt is the end of the white space that begins at data[at].
func spaceAt(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n') {
		at++
	}
	return at
}

// unquote decodes a string as encoding/json does.
func unquote(quoted []byte) (s string) {
	_ = json.Unmarshal(quoted, &s) // cannot fail: quoted is valid
	return s
}
