package limiter

import (
	"errors"
	"net/mail"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// The longest parts of an address that mail can be sent to: RFC 5321, section
// 4.5.3.1, and for a label of the domain RFC 1035, section 2.3.4.
const (
	maxLocal = 64
	maxEmail = 254
	maxLabel = 63
)

var errEmail = errors.New(`limiter: feature "email" is not an e-mail address, want local-part@domain`)

// Email is the feature "email": the address in small letters, without quotes and
// without a comment behind it, its domain as ASCII. White space around it is
// ignored. By RFC 5321 capitals in the local part could be somebody else;
// nobody's are. Config.EmailIgnoreDots and EmailIgnoreTags ignore its dots, and
// what follows a plus sign. Text that is not an address (a name beside it
// included) makes a Feature that is an error; empty text is a missing feature.
func Email(address string) Feature {
	t := Feature{kind: KindEmail}
	address = strings.TrimSpace(address)
	if address == "" {
		return t
	}
	local, domain, ok := splitPlain(address)
	if !ok {
		local, domain, ok = split(address)
	}
	if !ok || len(local) > maxLocal || len(local)+1+len(domain) > maxEmail {
		t.err = errEmail
		return t
	}
	t.text, t.domain = local, domain
	return t
}

// splitPlain splits an address of which nothing needs to be parsed: letters,
// digits and a few signs, as nearly all are. What it does not know it leaves to
// split.
func splitPlain(address string) (local, domain string, ok bool) {
	at := strings.IndexByte(address, '@')
	if at <= 0 || at == len(address)-1 {
		return "", "", false
	}
	last := byte('.')
	for i := range at {
		b := address[i]
		switch {
		case 'a' <= b|0x20 && b|0x20 <= 'z', '0' <= b && b <= '9', b == '_', b == '-', b == '+':
		case b == '.' && last != '.':
		default:
			return "", "", false
		}
		last = b
	}
	if last == '.' {
		return "", "", false
	}
	domain = address[at+1:]
	if len(domain) > maxLabel { // one label might be
		return "", "", false
	}
	last = '.'
	for i := range len(domain) {
		b := domain[i]
		switch {
		case 'a' <= b && b <= 'z', '0' <= b && b <= '9':
		case b == '-' && last != '.' && last != '-': // "xn--" is looked at by split
		case b == '.' && last != '.' && last != '-':
		default:
			return "", "", false
		}
		last = b
	}
	if last == '.' || last == '-' {
		return "", "", false
	}
	return address[:at], domain, true
}

// toASCII is idna.Lookup, and refuses labels that are empty or too long.
var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.VerifyDNSLength(true)).ToASCII

// split parses an address by RFC 5322, and brings the domain to ASCII and what
// is not ASCII to small letters.
func split(address string) (local, domain string, ok bool) {
	if len(address) > 4*maxEmail { // comments and quotes, within reason
		return "", "", false
	}
	address = norm.NFC.String(address) // first: a Greek question mark is a semicolon
	// The parser takes a name with the address in brackets, and a group of
	// one, for an address too; in quotes nobody has these signs.
	if strings.ContainsAny(address, "<;") {
		return "", "", false
	}
	rootless := strings.TrimSuffix(address, ".")
	parsed, err := mail.ParseAddress(rootless)
	if err != nil {
		return "", "", false
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain = parsed.Address[:at], parsed.Address[at+1:]
	if strings.ContainsFunc(local, unicode.IsControl) {
		return "", "", false
	}
	// A small letter can combine with an accent that its capital left alone.
	local = norm.NFC.String(strings.ToLower(local))
	if strings.HasPrefix(domain, "[") {
		return local, strings.ToLower(domain), true
	}
	if domain, err = toASCII(domain); err != nil {
		return "", "", false
	}
	if rootless == address { // or its dot is not ASCII
		domain = strings.TrimSuffix(domain, ".")
	}
	return local, domain, domain != "" && !strings.HasSuffix(domain, ".")
}

// appendLocal appends the local part of an address. What is not ASCII in it is
// in small letters already.
func (c *normalizer) appendLocal(dst []byte, local string) []byte {
	if c.ignoreTags {
		if plus := strings.IndexByte(local, '+'); plus > 0 {
			local = local[:plus]
		}
	}
	start := len(dst)
	for i := range len(local) {
		b := local[i]
		switch {
		case 'A' <= b && b <= 'Z':
			b |= 0x20
		case b == '.' && c.ignoreDots:
			continue
		}
		dst = append(dst, b)
	}
	if len(dst) == start { // nothing but dots, in quotes
		return append(dst, local...)
	}
	return dst
}
