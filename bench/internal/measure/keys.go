package measure

import (
	"fmt"
	"strings"
	"testing"
)

// Keys is a list of keys of one length, side by side in memory: without a
// pointer for each, which the garbage collector would have to follow.
type Keys struct{ text string }

// Distinct makes n keys, all different: it fails if they are not. They come in
// ascending order, which is how that is seen without a map of ten million.
func Distinct(n int) (Keys, error) {
	var text strings.Builder
	text.Grow(n * keyLength)
	for i := range n {
		fmt.Fprintf(&text, "ip:2001:db8:%04x:%04x", i>>16, i&0xffff)
	}
	k := Keys{text.String()}
	for i := 1; i < n; i++ {
		if k.At(i) <= k.At(i-1) {
			return Keys{}, fmt.Errorf("measure: key %d is %q, after %q: keys are not distinct", i, k.At(i), k.At(i-1))
		}
	}
	if k.Len() != n {
		return Keys{}, fmt.Errorf("measure: %d keys of %d: they have more than one length", k.Len(), n)
	}
	return k, nil
}

const keyLength = len("ip:2001:db8:0000:0000")

// Names are n distinct keys, one by one.
func Names(t testing.TB, n int) []string {
	t.Helper()
	keys, err := Distinct(n)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, n)
	for i := range names {
		names[i] = keys.At(i)
	}
	return names
}

// Len is how many there are.
func (k Keys) Len() int { return len(k.text) / keyLength }

// At is key i. It does not allocate: it is a part of a large string.
func (k Keys) At(i int) string { return k.text[i*keyLength : (i+1)*keyLength] }

// Random is a number of these keys in random order, the same for all who ask. A
// key comes with a request: so it is in the cache, as what lies side by side is,
// and is never the very string that it was first seen as, which a map would know
// by its address.
func (k Keys) Random(calls int) Keys {
	var text strings.Builder
	text.Grow(calls * keyLength)
	state := uint64(1)
	for range calls {
		state = state*6364136223846793005 + 1442695040888963407
		text.WriteString(k.At(int((state >> 33) % uint64(k.Len()))))
	}
	return Keys{text.String()}
}

// InTurn is a number of these keys, one after the other and again from the
// first.
func (k Keys) InTurn(calls int) Keys {
	return Keys{strings.Repeat(k.text, calls/k.Len()+1)[:calls*keyLength]}
}
