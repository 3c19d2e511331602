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
	for _, row := range []struct{ name, text string }{
		{"a word", "visitor"},
		{"no domain", "visitor@"},
		{"no name", "@example.org"},
		{"nothing but the sign", "@"},
		{"a name beside it", "Ada <visitor@example.org>"},
		{"a quoted name beside it", `"Ada" <visitor@example.org>`},
		{"in angle brackets", "<visitor@example.org>"},
		{"a name, and a comment behind", "Ada <visitor@example.org> (home)"},
		{"in angle brackets, a comment behind", "<visitor@example.org> (home)"},
		{"a group of one", "friends: visitor@example.org;"},
		{"a group of one, a comment behind", "friends: visitor@example.org; (home)"},
		{"a Greek question mark", "visi\u037etor@example.org"},
		{"an empty group", "friends:;"},
		{"two", "visitor@example.org, bob@example.org"},
		{"two, separated by space", "visitor@example.org bob@example.org"},
		{"two signs", "visitor@example@example.org"},
		{"two signs in a row", "visitor@@example.org"},
		{"an open quote", `"visitor@example.org`},
		{"an empty quote", `""@example.org`},
		{"half in quotes", `"visi"tor@example.org`},
		{"an open comment", "visitor@example.org (home"},
		{"a space within", "visi tor@example.org"},
		{"a space before the sign", "visitor @example.org"},
		{"a space in the domain", "visitor@exam ple.org"},
		{"a leading dot", ".visitor@example.org"},
		{"a trailing dot", "visitor.@example.org"},
		{"two dots", "visi..tor@example.org"},
		{"two dots in the domain", "visitor@example..org"},
		{"two dots of two kinds in the domain", "visitor@example.\u3002org"},
		{"two roots", "visitor@example.org.."},
		{"two roots of two kinds", "visitor@example.org.\u3002"},
		{"two roots, the other way round", "visitor@example.org\u3002."},
		{"two roots of another kind", "visitor@example.org\u3002\u3002"},
		{"a domain that begins with a dot", "visitor@.example.org"},
		{"or with another one", "visitor@\u3002example.org"},
		{"a domain of dots", "visitor@."},
		{"a domain of other dots", "visitor@\u3002"},
		{"a hyphen first", "visitor@-example.org"},
		{"a hyphen last", "visitor@example-.org"},
		{"a hyphen at the end", "visitor@example.org-"},
		{"an underscore in the domain", "visitor@exam_ple.org"},
		{"punycode that is none", "visitor@xn--\u00fc.org"},
		{"not an address in brackets", "visitor@[example.org]"},
		{"an open bracket", "visitor@[192.0.2.1"},
		{"NUL", "visi\x00tor@example.org"},
		{"NUL in quotes", "\"visi\x00tor\"@example.org"},
		{"a tab in quotes", "\"visi\ttor\"@example.org"},
		{"a control character beyond ASCII", "visi\u0085tor@example.org"},
		{"DEL", "visi\x7ftor@example.org"},
		{"not UTF-8", "visi\xfftor@example.org"},
		{"another header", "visitor@example.org\r\nBcc: bob@example.org"},
		{"another line", "visitor@example.org\nbob@example.org"},
		{"a line before", "bob@example.org\nvisitor@example.org"},
		{"a line in quotes", "\"visitor\r\nBcc: bob\"@example.org"},
		{"a folded line", "visitor@\r\n example.org"},
		{"a name too long", long + "x@example.org"},
		{"a name too long, in quotes", `"` + long + `x"@example.org`},
		{"a name too long in small letters", strings.Repeat("Ⱥ", 32) + "@example.org"},
		{"a label too long", "visitor@" + label + "x.org"},
		{"a domain too long", "visitor@" + label + "." + label + "." + label + "." + label},
		{"too long together", long + "@" + label + "." + label + "." + label[:62]},
		{"a domain that runs both ways", "visitor@\u05d0a.org"},
		{"longer than reason", `"visitor"@example.org (` + strings.Repeat(long, 20) + ")"},
		{"a megabyte", strings.Repeat(long, 16<<10) + "@example.org"},
	} {
		f := feature.Email(row.text)
		require.EqualError(t, f.Err(), `feature "email" is not an e-mail address, want local-part@domain`, "%s: %q", row.name, row.text)
		require.False(t, f.Missing(), row.name)
		require.Empty(t, f.Value(), row.name)
	}
	// Just not too long.
	for _, address := range []string{long + "@example.org", "visitor@" + label + ".org", long + "@" + label + "." + label + "." + label[:61]} {
		require.Equal(t, "email:"+address, textOf(t, feature.Forms{}, feature.Email(address)))
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
