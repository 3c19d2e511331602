package limiter

import (
	"errors"
	"fmt"
	"strings"
)

var errDomain = errors.New(`limiter: feature "domain" is neither a domain nor an e-mail address, want one such as example.org`)

// Domain is a feature of kind "domain": the domain of an e-mail address, or a
// domain by itself, as ASCII in small letters. Text that is neither makes a
// Feature with an error; empty text makes a missing feature.
//
// A subdomain is another domain, and the owner of a domain has any number of
// subdomains. Where the registered domain should be limited, give Domain the result of
// publicsuffix.EffectiveTLDPlusOne, of golang.org/x/net.
func Domain(text string) Feature {
	t := Feature{kind: KindDomain}
	text = strings.TrimSpace(text)
	if text == "" {
		return t
	}
	if !strings.Contains(text, "@") {
		text = "x@" + text
	}
	of := Email(text)
	if of.err != nil {
		t.err = errDomain
	}
	t.domain = of.domain
	return t
}

// EmailProvider is a provider of mail: all addresses of a mailbox have the same
// key.
type EmailProvider struct {
	Domains    []string // a mailbox has an address in each domain; the first domain is in the key
	IgnoreDots bool     // dots in the local part make no difference
	IgnoreTags bool     // text from a plus sign on makes no difference
}

// Gmail is the provider of gmail.com and googlemail.com, which ignores dots and
// tags. Domains of companies with mail at Google do not ignore dots.
func Gmail() EmailProvider {
	return EmailProvider{Domains: []string{"gmail.com", "googlemail.com"}, IgnoreDots: true, IgnoreTags: true}
}

// provider is an EmailProvider with the domain of its keys.
type provider struct {
	EmailProvider
	domain string
}

// newProviders returns the providers by all of their domains.
func newProviders(all []EmailProvider) (map[string]provider, error) {
	by := map[string]provider{}
	for i, p := range all {
		if len(p.Domains) == 0 {
			return nil, fmt.Errorf("limiter: Config.EmailProviders[%d].Domains is empty, want at least one domain", i)
		}
		first := Domain(p.Domains[0]).domain
		for j, text := range p.Domains {
			d := Domain(text)
			if d.domain == "" || strings.Contains(text, "@") {
				return nil, fmt.Errorf("limiter: Config.EmailProviders[%d].Domains[%d] is %q, want a domain such as example.org", i, j, text)
			}
			if _, twice := by[d.domain]; twice {
				return nil, fmt.Errorf("limiter: Config.EmailProviders[%d].Domains[%d] is %q, which is there twice", i, j, text)
			}
			by[d.domain] = provider{p, first}
		}
	}
	return by, nil
}
