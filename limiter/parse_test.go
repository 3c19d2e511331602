package limiter_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// Text of an address counts as the address does, however it is written, and in
// every method that takes a feature.
func TestTextOfAnAddressIsTheAddress(t *testing.T) {
	lim := onMemory(t, by("ip", "2/d"))
	for i, text := range []string{"2001:db8::1", "2001:DB8:0:0:1::2", " 2001:db8::3%eth0\n"} {
		require.Equal(t, i < 2, allow(t, lim, limiter.NewFeature("ip", text)).Allowed, text)
	}
	other := limiter.NewFeature("ip", "2001:db8::ffff")
	usage, err := lim.Usage(ctx, "signup", other)
	require.NoError(t, err)
	require.Equal(t, counter.Key{Event: "signup", Feature: "ip:2001:db8::/64"}, usage[0].Key)
	require.EqualValues(t, 2, usage[0].Total.High)
	require.NoError(t, lim.Forget(ctx, "signup", other))
	require.True(t, allow(t, lim, ip("2001:db8::1")).Allowed)
}

// Errors name the kind and what is expected, and have nothing of the text.
func TestTextThatIsNoFeature(t *testing.T) {
	address := `limiter: feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1`
	domain := `limiter: feature "domain" is neither a domain nor an e-mail address, want one such as example.org`
	values := `limiter: feature "ip+user" has 1 value, want 2 with commas between, and %2C for a comma within`
	percent := `limiter: feature "ip+user" has a percent sign that is not of %25 or %2C in value 2, want %25 for a percent sign`
	addr := netip.MustParseAddr("192.0.2.1")
	for _, row := range []struct {
		feature limiter.Feature
		want    string
	}{
		{limiter.NewFeature("ip", "garbage"), address},
		{limiter.NewFeature("ip", "192.0.2.1:567"), address},
		{limiter.NewFeature("ip", "[2001:db8::1]"), address},
		{limiter.NewFeature("ip", "[2001:db8::1]:567"), address},
		{limiter.NewFeature("ip", "2001:db8::/64"), address},
		{limiter.NewFeature("ip", "192.0.2.1%eth0"), address},
		{limiter.NewFeature("ip", "2001:db8::1%"), address},
		{limiter.NewFeature("ip", "192.0.2.01"), address},
		{limiter.NewFeature("ip", "192.0.2.1, 192.0.2.2"), address},
		{limiter.NewFeature("ip", "3221225985"), address},
		{limiter.NewFeature("email", "ada"), `limiter: feature "email" is not an e-mail address, want local-part@domain`},
		{limiter.NewFeature("domain", "exam ple.org"), domain},
		{limiter.NewFeature("domain", "example..org"), domain},
		{limiter.NewFeature("domain", "example.org, example.com"), domain},
		{limiter.NewFeature("domain", "<example.org>"), domain},
		{limiter.NewFeature("domain", "ada@"), domain},
		{limiter.NewFeature("domain", "."), domain},
		{limiter.NewFeature("ip+user", "192.0.2.1"), values},
		{limiter.NewFeature("ip+user", "192.0.2.1,a%2x"), percent},
		{limiter.NewFeature("ip+user", "192.0.2.1,%"), percent},
		{limiter.NewFeature("ip+user", "7,7"), address},
		{limiter.Network("ip", addr, 24, 48), `limiter: Network has kind "ip", want a kind of your own, such as "net"`},
		{limiter.Network("a+b", addr, 24, 48), `limiter: Network has kind "a+b", want a kind of your own, such as "net"`},
		{limiter.Network("net", addr, 0, 48), "limiter: Network has 0 bits for IPv4, want 1 to 32"},
		{limiter.Network("net", addr, 33, 48), "limiter: Network has 33 bits for IPv4, want 1 to 32"},
		{limiter.Network("net", addr, 24, 129), "limiter: Network has 129 bits for IPv6, want 1 to 128"},
	} {
		require.EqualError(t, row.feature.Err(), row.want)
		_, err := onMemory(t, by(row.feature.Kind(), "9/d")).Allow(ctx, "signup", row.feature)
		require.ErrorIs(t, err, row.feature.Err())
	}
}

// An address and its neighbourhood in one event: the neighbours of an address
// that has used up its limit have theirs, until the neighbourhood's is used up.
func TestAddressesAndTheirNetworks(t *testing.T) {
	lim := onMemory(t, by("ip", "1/d"), by("net", "2/d"))
	for _, row := range []struct {
		addr, denied string
	}{
		{"192.0.2.1", ""}, {"192.0.2.1", "ip"}, {"192.0.2.2", ""}, {"192.0.2.3", "net"}, {"192.0.3.3", ""},
		{"2001:db8::1", ""}, {"2001:db8::2", "ip"}, {"2001:db8:0:1::1", ""}, {"2001:db8:0:2::1", "net"}, {"2001:db8:1::1", ""},
		{"2002:c000:301::1", ""}, {"192.0.3.4", "net"},
	} {
		addr := netip.MustParseAddr(row.addr)
		v := allow(t, lim, limiter.IP(addr), limiter.Network("net", addr, 24, 48))
		require.Equal(t, row.denied == "", v.Allowed, row.addr)
		if !v.Allowed {
			require.Equal(t, row.denied, v.Kind(), row.addr)
		}
	}
	network := limiter.Network("net", netip.MustParseAddr("2001:db8:0:5::1"), 24, 48)
	require.Equal(t, "2001:db8::/48", network.Value())
	require.Equal(t, "net:2001:db8::/48", keyed(t, limiter.Config{}, network))
	require.Equal(t, "net:2001:db8::/48", keyed(t, limiter.Config{}, limiter.NewFeature("net", network.Value())))
}

func TestDomainsThatMeet(t *testing.T) {
	for want, all := range map[string][]string{
		"example.org":           {"example.org", " Example.ORG. ", "ada@example.org", `"a@b"@EXAMPLE.org`, "ｅｘａｍｐｌｅ\u3002org"},
		"xn--bcher-kva.example": {"bücher.example", "BÜCHER.example", "xn--bcher-kva.example", "Ada+1@bu\u0308cher.example"},
		"mail.example.org":      {"mail.example.org", "ada@mail.example.org"},
		"gmail.com":             {"gmail.com", "googlemail.com", "ada@GoogleMail.com"},
	} {
		for _, text := range all {
			require.Equal(t, "domain:"+want, keyed(t, gmail, limiter.Domain(text)), text)
			require.Equal(t, "domain:"+want, keyed(t, gmail, limiter.NewFeature("domain", text)), text)
		}
	}
	require.Equal(t, "domain:googlemail.com", keyed(t, limiter.Config{}, limiter.Domain("googlemail.com")))
}

func TestEmailProvidersAreChecked(t *testing.T) {
	for want, p := range map[string]limiter.EmailProvider{
		"limiter: Config.EmailProviders[1].Domains is empty, want at least one domain":                         {IgnoreDots: true},
		`limiter: Config.EmailProviders[1].Domains[1] is "exam ple.org", want a domain such as example.org`:    {Domains: []string{"example.org", "exam ple.org"}},
		`limiter: Config.EmailProviders[1].Domains[0] is "ada@example.org", want a domain such as example.org`: {Domains: []string{"ada@example.org"}},
		`limiter: Config.EmailProviders[1].Domains[0] is "", want a domain such as example.org`:                {Domains: []string{""}},
		`limiter: Config.EmailProviders[1].Domains[0] is "GMAIL.com", which is there twice`:                    {Domains: []string{"GMAIL.com"}},
	} {
		_, err := limiter.New(newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{
			Rules: []limiter.Rule{by("email", "9/d")}, EmailProviders: []limiter.EmailProvider{limiter.Gmail(), p},
		})
		require.EqualError(t, err, want)
	}
}

// A joined feature has one key, by its parts and by its text.
func TestJoinedFeaturesHaveOneKey(t *testing.T) {
	addr, mail := ip("2001:db8::1"), limiter.Email(" Ada.X+1@GoogleMail.com")
	want := "ip+email:2001:db8::/64,adax@gmail.com"
	for _, f := range []limiter.Feature{
		limiter.Join(addr, mail),
		limiter.Join(ip("2001:db8::2"), limiter.Email("adax@gmail.com")),
		limiter.Join(limiter.Join(addr, mail)),
		limiter.NewFeature("ip+email", "2001:db8::3,Ada.X@gmail.com"),
	} {
		require.Equal(t, want, keyed(t, gmail, f))
		require.Equal(t, want, keyed(t, gmail, limiter.NewFeature(f.Kind(), f.Value())))
	}
	three := "ip+email+user:2001:db8::/64,adax@gmail.com,a%2Cb%2525"
	require.Equal(t, three, keyed(t, gmail, limiter.Join(addr, limiter.Join(mail, user("a,b%25")))))
	require.Equal(t, three, keyed(t, gmail, limiter.Join(limiter.Join(addr, mail), user("a,b%25"))))
	require.Equal(t, three, keyed(t, gmail, limiter.NewFeature("ip+email+user", "2001:db8::9,adax@gmail.com,a%2cb%2525")))

	lim := onMemory(t, by("ip+email", "1/d"))
	pair := func(addr, mail string) limiter.Feature { return limiter.Join(ip(addr), limiter.Email(mail)) }
	require.True(t, allow(t, lim, pair("192.0.2.1", "ada@example.org")).Allowed)
	require.True(t, allow(t, lim, pair("192.0.2.1", "bob@example.org")).Allowed)
	require.True(t, allow(t, lim, pair("192.0.2.2", "ada@example.org")).Allowed)
	require.False(t, allow(t, lim, pair("192.0.2.1", "ADA@example.org")).Allowed)
	require.NoError(t, lim.Forget(ctx, "signup", limiter.NewFeature("ip+email", "192.0.2.1,ada@example.org")))
	require.True(t, allow(t, lim, pair("192.0.2.1", "ada@example.org")).Allowed)
	require.False(t, allow(t, lim, pair("192.0.2.2", "ada@example.org")).Allowed)
}

// Kinds and values of odd bytes: two lists of values have one key only if they are
// equal, and the text of a joined feature leads back to the key.
func TestJoinedValuesNeverMeet(t *testing.T) {
	r := random(t)
	lim := onMemory(t, ifMissing(limiter.MissingSkip, by("a+b", "1/d")), ifMissing(limiter.MissingSkip, by("a+b+b", "1/d")))
	pieces := []string{",", "%", "2C", "%2C", "%2c", "%25", "+", ":", "\x00", "\n", "a", "b", " ", "\xff", "é"}
	value := func() string {
		var s strings.Builder
		for range 1 + r.IntN(3) {
			s.WriteString(pieces[r.IntN(len(pieces))])
		}
		return s.String()
	}
	seen, met := map[[3]string]bool{}, 0
	for range 20_000 {
		values := [3]string{value(), value()}
		features := []limiter.Feature{limiter.NewFeature("a", values[0]), limiter.NewFeature("b", values[1])}
		if r.IntN(2) == 0 {
			values[2] = value()
			features = append(features, limiter.NewFeature("b", values[2]))
		}
		f := limiter.Join(features...)
		if seen[values] {
			met++
			f = limiter.NewFeature(f.Kind(), f.Value())
		}
		require.Equal(t, !seen[values], allow(t, lim, f).Allowed, "%q", values)
		seen[values] = true
	}
	require.Greater(t, met, 100, "values that never come again prove nothing")
}

// FuzzNewFeature tries text of every kind that is parsed: no text panics, an error
// has nothing of the text, and a feature has one key, by its value too.
func FuzzNewFeature(f *testing.F) {
	kinds := []string{"ip", "domain", "email", "ip+email", "ip+user", "user+domain+net"}
	for _, text := range []string{"", " ", "192.0.2.1", "2001:db8::1%eth0", "2002:c000:209::1", "2001:0:1::", "64:ff9b:1::", "Bücher.example.", "a@b", `"a,b"@x`,
		"192.0.2.1,a%2Cb@x", "192.0.2.1,%25", "::1,7", ",", "a,b.org,192.0.2.0/24", "%2C,b,%25"} {
		for kind := range kinds {
			f.Add(uint8(kind), text)
		}
	}
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	require.NoError(f, err)
	var rules []limiter.Rule
	for _, kind := range kinds {
		rules = append(rules, by(kind, "9/d"))
	}
	lim, err := limiter.New(c, limiter.Config{Rules: rules, EmailProviders: []limiter.EmailProvider{limiter.Gmail()}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		feature := limiter.NewFeature(kinds[int(kind)%len(kinds)], text)
		require.Equal(t, kinds[int(kind)%len(kinds)], feature.Kind())
		if feature.Err() != nil || feature.Missing() {
			return
		}
		usage, err := lim.Usage(ctx, "signup", feature)
		require.NoError(t, err)
		again := limiter.NewFeature(feature.Kind(), feature.Value())
		if strings.Contains(feature.Kind(), "email") && again.Err() != nil {
			return // a local part that needs quotes
		}
		same, err := lim.Usage(ctx, "signup", again)
		require.NoError(t, err, feature.Value())
		require.Equal(t, usage[0].Key, same[0].Key)
	})
}
