// Package keytext has the rules for the text of stored keys: the prefix, bytes
// stored without change, escapes for all other bytes, and digests of long or secret
// text. Packages counter and classic name their keys by these rules.
package keytext

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
)

const (
	maxPrefix  = 32
	maxEscaped = 800 // bytes; longer keys are stored as a digest
	DigestLen  = 43  // base64 of 32 bytes
)

// Plain is a set of bytes stored without escaping.
type Plain [256]bool

// Feature and Event are the sets for features and for events: printable ASCII
// without spaces, % { and }, and in an event no colon, which ends the event.
var Feature, Event = func() (feature, event Plain) {
	for b := '!'; b <= '~'; b++ {
		feature[b] = b != '%' && b != '{' && b != '}'
		event[b] = feature[b] && b != ':'
	}
	return feature, event
}()

// Has reports whether s needs no escaping.
func (p *Plain) Has(s string) bool {
	for i := range len(s) {
		if !p[s[i]] {
			return false
		}
	}
	return true
}

// AppendEscaped appends s, with %XX for bytes outside of p. Beyond 800 bytes the
// rest is left out: the key is too long to be stored.
func (p *Plain) AppendEscaped(dst []byte, s string) []byte {
	if len(s) <= maxEscaped && p.Has(s) { // nearly all
		return append(dst, s...)
	}
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		if b := s[i]; p[b] {
			dst = append(dst, b)
		} else {
			dst = append(dst, '%', hex[b>>4], hex[b&15])
		}
		if len(dst) > maxEscaped {
			break
		}
	}
	return dst
}

// AppendDigest appends a digest of event and feature together, so that digests
// of a feature under two events do not reveal that the feature is the same. With
// a secret the digest is an HMAC-SHA256.
func AppendDigest(dst []byte, event, feature string, secret []byte) []byte {
	hash := sha256.New()
	if len(secret) > 0 {
		hash = hmac.New(sha256.New, secret)
	}
	var length [binary.MaxVarintLen64]byte
	hash.Write(binary.AppendUvarint(length[:0], uint64(len(event))))
	hash.Write([]byte(event))
	hash.Write([]byte(feature))
	return base64.RawURLEncoding.AppendEncode(dst, hash.Sum(nil))
}

// CheckPrefix is an error for a Config.Prefix that cannot begin a stored key: 33
// bytes or more, or a byte that an event would escape.
func CheckPrefix(prefix string) error {
	switch {
	case len(prefix) > maxPrefix:
		return fmt.Errorf("Config.Prefix is %q, %d bytes, want at most %d", prefix, len(prefix), maxPrefix)
	case !Event.Has(prefix):
		return fmt.Errorf("Config.Prefix is %q, want printable ASCII without spaces, colons, percent signs and braces", prefix)
	}
	return nil
}
