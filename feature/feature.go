// Package feature says who is behind an event: an address, a network, a mailbox, a
// user, or a feature of any other kind.
//
// A [Feature] is a kind and a value. [New] reads one from text, whatever the kind;
// [IP], [Network], [Email], [Domain] and [Join] are for values of these kinds. A value
// that can be written in several ways has one normal form: Ada@Example.org is
// ada@example.org, ::ffff:192.0.2.1 is 192.0.2.1, and an IPv6 address is the /64 of
// its subscriber. [Forms] says how far that goes, and a [Normalizer] writes the text:
//
//	n, err := feature.NewNormalizer(feature.Forms{EmailIgnoreTags: true})
//	f := feature.Email("Ada+shop@Example.org")
//	text := n.Append(nil, &f) // email:ada@example.org
//
// Two Features are the same if and only if their texts are equal. The package verifies
// nothing: a value is the word of whoever sent it. The package also knows no events,
// limits or counts. Text of a client comes in, mostly from package httplimit, and a
// Feature goes out, for package limiter, which counts by its text.
package feature

import (
	"net/netip"
	"strings"
)

// Feature is a feature of a call: a kind, such as "user", and a value, such as
// "7". Most callers want [New] for text, and [IP] for an address. The zero Feature,
// and a Feature without a value (an address that is not valid, an empty text), is
// missing. See also [Unknown].
type Feature struct {
	kind    string
	text    string     // the value, unless addr or parts are; the domain of an e-mail address is in canonical form
	addr    netip.Addr // of IP and Network, folded
	parts   *[]Feature // of Join: at least two, none of them joined or missing
	err     error
	note    any
	bits    uint8 // of Network; 0: those of Forms
	unknown bool
}

// Kinds of features that have a normal form.
const (
	KindIP     = "ip"
	KindEmail  = "email"
	KindDomain = "domain"
)

const endOfKind = ':' // in a text

// New returns a feature of a kind, with the value in text. Text of the kinds "ip", "email"
// and "domain" is read as by [IP], [Email] and [Domain]: other text makes a Feature
// with an error. A kind with plus signs, "ip+email", is that of [Join], and the text
// is the Value of such a feature. The value of any other kind is the text unchanged,
// and may hold any bytes. Kinds never meet: New("user", "192.0.2.1") and New("ip",
// "192.0.2.1") are different features.
func New(kind, text string) Feature {
	switch {
	case kind == KindIP:
		return parseIP(text)
	case kind == KindEmail:
		return Email(text)
	case kind == KindDomain:
		return Domain(text)
	case parses(kind):
		return parseJoined(kind, text)
	}
	return Feature{kind: kind, text: text}
}

// parses reports whether New reads text of the kind.
func parses(kind string) bool {
	return kind == KindIP || kind == KindEmail || kind == KindDomain || strings.Contains(kind, joinKinds)
}

// Unknown returns a feature of a kind whose value the caller does not know, such as a
// field of a request whose body has not been read. The feature is missing as well.
func Unknown(kind string) Feature { return Feature{kind: kind, unknown: true} }

// Kind returns the kind of f.
func (f Feature) Kind() string { return f.kind }

// Of reports whether f is of the kind, without the copy of f that f.Kind() makes.
func (f *Feature) Of(kind string) bool { return f.kind == kind }

// Value returns the text of f: an address, a network, an e-mail address with its
// domain in canonical form, a domain, the values of [Join], or the text of [New]
// unchanged. It is empty if f is missing. New of the kind and the value is f again,
// unless f is an e-mail address that needs quotes.
func (f Feature) Value() string {
	if f.parts == nil && !f.addr.IsValid() {
		return f.text
	}
	return string(whole.appendValue(nil, &f))
}

// Addr returns the address of f, a feature of [IP] or [Network], as it is counted:
// the IPv4 address if that is what the address stands for, without a zone, and not
// yet cut to a network. It is the zero Addr for other features.
func (f Feature) Addr() netip.Addr { return f.addr }

// Missing reports whether f has no value. A Feature with an error is not missing.
func (f Feature) Missing() bool {
	return f.text == "" && f.err == nil && f.parts == nil && !f.addr.IsValid()
}

// Unknown reports whether f, or a part of the [Join] f, is of [Unknown].
func (f Feature) Unknown() bool { return f.unknown }

// Err returns the error of text from which no Feature of the kind can be made, such
// as text that is not an e-mail address. The error has nothing of the text, so it may
// be logged.
func (f Feature) Err() error { return f.err }

// With returns f with a note, instead of the note before. The note is for whoever
// takes the Feature, as limiter.Under has one; it is no part of the text of f. It
// should be comparable, since Features are compared as keys of maps.
func (f Feature) With(note any) Feature {
	f.note = note
	return f
}

// Note returns the note of [Feature.With], or nil if there is none.
func (f Feature) Note() any { return f.note }

// KindOf returns the kind of the feature in a text that a [Normalizer] has written.
func KindOf(text string) string {
	kind, _, _ := strings.Cut(text, string(endOfKind))
	return kind
}

// IsKind reports whether kind can name a kind: printable ASCII without colon, and not
// empty.
func IsKind(kind string) bool {
	return kind != "" && !strings.ContainsFunc(kind, func(c rune) bool { return c < ' ' || c > '~' || c == endOfKind })
}

// PlainKind returns kind with the kinds that [New] reads in small letters and without
// spaces: "ip" for " IP", "ip+User" for "IP+User".
func PlainKind(kind string) string {
	parts := strings.Split(kind, joinKinds)
	for i, part := range parts {
		if plain := strings.ToLower(strings.TrimSpace(part)); parses(plain) {
			parts[i] = plain
		}
	}
	return strings.Join(parts, joinKinds)
}
