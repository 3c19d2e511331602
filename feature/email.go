package feature

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

var (
	errEmail  = errors.New(`feature "email" is not an e-mail address, want local-part@domain`)
	errDomain = errors.New(`feature "domain" is neither a domain nor an e-mail address, want one such as example.org`)
)

// Email returns a feature of kind "email": the address in small letters, without
// quotes, without a comment, and with its domain as ASCII. White space around
// the address is ignored. RFC 5321 lets capitals in the local part name another
// mailbox; no provider does so. [Forms] can ignore dots and text after a plus sign.
// Text that is not an address, or has a name next to the address, makes a Feature with
// an error; empty text makes a missing feature.
func Email(address string) Feature {
	f := Feature{kind: KindEmail}
	address = strings.TrimSpace(address)
	if address == "" {
		return f
	}
	if !isPlain(address) {
		address = parseEmail(address)
	}
	if at := strings.LastIndexByte(address, '@'); at < 0 || at > maxLocal || len(address) > maxEmail {
		f.err = errEmail
		return f
	}
	f.text = address
	return f
}

// Domain returns a feature of kind "domain": the domain of an e-mail address, or a
// domain by itself, as ASCII in small letters. Text that is neither makes a
// Feature with an error; empty text makes a missing feature.
//
// A subdomain is another domain, and the owner of a domain has any number of
// subdomains. Where the registered domain should be limited, give Domain the result of
// publicsuffix.EffectiveTLDPlusOne, of golang.org/x/net.
func Domain(text string) Feature {
	f := Feature{kind: KindDomain}
	text = strings.TrimSpace(text)
	if text == "" {
		return f
	}
	if !strings.Contains(text, "@") {
		text = "x@" + text
	}
	of := Email(text)
	if of.err != nil {
		f.err = errDomain
	}
	_, f.text = splitEmail(of.text)
	return f
}

// isPlain reports whether an address needs no parsing: it has letters, digits and a
// few signs, as nearly all addresses do.
func isPlain(address string) bool {
	local, domain, _ := strings.Cut(address, "@")
	return areWords(local, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_-+", ".") && areWords(domain, "", "-.") &&
		len(domain) <= maxLabel // one label might be; and "xn--" is no word
}

// areWords reports whether text is one word or several, with one separator between two
// words. A word has small letters, digits and signs.
func areWords(text, signs, separators string) bool {
	within := false // a word
	for i := range len(text) {
		switch b := text[i]; {
		case 'a' <= b && b <= 'z', '0' <= b && b <= '9', strings.IndexByte(signs, b) >= 0:
			within = true
		case within && strings.IndexByte(separators, b) >= 0:
			within = false
		default:
			return false
		}
	}
	return within
}

// toASCII is idna.Lookup, but refuses labels that are empty or too long.
var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.VerifyDNSLength(true)).ToASCII

// parseEmail parses an address by RFC 5322, and returns "" for other text. The domain
// becomes ASCII, and letters of the local part outside of ASCII become small.
func parseEmail(address string) string {
	if len(address) > 4*maxEmail { // comments and quotes, within reason
		return ""
	}
	address = norm.NFC.String(address) // first: a Greek question mark is a semicolon
	// The parser also takes a name with the address in brackets, and a group of
	// one address; no address has these signs in quotes.
	if strings.ContainsAny(address, "<;") {
		return ""
	}
	rootless := strings.TrimSuffix(address, ".")
	parsed, err := mail.ParseAddress(rootless)
	if err != nil {
		return ""
	}
	local, domain := splitEmail(parsed.Address)
	if strings.ContainsFunc(local, unicode.IsControl) {
		return ""
	}
	if strings.HasPrefix(domain, "[") {
		domain = strings.ToLower(domain)
	} else if domain, err = toASCII(domain); err != nil {
		return ""
	} else if rootless == address { // or the final dot is not ASCII
		domain = strings.TrimSuffix(domain, ".")
	}
	if domain == "" || strings.HasSuffix(domain, ".") {
		return ""
	}
	// A small letter can combine with an accent where its capital could not.
	return norm.NFC.String(strings.ToLower(local)) + "@" + domain
}
