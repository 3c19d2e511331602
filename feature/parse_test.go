package feature_test

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/feature"
)

// Errors name the kind and what is expected, and have nothing of the text.
func TestTextThatIsNoFeature(t *testing.T) {
	address := `feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1`
	domain := `feature "domain" is neither a domain nor an e-mail address, want one such as example.org`
	values := `feature "ip+user" has 1 value, want 2 with commas between, and %2C for a comma within`
	percent := `feature "ip+user" has a percent sign that is not of %25 or %2C in value 2, want %25 for a percent sign`
	addr := netip.MustParseAddr("192.0.2.1")
	for want, all := range map[string][]feature.Feature{
		address: {feature.New("ip", "garbage"), feature.New("ip", "192.0.2.1:567"),
			feature.New("ip", "[2001:db8::1]"), feature.New("ip", "[2001:db8::1]:567"),
			feature.New("ip", "2001:db8::/64"), feature.New("ip", "192.0.2.1%eth0"),
			feature.New("ip", "2001:db8::1%"), feature.New("ip", "192.0.2.01"),
			feature.New("ip", "192.0.2.1, 192.0.2.2"), feature.New("ip", "3221225985"),
			feature.New("ip+user", "7,7")},
		`feature "email" is not an e-mail address, want local-part@domain`: {feature.New("email", "ada")},
		domain: {feature.New("domain", "exam ple.org"), feature.New("domain", "example..org"),
			feature.New("domain", "example.org, example.com"),
			feature.New("domain", "<example.org>"), feature.New("domain", "ada@"),
			feature.New("domain", ".")},
		values:  {feature.New("ip+user", "192.0.2.1")},
		percent: {feature.New("ip+user", "192.0.2.1,a%2x"), feature.New("ip+user", "192.0.2.1,%")},
		`feature: Network has kind "ip", want a kind of your own, such as "net"`:  {feature.Network("ip", addr, 24, 48)},
		`feature: Network has kind "a+b", want a kind of your own, such as "net"`: {feature.Network("a+b", addr, 24, 48)},
		"feature: Network has 0 bits for IPv4, want 1 to 32":                      {feature.Network("net", addr, 0, 48)},
		"feature: Network has 33 bits for IPv4, want 1 to 32":                     {feature.Network("net", addr, 33, 48)},
		"feature: Network has 129 bits for IPv6, want 1 to 128":                   {feature.Network("net", addr, 24, 129)},
	} {
		for _, f := range all {
			require.EqualError(t, f.Err(), want)
			require.False(t, f.Missing(), want)
		}
	}
}

func TestDomainsThatMeet(t *testing.T) {
	for want, all := range map[string][]string{
		"example.org":           {"example.org", " Example.ORG. ", "ada@example.org", `"a@b"@EXAMPLE.org`, "ｅｘａｍｐｌｅ\u3002org"},
		"xn--bcher-kva.example": {"bücher.example", "BÜCHER.example", "xn--bcher-kva.example", "Ada+1@bu\u0308cher.example"},
		"mail.example.org":      {"mail.example.org", "ada@mail.example.org"},
		"gmail.com":             {"gmail.com", "googlemail.com", "ada@GoogleMail.com"},
	} {
		for _, text := range all {
			require.Equal(t, "domain:"+want, textOf(t, gmail, feature.Domain(text)), text)
			require.Equal(t, "domain:"+want, textOf(t, gmail, feature.New("domain", text)), text)
		}
	}
	require.Equal(t, "domain:googlemail.com", textOf(t, feature.Forms{}, feature.Domain("googlemail.com")))
}

func TestEmailProvidersAreChecked(t *testing.T) {
	for want, p := range map[string]feature.EmailProvider{
		"feature: Forms.EmailProviders[1].Domains is empty, want at least one domain":                         {IgnoreDots: true},
		`feature: Forms.EmailProviders[1].Domains[1] is "exam ple.org", want a domain such as example.org`:    {Domains: []string{"example.org", "exam ple.org"}},
		`feature: Forms.EmailProviders[1].Domains[0] is "ada@example.org", want a domain such as example.org`: {Domains: []string{"ada@example.org"}},
		`feature: Forms.EmailProviders[1].Domains[0] is "", want a domain such as example.org`:                {Domains: []string{""}},
		`feature: Forms.EmailProviders[1].Domains[0] is "GMAIL.com", which is there twice`:                    {Domains: []string{"GMAIL.com"}},
	} {
		_, err := feature.NewNormalizer(feature.Forms{EmailProviders: []feature.EmailProvider{feature.Gmail(), p}})
		require.EqualError(t, err, want)
	}
}

// A joined feature has one text, by the parts and by the Value.
func TestJoinedFeaturesHaveOneText(t *testing.T) {
	addr, mail := ip("2001:db8::1"), feature.Email(" Ada.X+1@GoogleMail.com")
	want := "ip+email:2001:db8::/64,adax@gmail.com"
	for _, f := range []feature.Feature{
		feature.Join(addr, mail),
		feature.Join(ip("2001:db8::2"), feature.Email("adax@gmail.com")),
		feature.Join(feature.Join(addr, mail)),
		feature.New("ip+email", "2001:db8::3,Ada.X@gmail.com"),
	} {
		require.Equal(t, want, textOf(t, gmail, f))
		require.Equal(t, want, textOf(t, gmail, feature.New(f.Kind(), f.Value())))
	}
	three := "ip+email+user:2001:db8::/64,adax@gmail.com,a%2Cb%2525"
	require.Equal(t, three, textOf(t, gmail, feature.Join(addr, feature.Join(mail, user("a,b%25")))))
	require.Equal(t, three, textOf(t, gmail, feature.Join(feature.Join(addr, mail), user("a,b%25"))))
	require.Equal(t, three, textOf(t, gmail, feature.New("ip+email+user", "2001:db8::9,adax@gmail.com,a%2cb%2525")))
}

// Kinds and values of odd bytes: two lists of values have one text only if they are
// equal, and the Value of a joined feature leads back to the text.
func TestJoinedValuesNeverMeet(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := []string{"a", "aa", "a ", "b", "%3A", "{a}"}
	pieces := []string{",", "%", "2C", "%2C", "%2c", "%25", "+", ":", "\x00", "\n", "a", "b", " ", "\xff", "é"}
	seen, met := map[string][3][2]string{}, 0
	for range 20_000 {
		var values [3][2]string
		features := make([]feature.Feature, 1+r.IntN(3))
		for i := range features {
			kind, value := kinds[r.IntN(len(kinds))], ""
			for range 1 + r.IntN(3) {
				value += pieces[r.IntN(len(pieces))]
			}
			values[i], features[i] = [2]string{kind, value}, feature.New(kind, value)
		}
		f := feature.Join(features...)
		text := textOf(t, feature.Forms{}, f)
		before, is := seen[text]
		if is {
			met++
			require.Equal(t, before, values)
		}
		seen[text] = values
		require.Equal(t, text, textOf(t, feature.Forms{}, feature.New(f.Kind(), f.Value())))
	}
	require.Greater(t, met, 100, "values that never come again prove nothing")
}

// No text of a kind that is parsed panics, and a feature has one text, by the Value
// too.
func FuzzNew(f *testing.F) {
	kinds := []string{"ip", "domain", "email", "ip+email", "ip+user", "user+domain+net"}
	for _, text := range []string{"", " ", "192.0.2.1", "2001:db8::1%eth0", "2002:c000:209::1", "2001:0:1::", "64:ff9b:1::", "Bücher.example.", "a@b", `"a,b"@x`,
		"192.0.2.1,a%2Cb@x", "192.0.2.1,%25", "::1,7", ",", "a,b.org,192.0.2.0/24", "%2C,b,%25"} {
		for kind := range kinds {
			f.Add(uint8(kind), text)
		}
	}
	forms := feature.Forms{EmailProviders: []feature.EmailProvider{feature.Gmail()}}
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		f := feature.New(kinds[int(kind)%len(kinds)], text)
		require.Equal(t, kinds[int(kind)%len(kinds)], f.Kind())
		if f.Err() != nil || f.Missing() {
			require.Empty(t, f.Value())
			return
		}
		again := feature.New(f.Kind(), f.Value())
		if strings.Contains(f.Kind(), "email") && again.Err() != nil {
			return // a local part that needs quotes
		}
		require.Equal(t, textOf(t, forms, f), textOf(t, forms, again), f.Value())
	})
}
