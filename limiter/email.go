package limiter

import (
	"errors"
	"net/mail"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// The longest parts of an address to which mail can be sent: RFC 5321, section
// 4.5.3.1, and for a label of the domain RFC 1035, section 2.3.4.
const (
	maxLocal = 64
	maxEmail = 254
	maxLabel = 63
)

var errEmail = errors.New(`limiter: feature "email" is not an e-mail address, want local-part@domain`)

// Email is a feature of kind "email": the address in small letters, without
// quotes, without a comment, and with its domain as ASCII. White space around
// the address is ignored. RFC 5321 lets capitals in the local part name another
// mailbox; no provider does so. Config.EmailProviders, EmailIgnoreDots and EmailIgnoreTags
// ignore dots and text after a plus sign. Text that is not an address, or has a
// name beside the address, makes a Feature with an error; empty text makes a
// missing feature.
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

// splitPlain splits an address in which nothing needs to be parsed: letters,
// digits and a few signs, as in nearly all addresses. ok is false for any other
// address, which split parses.
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

// toASCII is idna.Lookup, but refuses labels that are empty or too long.
var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.VerifyDNSLength(true)).ToASCII

// split parses an address by RFC 5322. The domain becomes ASCII, and letters of the
// local part outside of ASCII become small.
func split(address string) (local, domain string, ok bool) {
	if len(address) > 4*maxEmail { // comments and quotes, within reason
		return "", "", false
	}
	address = norm.NFC.String(address) // first: a Greek question mark is a semicolon
	// The parser also takes a name with the address in brackets, and a group of
	// one address; no address has these signs in quotes.
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
	// A small letter can combine with an accent where its capital could not.
	local = norm.NFC.String(strings.ToLower(local))
	if strings.HasPrefix(domain, "[") {
		return local, strings.ToLower(domain), true
	}
	if domain, err = toASCII(domain); err != nil {
		return "", "", false
	}
	if rootless == address { // or the final dot is not ASCII
		domain = strings.TrimSuffix(domain, ".")
	}
	return local, domain, domain != "" && !strings.HasSuffix(domain, ".")
}

// appendEmail appends an e-mail address, or a domain if local is empty. Letters of
// the local part outside of ASCII are small already.
func (c *normalizer) appendEmail(dst []byte, local, domain string) []byte {
	p, known := c.providers[domain]
	if known {
		domain = p.domain
	}
	if local == "" {
		return append(dst, domain...)
	}
	if c.ignoreTags || p.IgnoreTags {
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
		case b == '.' && (c.ignoreDots || p.IgnoreDots):
			continue
		}
		dst = append(dst, b)
	}
	if len(dst) == start { // nothing but dots, in quotes
		dst = append(dst, local...)
	}
	return append(append(dst, '@'), domain...)
}
