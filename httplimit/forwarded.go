package httplimit

import (
	"net/netip"
	"strings"
)

// lastForwarded reads the last element of a line of Forwarded, RFC 7239:
//
//	element = [ pair ] *( ";" [ pair ] )
//	pair    = name "=" ( value / quoted )
//
// An element is malformed without a for, with two, or with a for that is no
// address: "unknown" and obfuscated names such as "_hidden" tell clients apart
// as little as nothing does. Beyond the RFC, blanks may stand around a
// semicolon, a value without quotes may hold colons and brackets, and an IPv6
// address need have no brackets: such headers are seen, and can be read in one
// way only, but for "2001:db8::1:567", see [clientAddr]. An address with a
// backslash is malformed, though the RFC lets a quoted string escape any
// character.
//
// A line is read from the end. Read from the start, a quote that the client has
// left open, as in
//
//	for=192.0.2.66;by=", for=198.51.100.7
//
// would take in the text that the proxy appended. From the end, an element that
// a proxy wrote well is read as written, whatever stands before its comma: the
// text on the right of a quote decides whether the quote opens or closes a
// string. A line is not continued on the next line.
func lastForwarded(line string) (a netip.Addr, before string, more bool) {
	for {
		name, value, rest, ok := cutPair(strings.TrimRight(line, " \t"))
		if !ok {
			return netip.Addr{}, "", false
		}
		if strings.EqualFold(name, "for") {
			twice := a.IsValid()
			if a = clientAddr(value); twice || !a.IsValid() {
				return netip.Addr{}, "", false
			}
		}
		rest = strings.TrimRight(rest, " \t")
		if rest == "" {
			return a, "", false
		}
		line = rest[:len(rest)-1]
		switch rest[len(rest)-1] {
		case ',':
			return a, line, true
		case ';':
		default:
			return netip.Addr{}, "", false
		}
	}
}

// cutPair reads the pair at the end of s: its name, its value without quotes
// but with backslashes, and the text before the pair. Name and value are empty
// if s ends with a separator.
func cutPair(s string) (name, value, before string, ok bool) {
	if s == "" || s[len(s)-1] == ';' || s[len(s)-1] == ',' {
		return "", "", s, true
	}
	if s[len(s)-1] == '"' {
		open := openingQuote(s[:len(s)-1])
		if open < 0 {
			return "", "", "", false
		}
		value, s = s[open+1:len(s)-1], s[:open]
	} else {
		rest := trimRight(s, isValue)
		if rest == s {
			return "", "", "", false
		}
		value, s = s[len(rest):], rest
	}
	s, found := strings.CutSuffix(s, "=")
	before = trimRight(s, isToken)
	if !found || before == s {
		return "", "", "", false
	}
	return s[len(before):], value, before, true
}

// openingQuote is the index in s of the quote that opens the string whose
// closing quote follows s; -1 if there is none. A quote after an odd number of
// backslashes is escaped, and neither opens nor closes. No byte is looked at
// more than a few times, however many quotes there are.
func openingQuote(s string) int {
	end := len(s) - backslashes(s)
	if (len(s)-end)%2 == 1 {
		return -1 // the closing quote was escaped
	}
	for {
		quote := strings.LastIndexByte(s[:end], '"')
		if quote < 0 {
			return -1
		}
		end = quote - backslashes(s[:quote])
		if (quote-end)%2 == 0 {
			if strings.ContainsFunc(s[quote+1:], func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
				return -1
			}
			return quote
		}
	}
}

// backslashes counts the backslashes at the end of s.
func backslashes(s string) int {
	return len(s) - len(strings.TrimRight(s, `\`))
}

// trimRight returns s without the bytes at its end that are of a kind.
func trimRight(s string, is func(byte) bool) string {
	for s != "" && is(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// isToken is true for a byte of a name: tchar of RFC 9110.
func isToken(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}

// isValue is true for a byte of a value without quotes.
func isValue(b byte) bool { return isToken(b) || b == ':' || b == '[' || b == ']' }
