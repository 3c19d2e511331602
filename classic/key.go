package classic

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/abacus-go/abacus/counter"
)

// The name of a state:
//
//	prefix:kind:window{event:feature}suffix
//
// In the braces % { } and what is not printable ASCII are %XX, and the event's
// colons too, so the first colon ends the event and no two keys meet. A pair
// that is long is stored as {digest}, which has no colon. The braces are the hash
// tag of Redis Cluster: all names of a key are on one node.
const (
	maxPrefix = 32
	maxPlain  = 200
)

func checkKey(k counter.Key) error {
	switch {
	case k.Event == "":
		return errors.New("classic: Key.Event is empty, want a name")
	case k.Feature == "":
		return fmt.Errorf("classic: event %q: Key.Feature is empty, want a value", k.Event)
	}
	return nil
}

func checkPrefix(prefix string) error {
	if len(prefix) > maxPrefix {
		return fmt.Errorf("classic: Config.Prefix is %q, %d bytes, want at most %d", prefix, len(prefix), maxPrefix)
	}
	for i := range len(prefix) {
		if !plain(prefix[i]) || prefix[i] == ':' {
			return fmt.Errorf("classic: Config.Prefix is %q, want printable ASCII without spaces, colons, percent signs and braces", prefix)
		}
	}
	return nil
}

func plain(b byte) bool { return b > ' ' && b <= '~' && b != '%' && b != '{' && b != '}' }

// tag is the text of k in names, braces included.
func tag(k counter.Key) string {
	dst := make([]byte, 0, len(k.Event)+len(k.Feature)+3)
	dst = escape(append(dst, '{'), k.Event, ':')
	dst = escape(append(dst, ':'), k.Feature, 0)
	if len(dst) <= maxPlain {
		return string(append(dst, '}'))
	}
	hash := sha256.New()
	var length [binary.MaxVarintLen64]byte
	hash.Write(binary.AppendUvarint(length[:0], uint64(len(k.Event))))
	hash.Write([]byte(k.Event))
	hash.Write([]byte(k.Feature))
	return "{" + base64.RawURLEncoding.EncodeToString(hash.Sum(nil)) + "}"
}

// escape appends s, and stops at a length that is too long for a name.
func escape(dst []byte, s string, also byte) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s) && len(dst) <= maxPlain; i++ {
		if b := s[i]; plain(b) && b != also {
			dst = append(dst, b)
		} else {
			dst = append(dst, '%', hex[b>>4], hex[b&15])
		}
	}
	return dst
}
