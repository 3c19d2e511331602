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

// Key is what is counted: one event of one feature, such as "signup" of
// "ip:203.0.113.9". Both may hold any bytes, and neither may be empty. Two
// different Keys never meet in a store: Key{"a:b", "c"} is not Key{"a", "b:c"}.
type Key struct{ Event, Feature string }

func (k Key) check() error {
	switch {
	case k.Event == "":
		return errors.New("counter: the key's event is empty")
	case k.Feature == "":
		return fmt.Errorf("counter: the key's feature is empty, event %q", k.Event)
	}
	return nil
}

// How a Key is stored: prefix:1LLLL, a mark that says what follows, and then
//
//	:event:feature     as they are, but % { } and what is not printable as %XX, and the event's : too
//	#event:digest      the feature as a digest: with a Secret, or where it is long
//	$digest            both as a digest, where the event is long
//
// 1 is the version of this format, LLLL stands for the ladder, since buckets
// that another ladder keeps for another time are not the same counts, and on a
// store without an atomic step for Skew and Settle as well, since callers who
// differ in these do not see each other in time. The mark
// is preceded by ! in the key that remembers a Forget. No two Keys share a
// stored key: the first : after the mark ends the event, and escaping is
// reversible; a digest collides with nothing that can be found.
const (
	formatVersion = '1'
	maxStoredKey  = 200 // bytes; leaves room for a bucket's name within memcached's 250
	digestLen     = 43  // base64 of 32 bytes
	defaultPrefix = "ab"
	maxPrefix     = 32
)

// plainFeature and plainEvent are the bytes that are stored as they are.
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

// newKeyMaker makes a keyMaker. layout is all that callers who share counts must
// have alike, in words; its fingerprint is part of every key.
func newKeyMaker(prefix, layout string, secret []byte) (keyMaker, error) {
	if prefix == "" {
		prefix = defaultPrefix
	}
	if len(prefix) > maxPrefix {
		return keyMaker{}, fmt.Errorf("counter: prefix %q has %d bytes, want at most %d", prefix, len(prefix), maxPrefix)
	}
	for i := range len(prefix) {
		if !plainEvent[prefix[i]] {
			return keyMaker{}, fmt.Errorf("counter: prefix %q: want printable ASCII without spaces, colons, percent signs and braces", prefix)
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
	// What body would do, in half the time: nearly every key is such a one.
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	at += copy(dst[at:], m.head)
	dst[at] = ':'
	at += 1 + copy(dst[at+1:], k.Event)
	dst[at] = ':'
	copy(dst[at+1:], k.Feature)
	return dst
}

// appendForgotten appends the stored form of the key that remembers when k was
// forgotten.
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

// appendDigest covers event and feature both, so that a feature's digests under
// two events tell nobody that it is the same feature.
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
			break // too long to be stored as it is: a digest takes its place
		}
	}
	return dst
}
