package limiter

import (
	"net/mail"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Addresses of the usual form are not parsed.
func TestPlainAddressesAreSplitAtOnce(t *testing.T) {
	for _, row := range []struct{ address, local, domain string }{
		{"a@b", "a", "b"},
		{"Ada.Lovelace+1@mail.example-1.org", "Ada.Lovelace+1", "mail.example-1.org"},
		{"_-9@9.9", "_-9", "9.9"},
	} {
		local, domain, ok := splitPlain(row.address)
		require.True(t, ok, row.address)
		require.Equal(t, []string{row.local, row.domain}, []string{local, domain})
	}
	for _, address := range []string{
		"", "@", "a", "a@", "@b", "a@b@c", "a b@c", `"a"@b`, ".a@b", "a.@b", "a..b@c", "a@.b", "a@b.", "a@b..c", "a@-b", "a@b-", "a@b-.c", "a@b.-c",
		"a@B", "a@xn--bcher-kva", "a@b_c", "a@[::1]", "ü@b", "a@ü", "a@b ", "a@" + strings.Repeat("x", 64),
	} {
		_, _, ok := splitPlain(address)
		require.False(t, ok, address)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { Email("Ada.Lovelace+1@mail.example.org") }))
}

// The fast path answers like the slow path, where the fast path answers.
func FuzzSplitPlain(f *testing.F) {
	for _, s := range []string{"a@b.org", "A.b+c@b.org", "a@b--c.org", "a@1.2.3.4", "a@" + strings.Repeat("x", 70), "_@b-c", "a@b.c-", "-@x", "a@xn--a", "{@x", "`@x", "a@[x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		local, domain, ok := splitPlain(address)
		if !ok || len(local) > maxLocal { // too long either way
			return
		}
		slowLocal, slowDomain, ok := split(address)
		require.True(t, ok)
		require.Equal(t, slowDomain, domain)
		require.Equal(t, slowLocal, strings.ToLower(local))
	})
}

// No text panics; an address has a canonical form, which is its own canonical
// form; and capitals make no difference.
func FuzzEmail(f *testing.F) {
	for _, s := range []string{"", " ", "a@b.org", "A.b+c@B.org", `"a b"@x`, `".+x"@x`, "a@[::1]", "ü@ü.de", "\u0130\u0301@x", "a@x.", "a@xn--bcher-kva", "a@b (c)", "<a@b>", "x:a@b;", `"\""@x`, "ǅ@x", "a@\u3002", "a\u037eb@x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		feature := Email(text)
		require.Equal(t, strings.TrimSpace(text) == "", feature.Missing())
		if isASCII(text) {
			for _, folded := range []string{strings.ToUpper(text), strings.ToLower(text)} {
				same := Email(folded)
				require.Equal(t, feature.Err(), same.Err())
				require.Equal(t, feature.Missing(), same.Missing())
				require.Equal(t, canonical(normalizer{}, &feature), canonical(normalizer{}, &same), folded)
			}
		}
		if feature.Err() != nil || feature.Missing() {
			return
		}
		for _, c := range []normalizer{{}, {ignoreDots: true}, {ignoreTags: true}, {ignoreDots: true, ignoreTags: true}} {
			once := canonical(c, &feature)
			require.LessOrEqual(t, len(once), maxEmail)
			again := Email(quoted(once))
			require.NoError(t, again.Err(), once)
			require.Equal(t, once, canonical(c, &again))
		}
	})
}

func canonical(c normalizer, t *Feature) string {
	return strings.TrimPrefix(string(c.append(nil, t)), "email:")
}

// quoted is a canonical address in quotes where the local part needs quotes.
func quoted(canonical string) string {
	return strings.Trim((&mail.Address{Address: canonical}).String(), "<>")
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}
