package feature

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A plain address is what the parser would make of it, but for capitals.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		"", "@", "a", "a@", "@b", "a@b@c", "a b@c", `"a"@b`, ".a@b", "a.@b", "a..b@c", "a@.b", "a@b.", "a@b..c", "a@-b", "a@b-", "a@b-.c", "a@b.-c",
		"a@B", "a@xn--bcher-kva", "a@b_c", "a@[::1]", "ü@b", "a@ü", "a@b ", "a@" + strings.Repeat("x", 64),
		"a@b.org", "A.b+c@b.org", "a@b--c.org", "a@1.2.3.4", "a@" + strings.Repeat("x", 70), "_@b-c", "a@b.c-", "-@x", "a@xn--a", "{@x", "`@x", "a@[x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if !isPlain(address) || strings.IndexByte(address, '@') > maxLocal { // too long either way
			return
		}
		require.Equal(t, parseEmail(address), strings.ToLower(address))
	})
}
