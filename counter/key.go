package counter

import (
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/abacus-go/abacus/internal/keytext"
)

// Key is the subject of a count: one event of one feature, such as "signup" of
// "ip:203.0.113.9". Both may hold any bytes, and neither may be empty. Two
// different Keys never share a count: Key{"a:b", "c"} is not Key{"a", "b:c"}.
type Key struct{ Event, Feature string }

// Redact returns k in a form for pages and logs. With secret, a Config.Secret, the
// Feature is the digest that the stored key has. Without, k is returned unchanged,
// but for a Feature of more than 200 bytes, of which there is a digest as well.
func (k Key) Redact(secret []byte) Key {
	if len(secret) > 0 || len(k.Feature) > maxStoredKey {
		k.Feature = string(keytext.AppendDigest(nil, k.Event, k.Feature, secret))
	}
	return k
}

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
// Skew or Settle would miss hits of each other. In the key of a soft Ask, ~
// precedes the byte for the form. No two Keys share a stored key: the first : after
// the form ends the event, escaping is reversible, and no collision of digests can
// be found.
const (
	formatVersion = '1'
	maxStoredKey  = 200 // bytes; leaves room for a bucket's name within memcached's 250
	defaultPrefix = "ab"
)

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
	if err := keytext.CheckPrefix(prefix); err != nil {
		return keyMaker{}, fmt.Errorf("counter: %w", err)
	}
	sum := fnv.New32a()
	sum.Write([]byte(layout))
	fingerprint := base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:3])
	return keyMaker{prefix + ":" + string(formatVersion) + fingerprint, append([]byte(nil), secret...)}, nil
}

// soft returns the keyMaker of the keys of soft Asks.
func (m *keyMaker) soft() keyMaker { return keyMaker{m.head + "~", m.secret} }

// makerOf returns the keyMaker of the stored key of an ask.
func (c *Counter) makerOf(ask *Ask) *keyMaker {
	if ask.Soft && !ask.Shared {
		return &c.softKeys
	}
	return &c.keys
}

// append appends the stored form of k to dst, which is empty.
func (m *keyMaker) append(dst []byte, k Key) []byte {
	dst = append(dst, m.head...)
	start := len(dst)
	if len(m.secret) == 0 {
		dst = keytext.Feature.AppendEscaped(m.appendHead(dst[:0], k.Event), k.Feature)
		if len(dst) <= maxStoredKey {
			return dst
		}
	}
	dst = append(keytext.Event.AppendEscaped(append(dst[:start], '#'), k.Event), ':')
	if len(dst)+keytext.DigestLen > maxStoredKey {
		dst = append(dst[:start], '$')
	}
	return keytext.AppendDigest(dst, k.Event, k.Feature, m.secret)
}

// appendHead appends the beginning of the stored keys of an event whose features
// need no escaping, and are short.
func (m *keyMaker) appendHead(dst []byte, event string) []byte {
	return append(keytext.Event.AppendEscaped(append(append(dst, m.head...), ':'), event), ':')
}
