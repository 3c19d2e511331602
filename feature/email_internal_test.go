package feature

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Addresses of the usual form are not parsed.
func TestPlainAddressesAreNotParsed(t *testing.T) {
	for _, address := range []string{"a@b", "Ada.Lovelace+1@mail.example-1.org", "_-9@9.9"} {
		require.True(t, isPlain(address), address)
	}
	for _, address := range []string{
		"", "@", "a", "a@", "@b", "a@b@c", "a b@c", `"a"@b`, ".a@b", "a.@b", "a..b@c", "a@.b", "a@b.", "a@b..c", "a@-b", "a@b-", "a@b-.c", "a@b.-c",
		"a@B", "a@xn--bcher-kva", "a@b_c", "a@[::1]", "ü@b", "a@ü", "a@b ", "a@" + strings.Repeat("x", 64),
	} {
		require.False(t, isPlain(address), address)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { Email("Ada.Lovelace+1@mail.example.org") }))
}

// A plain address is what the parser would make of it, but for capitals.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"a@b.org", "A.b+c@b.org", "a@b--c.org", "a@1.2.3.4", "a@" + strings.Repeat("x", 70), "_@b-c", "a@b.c-", "-@x", "a@xn--a", "{@x", "`@x", "a@[x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if !isPlain(address) || strings.IndexByte(address, '@') > maxLocal { // too long either way
			return
		}
		require.Equal(t, parseEmail(address), strings.ToLower(address))
	})
}
