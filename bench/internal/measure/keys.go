package measure

import (
	"fmt"
	"strings"
	"testing"
)

// Keys is a list of keys of one length, side by side in memory: without a pointer
// for each key, which the garbage collector would have to follow.
type Keys struct{ text string }

// Distinct makes n keys in ascending order, so that a comparison of neighbours
// proves that all differ, without a map of ten million. Equal keys are an error.
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

// Names returns n distinct keys.
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

// Len is the number of keys.
func (k Keys) Len() int { return len(k.text) / keyLength }

// At returns key i, a part of a large string, without an allocation.
func (k Keys) At(i int) string { return k.text[i*keyLength : (i+1)*keyLength] }

// Random returns calls keys in random order, the same for all callers. A key comes with
// a request: so the string is in the cache, like all memory side by side, and is
// never the string of the first hit, which a map would know by its address.
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

// InTurn returns calls keys, in order and again from the first.
func (k Keys) InTurn(calls int) Keys {
	return Keys{strings.Repeat(k.text, calls/k.Len()+1)[:calls*keyLength]}
}
