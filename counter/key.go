package counter

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
)

// Key is the subject of a count: one event of one feature, such as "signup" of
// "ip:203.0.113.9". Both may hold any bytes, and neither may be empty. Two
// different Keys never share a count: Key{"a:b", "c"} is not Key{"a", "b:c"}.
type Key struct{ Event, Feature string }

func (k Key) check() error {
	switch {
	case k.Event == "":
		return errors.New("counter: Key.Event is empty")
	case k.Feature == "":
		return fmt.Errorf("counter: Key.Feature is empty, event %q", k.Event)
	}
	return nil
}

// The stored form of a Key is prefix:1LLLL, a byte for the form, and the rest:
//
//	:event:feature     as they are, but % { } and what is not printable as %XX, and the event's : too
//	#event:digest      the feature as a digest: with a Secret, or where it is long
//	$digest            both as a digest, where the event is long
//
// 1 is the version of the format. LLLL stands for the ladder, since buckets of
// ladders with different times are different counts. On a store without an
// atomic step LLLL stands for Skew and Settle as well: callers who differ in
// Skew or Settle would miss hits of each other. In the key that remembers a
// Forget, ! precedes the byte for the form. No two Keys share a stored key: the
// first : after the form ends the event, escaping is reversible, and no
// collision of digests can be found.
const (
	formatVersion = '1'
	maxStoredKey  = 200 // bytes; leaves room for a bucket's name within memcached's 250
	digestLen     = 43  // base64 of 32 bytes
	defaultPrefix = "ab"
	maxPrefix     = 32
)

// plainFeature and plainEvent are the sets of bytes stored without escaping.
var plainFeature, plainEvent = func() (feature, event [256]bool) {
	for b := '!'; b <= '~'; b++ {
		feature[b] = b != '%' && b != '{' && b != '}'
		event[b] = feature[b] && b != ':'
	}
	return feature, event
}()

// keyMaker makes stored keys. It is immutable.
type keyMaker struct {
	head   string
	secret []byte
}

// newKeyMaker makes a keyMaker. layout describes the configuration that all
// callers of a key must share; a fingerprint of layout is a part of every key.
func newKeyMaker(prefix, layout string, secret []byte) (keyMaker, error) {
	if prefix == "" {
		prefix = defaultPrefix
	}
	if len(prefix) > maxPrefix {
		return keyMaker{}, fmt.Errorf("counter: Config.Prefix is %q of %d bytes, want at most %d", prefix, len(prefix), maxPrefix)
	}
	for i := range len(prefix) {
		if !plainEvent[prefix[i]] {
			return keyMaker{}, fmt.Errorf("counter: Config.Prefix is %q, want printable ASCII without spaces, colons, percent signs and braces", prefix)
		}
	}
	sum := fnv.New32a()
	sum.Write([]byte(layout))
	fingerprint := base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:3])
	return keyMaker{prefix + ":" + string(formatVersion) + fingerprint, append([]byte(nil), secret...)}, nil
}

// append appends the stored form of k.
func (m *keyMaker) append(dst []byte, k Key) []byte {
	n := len(m.head) + len(k.Event) + len(k.Feature) + 2
	if n > maxStoredKey || len(m.secret) > 0 || !isPlain(k.Event, &plainEvent) || !isPlain(k.Feature, &plainFeature) {
		return m.body(append(dst, m.head...), k)
	}
	// The same as body, in half the time, for nearly all keys.
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	at += copy(dst[at:], m.head)
	dst[at] = ':'
	at += 1 + copy(dst[at+1:], k.Event)
	dst[at] = ':'
	copy(dst[at+1:], k.Feature)
	return dst
}

// appendForgotten appends the stored form of the key that remembers a Forget of
// k.
func (m *keyMaker) appendForgotten(dst []byte, k Key) []byte {
	return m.body(append(append(dst, m.head...), '!'), k)
}

func (m *keyMaker) body(dst []byte, k Key) []byte {
	start := len(dst)
	if len(m.secret) == 0 {
		dst = append(dst, ':')
		dst = append(appendEscaped(dst, k.Event, &plainEvent), ':')
		dst = appendEscaped(dst, k.Feature, &plainFeature)
		if len(dst) <= maxStoredKey {
			return dst
		}
		dst = dst[:start]
	}
	dst = append(dst, '#')
	dst = append(appendEscaped(dst, k.Event, &plainEvent), ':')
	if len(dst)+digestLen > maxStoredKey {
		dst = append(dst[:start], '$')
	}
	return m.appendDigest(dst, k)
}

// appendDigest appends a digest of event and feature together, so that digests
// of a feature under two events do not reveal that the feature is the same.
func (m *keyMaker) appendDigest(dst []byte, k Key) []byte {
	hash := sha256.New()
	if len(m.secret) > 0 {
		hash = hmac.New(sha256.New, m.secret)
	}
	var length [binary.MaxVarintLen64]byte
	hash.Write(binary.AppendUvarint(length[:0], uint64(len(k.Event))))
	hash.Write([]byte(k.Event))
	hash.Write([]byte(k.Feature))
	return base64.RawURLEncoding.AppendEncode(dst, hash.Sum(nil))
}

func isPlain(s string, plain *[256]bool) bool {
	for i := range len(s) {
		if !plain[s[i]] {
			return false
		}
	}
	return true
}

func appendEscaped(dst []byte, s string, plain *[256]bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		if b := s[i]; plain[b] {
			dst = append(dst, b)
		} else {
			dst = append(dst, '%', hex[b>>4], hex[b&15])
		}
		if len(dst) > 4*maxStoredKey {
			break // too long to be stored: a digest takes its place
		}
	}
	return dst
}
