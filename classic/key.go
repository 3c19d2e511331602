package classic

import (
	"errors"
	"fmt"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/keytext"
)

// The name of a state:
//
//	prefix:kind:window{event:feature}suffix
//
// In the braces % { } and what is not printable ASCII are %XX, and the event's
// colons too, so the first colon ends the event and no two keys meet. A pair
// that is long is stored as {digest}, which has no colon. The braces are the hash
// tag of Redis Cluster: all names of a key are on one node. With the longest of all
// other parts a name has 234 bytes; memcached allows 250.
const maxPlain = 160

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
	if err := keytext.CheckPrefix(prefix); err != nil {
		return fmt.Errorf("classic: %w", err)
	}
	return nil
}

// tag is the text of k in names, braces included.
func tag(k counter.Key) string {
	dst := make([]byte, 0, len(k.Event)+len(k.Feature)+3)
	dst = append(keytext.Event.AppendEscaped(append(dst, '{'), k.Event), ':')
	dst = keytext.Feature.AppendEscaped(dst, k.Feature)
	if len(dst) > maxPlain {
		dst = keytext.AppendDigest(append(dst[:0], '{'), k.Event, k.Feature, nil)
	}
	return string(append(dst, '}'))
}
