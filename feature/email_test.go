package feature_test

import (
	"net/mail"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/feature"
)

var (
	dots     = feature.Forms{EmailIgnoreDots: true}
	tags     = feature.Forms{EmailIgnoreTags: true}
	dotsTags = feature.Forms{EmailIgnoreDots: true, EmailIgnoreTags: true}
	gmail    = feature.Forms{EmailProviders: []feature.EmailProvider{
		feature.Gmail(), {Domains: []string{"BÜCHER.example", "books.example."}, IgnoreTags: true}}}
)

// Addresses of one mailbox have the same key, which is readable.
func TestEmailsThatMeet(t *testing.T) {
	for _, row := range []struct {
		name  string
		forms feature.Forms
		want  string
		all   []string
	}{
		{"case", feature.Forms{}, "ada@example.org", []string{"ada@example.org", "Ada@example.org", "ADA@EXAMPLE.ORG", "ada@Example.org"}},
		{"space around", feature.Forms{}, "ada@example.org", []string{" ada@example.org", "ada@example.org\r\n", "\tADA@example.org\u00a0", "ada@ example.org"}},
		{"quotes", feature.Forms{}, "ada@example.org", []string{`"ada"@example.org`, `"A\d\a"@example.org`}},
		{"a comment", feature.Forms{}, "ada@example.org", []string{"ada@example.org (home)", "ada@example.org ()", "ada@example.org (a (nested) one) (and another)"}},
		{"the root", feature.Forms{}, "ada@example.org", []string{"ada@example.org.", "ADA@EXAMPLE.ORG.", "ada@example.org\u3002"}},
		{"other dots", feature.Forms{}, "ada@mail.example.org", []string{"ada@mail\u3002example.org", "ada@mail\uff0eexample\uff61org"}},
		{"IDN and punycode", feature.Forms{}, "ada@xn--bcher-kva.example", []string{
			"ada@bücher.example", "ada@BÜCHER.example", "ada@bu\u0308cher.example", "ada@xn--bcher-kva.example", "ada@XN--BCHER-KVA.example", "ada@ｂücher.example"}},
		{"full width in the domain", feature.Forms{}, "ada@example.org", []string{"ada@ｅｘａｍｐｌｅ.org", "ada@ＥＸＡＭＰＬＥ.ORG"}},
		{"letters beyond ASCII", feature.Forms{}, "jürgen@example.org", []string{"jürgen@example.org", "JÜRGEN@example.org", "ju\u0308rgen@example.org", "JU\u0308RGEN@example.org", `"jürgen"@example.org`}},
		{"full width, large and small", feature.Forms{}, "ａｄａ@example.org", []string{"ＡＤＡ@example.org", "ａｄａ@example.org"}},
		{"a letter whose small form has another length", feature.Forms{}, "ⱥ@example.org", []string{"Ⱥ@example.org", "ⱥ@example.org"}},
		{"a dotted capital I with an accent", feature.Forms{}, "í@example.org", []string{"\u0130\u0301@example.org", "í@example.org", "Í@example.org"}},
		{"the kelvin sign", feature.Forms{}, "k@example.org", []string{"\u212a@example.org", "K@example.org"}},
		{"a quoted at sign", feature.Forms{}, "a@b@example.org", []string{`"a@b"@example.org`, `"A@B"@example.org`}},
		{"a quoted space", feature.Forms{}, "a b@example.org", []string{`"a b"@example.org`, `"A B"@EXAMPLE.org`}},
		{"an address for a domain", feature.Forms{}, "ada@[192.0.2.1]", []string{"ada@[192.0.2.1]", "ADA@[192.0.2.1]"}},
		{"six words", feature.Forms{}, "ada@[2001:db8::a]", []string{"ada@[2001:db8::a]", "ada@[2001:DB8::A]"}},
		{"signs", feature.Forms{}, "!#$%&'*/=?^_`{|}~-@example.org", []string{"!#$%&'*/=?^_`{|}~-@example.org", "\"!#$%&'*/=?^_`{|}~-\"@example.org"}},
		{"one label", feature.Forms{}, "root@localhost", []string{"root@localhost", "ROOT@LOCALHOST", "root@localhost."}},

		{"dots ignored", dots, "adalovelace@example.org", []string{"ada.lovelace@example.org", "a.d.a.Lovelace@example.org", "adalovelace@example.org", `"ada..lovelace."@example.org`}},
		{"dots ignored, tags not", dots, "ada+tag@example.org", []string{"a.da+ta.g@example.org", "ada+tag@example.org"}},
		{"dots ignored beyond ASCII", dots, "jürgen@example.org", []string{"j.ürgen@example.org", "JÜR.GEN@example.org"}},
		{"nothing but dots", dots, "..@example.org", []string{`".."@example.org`}},
		{"tags ignored", tags, "ada@example.org", []string{"ada+1@example.org", "ADA+shop+2@example.org", "ada+@example.org", "ada@example.org", `"ada+a b"@example.org`}},
		{"tags ignored, dots not", tags, "a.da@example.org", []string{"a.da+1@example.org", "a.da@example.org"}},
		{"tags ignored beyond ASCII", tags, "jürgen@example.org", []string{"jürgen+ü@example.org", "JÜRGEN+1@example.org"}},
		{"nothing before the plus", tags, "+x@example.org", []string{"+x@example.org", "+X@example.org"}},
		{"a provider that ignores both", gmail, "adalovelace@gmail.com", []string{"Ada.Lovelace+1@gmail.com", "adalovelace@GoogleMail.com.", `"a..d.alovelace"@googlemail.com`}},
		{"other providers", gmail, "a.da+1@example.org", []string{"A.da+1@example.org"}},
		{"a provider that ignores tags", gmail, "a.da@xn--bcher-kva.example", []string{"a.da@bücher.example", "a.da+1@BOOKS.example"}},
		{"both ignored", dotsTags, "ada@example.org", []string{"a.d.a+x.y@example.org", "ada+1@example.org", "A.DA@example.org"}},
	} {
		for _, address := range row.all {
			require.Equal(t, "email:"+row.want, textOf(t, row.forms, feature.Email(address)), "%s: %q", row.name, address)
		}
	}
}

func TestEmailsThatDoNotMeet(t *testing.T) {
	for _, row := range []struct {
		name  string
		forms feature.Forms
		a, b  string
	}{
		{"another name", feature.Forms{}, "ada@example.org", "bob@example.org"},
		{"another domain", feature.Forms{}, "ada@example.org", "ada@example.com"},
		{"a subdomain", feature.Forms{}, "ada@example.org", "ada@mail.example.org"},
		{"dots", feature.Forms{}, "ada.lovelace@example.org", "adalovelace@example.org"},
		{"tags", feature.Forms{}, "ada@example.org", "ada+1@example.org"},
		{"dots of the domain", dots, "ada@exa.mple.org", "ada@example.org"},
		{"tags, dots ignored", dots, "ada@example.org", "ada+1@example.org"},
		{"dots, tags ignored", tags, "a.da@example.org", "ada@example.org"},
		{"tags without a name", tags, "+x@example.org", "+y@example.org"},
		{"dots without a name", dots, `"."@example.org`, `".."@example.org`},
		{"dots, a provider ignores tags", gmail, "a.da@books.example", "ada@books.example"},
		{"a subdomain of a provider", gmail, "a.da@mail.gmail.com", "ada@mail.gmail.com"},
		{"an accent", feature.Forms{}, "jürgen@example.org", "jurgen@example.org"},
		{"full width and not", feature.Forms{}, "ａda@example.org", "ada@example.org"},
		{"an at sign in quotes", feature.Forms{}, `"ada@example.org"@example.com`, "ada@example.org"},
		{"a space in quotes", feature.Forms{}, `" ada"@example.org`, "ada@example.org"},
		{"umlaut and not, in the domain", feature.Forms{}, "ada@bücher.example", "ada@bucher.example"},
		{"an address and a name of it", feature.Forms{}, "ada@[192.0.2.1]", "ada@192.0.2.1"},
	} {
		require.NotEqual(t, textOf(t, row.forms, feature.Email(row.a)), textOf(t, row.forms, feature.Email(row.b)), row.name)
	}
}

func TestTextThatIsNoEmail(t *testing.T) {
	long := strings.Repeat("x", 64)
	label := strings.Repeat("x", 63)
	for _, text := range []string{
		// No address at all, or more than one.
		"visitor", "visitor@", "@example.org", "@", "Ada <visitor@example.org>",
		`"Ada" <visitor@example.org>`, "<visitor@example.org>", "Ada <visitor@example.org> (home)",
		"<visitor@example.org> (home)", "friends: visitor@example.org;",
		"friends: visitor@example.org; (home)", "visi\u037etor@example.org", "friends:;",
		"visitor@example.org, bob@example.org", "visitor@example.org bob@example.org",
		"visitor@example@example.org", "visitor@@example.org",
		// Quotes, comments and spaces.
		`"visitor@example.org`, `""@example.org`, `"visi"tor@example.org`,
		"visitor@example.org (home", "visi tor@example.org", "visitor @example.org",
		"visitor@exam ple.org",
		// Dots.
		".visitor@example.org", "visitor.@example.org", "visi..tor@example.org",
		"visitor@example..org", "visitor@example.\u3002org", "visitor@example.org..",
		"visitor@example.org.\u3002", "visitor@example.org\u3002.",
		"visitor@example.org\u3002\u3002", "visitor@.example.org", "visitor@\u3002example.org",
		"visitor@.", "visitor@\u3002",
		// Domains.
		"visitor@-example.org", "visitor@example-.org", "visitor@example.org-",
		"visitor@exam_ple.org", "visitor@xn--\u00fc.org", "visitor@[example.org]",
		"visitor@[192.0.2.1",
		// Control characters and lines.
		"visi\x00tor@example.org", "\"visi\x00tor\"@example.org", "\"visi\ttor\"@example.org",
		"visi\u0085tor@example.org", "visi\x7ftor@example.org", "visi\xfftor@example.org",
		"visitor@example.org\r\nBcc: bob@example.org", "visitor@example.org\nbob@example.org",
		"bob@example.org\nvisitor@example.org", "\"visitor\r\nBcc: bob\"@example.org",
		"visitor@\r\n example.org",
		// Too long.
		long + "x@example.org", `"` + long + `x"@example.org`,
		strings.Repeat("Ⱥ", 32) + "@example.org", "visitor@" + label + "x.org",
		"visitor@" + label + "." + label + "." + label + "." + label,
		long + "@" + label + "." + label + "." + label[:62], "visitor@\u05d0a.org",
		`"visitor"@example.org (` + strings.Repeat(long, 20) + ")",
		strings.Repeat(long, 16<<10) + "@example.org",
	} {
		f := feature.Email(text)
		require.EqualError(t, f.Err(), `feature "email" is not an e-mail address, want local-part@domain`, "%q", text)
		require.False(t, f.Missing(), text)
		require.Empty(t, f.Value(), text)
	}
	// Just not too long.
	for _, address := range []string{long + "@example.org", "visitor@" + label + ".org", long + "@" + label + "." + label + "." + label[:61]} {
		require.Equal(t, "email:"+address, textOf(t, feature.Forms{}, feature.Email(address)))
	}
}

// Addresses of the usual form are not parsed.
func TestPlainAddressesAreNotParsed(t *testing.T) {
	for _, address := range []string{"a@b", "Ada.Lovelace+1@mail.example-1.org", "_-9@9.9"} {
		require.Zero(t, testing.AllocsPerRun(100, func() { feature.Email(address) }), address)
	}
}

// No text panics; an address has a canonical form, which is its own canonical
// form; and capitals make no difference.
func FuzzEmail(f *testing.F) {
	for _, s := range []string{"", " ", "a@b.org", "A.b+c@B.org", `"a b"@x`, `".+x"@x`, "a@[::1]", "ü@ü.de", "\u0130\u0301@x", "a@x.", "a@xn--bcher-kva", "a@b (c)", "<a@b>", "x:a@b;", `"\""@x`, "ǅ@x", "a@\u3002", "a\u037eb@x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		f := feature.Email(text)
		require.Equal(t, strings.TrimSpace(text) == "", f.Missing())
		if isASCII(text) {
			for _, folded := range []string{strings.ToUpper(text), strings.ToLower(text)} {
				same := feature.Email(folded)
				require.Equal(t, f.Err(), same.Err())
				require.Equal(t, f.Missing(), same.Missing())
				require.Equal(t, textOf(t, feature.Forms{}, f), textOf(t, feature.Forms{}, same), folded)
			}
		}
		if f.Err() != nil || f.Missing() {
			return
		}
		for _, forms := range []feature.Forms{{}, {EmailIgnoreDots: true}, {EmailIgnoreTags: true}, {EmailIgnoreDots: true, EmailIgnoreTags: true}} {
			once := textOf(t, forms, f)
			address := strings.TrimPrefix(once, "email:")
			require.LessOrEqual(t, len(address), 254)
			again := feature.Email(quoted(address))
			require.NoError(t, again.Err(), once)
			require.Equal(t, once, textOf(t, forms, again))
		}
	})
}

// quoted is a canonical address in quotes where the local part needs quotes.
func quoted(canonical string) string {
	return strings.Trim((&mail.Address{Address: canonical}).String(), "<>")
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}
