package feature

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Forms says which values are the same feature, beyond those that always are. The zero
// Forms is right for most programs.
type Forms struct {
	// IPv4Bits and IPv6Bits are the lengths of the networks that stand for the
	// addresses of [IP]. Default: 32 and 64.
	IPv4Bits, IPv6Bits int

	// EmailIgnoreDots and EmailIgnoreTags ignore dots in the local part of an
	// e-mail address, and the text from a plus sign on, of all providers. Some
	// providers deliver all such addresses to the same mailbox, while other
	// providers give them to different people: see EmailProviders.
	EmailIgnoreDots, EmailIgnoreTags bool

	// EmailProviders are providers of mail with rules of their own, such as Gmail().
	// Default: none.
	EmailProviders []EmailProvider
}

// EmailProvider is a provider of mail: all addresses of a mailbox are the same
// feature.
type EmailProvider struct {
	Domains    []string // a mailbox has an address in each domain; the first domain is in the text
	IgnoreDots bool     // dots in the local part make no difference
	IgnoreTags bool     // text from a plus sign on makes no difference
}

// Gmail is the provider of gmail.com and googlemail.com, which ignores dots and
// tags. Domains of companies with mail at Google do not ignore dots.
func Gmail() EmailProvider {
	return EmailProvider{Domains: []string{"gmail.com", "googlemail.com"}, IgnoreDots: true, IgnoreTags: true}
}

// Normalizer writes features in their normal form. [NewNormalizer] makes a
// Normalizer. Many goroutines may use it at once.
type Normalizer struct {
	forms     Forms
	providers map[string]provider // by domain
}

// provider is an EmailProvider with the domain of its texts.
type provider struct {
	EmailProvider
	domain string
}

// whole writes addresses in full.
var whole = &Normalizer{forms: Forms{IPv4Bits: 32, IPv6Bits: 128}}

// NewNormalizer returns a Normalizer for forms. An error names the wrong field.
func NewNormalizer(forms Forms) (*Normalizer, error) {
	n := &Normalizer{forms: forms, providers: map[string]provider{}}
	errs := []error{n.addProviders()}
	n.forms.IPv4Bits, n.forms.IPv6Bits = cmp.Or(forms.IPv4Bits, 32), cmp.Or(forms.IPv6Bits, 64)
	if bits := forms.IPv4Bits; bits < 0 || bits > 32 {
		errs = append(errs, fmt.Errorf("feature: Forms.IPv4Bits is %d, want 1 to 32, or 0 for 32", bits))
	}
	if bits := forms.IPv6Bits; bits < 0 || bits > 128 {
		errs = append(errs, fmt.Errorf("feature: Forms.IPv6Bits is %d, want 1 to 128, or 0 for 64", bits))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return n, nil
}

// addProviders enters the providers by all of their domains.
func (n *Normalizer) addProviders() error {
	for i, p := range n.forms.EmailProviders {
		if len(p.Domains) == 0 {
			return fmt.Errorf("feature: Forms.EmailProviders[%d].Domains is empty, want at least one domain", i)
		}
		first := Domain(p.Domains[0]).text
		for j, text := range p.Domains {
			domain := Domain(text).text
			if domain == "" || strings.Contains(text, "@") {
				return fmt.Errorf("feature: Forms.EmailProviders[%d].Domains[%d] is %q, want a domain such as example.org", i, j, text)
			}
			if _, twice := n.providers[domain]; twice {
				return fmt.Errorf("feature: Forms.EmailProviders[%d].Domains[%d] is %q, which is there twice", i, j, text)
			}
			n.providers[domain] = provider{p, first}
		}
	}
	return nil
}

// Append appends the text of f to dst: the kind, a colon, and the value in normal
// form. The kind ends at the first colon, so no two kinds meet. Stores
// keep the text for as long as a limit lasts: it depends on f and Forms alone. f must
// have a value, and no error.
func (n *Normalizer) Append(dst []byte, f *Feature) []byte {
	return n.appendValue(append(append(dst, f.kind...), endOfKind), f)
}

// appendValue appends the value of f.
func (n *Normalizer) appendValue(dst []byte, f *Feature) []byte {
	if f.parts != nil {
		return n.appendJoined(dst, *f.parts)
	}
	return n.appendPart(dst, f)
}

// appendPart appends the value of f, which is not joined. It is apart from appendValue
// since a buffer that is given to recursive functions is moved to the heap.
func (n *Normalizer) appendPart(dst []byte, f *Feature) []byte {
	switch {
	case f.bits != 0:
		return appendNetwork(dst, f.addr, int(f.bits))
	case f.addr.Is4():
		return appendNetwork(dst, f.addr, n.forms.IPv4Bits)
	case f.addr.Is6():
		return appendNetwork(dst, f.addr, n.forms.IPv6Bits)
	case f.kind == KindEmail || f.kind == KindDomain:
		return n.appendEmail(dst, f.text)
	}
	return append(dst, f.text...)
}

// appendJoined appends the value of Join.
func (n *Normalizer) appendJoined(dst []byte, parts []Feature) []byte {
	for i := range parts {
		if i > 0 {
			dst = append(dst, joinValues...)
		}
		start := len(dst)
		dst = n.appendPart(dst, &parts[i])
		if value := dst[start:]; bytes.ContainsAny(value, "%"+joinValues) {
			dst = append(dst[:start], escape.Replace(string(value))...)
		}
	}
	return dst
}

// appendNetwork appends the network of the first bits of addr, or addr if that is
// all of them. bits are in range.
func appendNetwork(dst []byte, addr netip.Addr, bits int) []byte {
	network, err := addr.Prefix(bits)
	if err != nil || network.IsSingleIP() {
		return addr.AppendTo(dst)
	}
	return network.AppendTo(dst)
}

// appendEmail appends an e-mail address, or a domain, in normal form. Letters of the
// local part outside of ASCII are small already.
func (n *Normalizer) appendEmail(dst []byte, text string) []byte {
	local, domain := splitEmail(text)
	p, known := n.providers[domain]
	if known {
		domain = p.domain
	}
	if local == "" {
		return append(dst, domain...)
	}
	if n.forms.EmailIgnoreTags || p.IgnoreTags {
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
		case b == '.' && (n.forms.EmailIgnoreDots || p.IgnoreDots):
			continue
		}
		dst = append(dst, b)
	}
	if len(dst) == start { // nothing but dots, in quotes
		dst = append(dst, local...)
	}
	return append(append(dst, '@'), domain...)
}

// splitEmail splits an address, or returns a domain by itself.
func splitEmail(text string) (local, domain string) {
	at := strings.LastIndexByte(text, '@') // quoted signs come before
	return text[:max(0, at)], text[at+1:]
}
