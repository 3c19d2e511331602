package limiter_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// keyed is the stored name of a feature, by a limiter with this Config.
func keyed(t testing.TB, cfg limiter.Config, f feature.Feature) string {
	t.Helper()
	cfg.Rules = []limiter.Rule{by(f.Kind(), "9/d")}
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), cfg)
	v, err := lim.Allow(ctx, "signup", f)
	require.NoError(t, err)
	require.True(t, v.Allowed)
	require.Equal(t, "signup", v.Key.Event)
	require.Equal(t, f.Kind(), feature.KindOf(v.Key.Feature))
	return v.Key.Feature
}

// Two addresses of a subscriber share a limit, two subscribers do not.
func TestAddressesMeetByNetwork(t *testing.T) {
	lim := onMemory(t, by("ip", "1/d"))
	for _, row := range []struct {
		addr string
		want bool
	}{
		{"2001:db8::1", true},
		{"2001:db8::2", false},
		{"2001:db8:0:1::1", true},
		{"192.0.2.1", true},
		{"192.0.2.2", true},
		{"::ffff:192.0.2.1", false},
	} {
		require.Equal(t, row.want, allow(t, lim, ip(row.addr)).Allowed, row.addr)
	}
}

// The same text of two kinds makes two features. An address and its text make
// the same feature.
func TestKindsNeverMeet(t *testing.T) {
	lim := onMemory(t, ifMissing(limiter.MissingSkip, by("user", "1/d")), ifMissing(limiter.MissingSkip, by("ip", "1/d")), ifMissing(limiter.MissingSkip, by("email", "1/d")))
	for _, row := range []struct {
		name    string
		feature feature.Feature
		want    bool
	}{
		{"user 7", user("7"), true},
		{"user 7 again", user("7"), false},
		{"an address", ip("1.2.3.4"), true},
		{"its text", feature.New("ip", " ::ffff:1.2.3.4"), false},
		{"a user of that name", user("1.2.3.4"), true},
		{"a user that looks like an address feature", user("ip:5.6.7.8"), true},
		{"that address", ip("5.6.7.8"), true},
		{"an e-mail address", feature.Email("Ada@example.org"), true},
		{"its canonical text", feature.New("email", "ada@example.org"), false},
		{"another text of it", feature.New("email", " Ada@Example.ORG"), false},
		{"a user of that name", user("ada@example.org"), true},
	} {
		require.Equal(t, row.want, allow(t, lim, row.feature).Allowed, row.name)
	}
}

// Kinds and values of odd bytes: a pair is admitted exactly the first time.
func TestPairsOfKindAndValueNeverMeet(t *testing.T) {
	r := random(t)
	kinds := []string{"a", "aa", "a ", "b", "%3A", "{a}"}
	var rules []limiter.Rule
	for _, kind := range kinds {
		rules = append(rules, ifMissing(limiter.MissingSkip, by(kind, "1/d")))
	}
	lim := onMemory(t, rules...)
	pieces := []string{":", "\x00", "\n", "\r\n", " ", "a", "b", "%", "%3A", "{", "}", "!", "#", "$", "\xff", "é", "\u00a0", "|"}
	type pair struct{ kind, value string }
	seen := map[pair]bool{}
	met := 0
	for range 20_000 {
		p := pair{kind: kinds[r.IntN(len(kinds))]}
		for range 1 + r.IntN(3) {
			p.value += pieces[r.IntN(len(pieces))]
		}
		v := allow(t, lim, feature.New(p.kind, p.value))
		require.Equal(t, !seen[p], v.Allowed, "%q", p)
		require.Equal(t, p.kind, v.Kind())
		if seen[p] {
			met++
		}
		seen[p] = true
	}
	require.Greater(t, met, 100, "pairs that never come again prove nothing")
	require.Greater(t, len(seen), 5000)
}

// A value may be of any length, and its last byte counts.
func TestLongValues(t *testing.T) {
	lim := onMemory(t, by("user", "1/d"))
	long := strings.Repeat("x", 1<<20)
	for _, row := range []struct {
		name, value string
		want        bool
	}{
		{"a megabyte", long, true},
		{"the same", long, false},
		{"another end", long[1:] + "y", true},
		{"one byte less", long[1:], true},
	} {
		require.Equal(t, row.want, allow(t, lim, user(row.value)).Allowed, row.name)
	}
}

// Text of an address counts as the address does, however it is written, and in
// every method that takes a feature.
func TestTextOfAnAddressIsTheAddress(t *testing.T) {
	lim := onMemory(t, by("ip", "2/d"))
	for i, text := range []string{"2001:db8::1", "2001:DB8:0:0:1::2", " 2001:db8::3%eth0\n"} {
		require.Equal(t, i < 2, allow(t, lim, feature.New("ip", text)).Allowed, text)
	}
	other := feature.New("ip", "2001:db8::ffff")
	usage, err := lim.Usage(ctx, "signup", other)
	require.NoError(t, err)
	require.Equal(t, counter.Key{Event: "signup", Feature: "ip:2001:db8::/64"}, usage[0].Key)
	require.EqualValues(t, 2, usage[0].Total.High)
	require.NoError(t, lim.Forget(ctx, "signup", other))
	require.True(t, allow(t, lim, ip("2001:db8::1")).Allowed)
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
		v := allow(t, lim, feature.IP(addr), feature.Network("net", addr, 24, 48))
		require.Equal(t, row.denied == "", v.Allowed, row.addr)
		if !v.Allowed {
			require.Equal(t, row.denied, v.Kind(), row.addr)
		}
	}
}

// A joined feature is counted by all of its parts together.
func TestJoinedFeaturesAreCountedTogether(t *testing.T) {
	lim := onMemory(t, by("ip+email", "1/d"))
	pair := func(addr, mail string) feature.Feature { return feature.Join(ip(addr), feature.Email(mail)) }
	require.True(t, allow(t, lim, pair("192.0.2.1", "ada@example.org")).Allowed)
	require.True(t, allow(t, lim, pair("192.0.2.1", "bob@example.org")).Allowed)
	require.True(t, allow(t, lim, pair("192.0.2.2", "ada@example.org")).Allowed)
	require.False(t, allow(t, lim, pair("192.0.2.1", "ADA@example.org")).Allowed)
	require.NoError(t, lim.Forget(ctx, "signup", feature.New("ip+email", "192.0.2.1,ada@example.org")))
	require.True(t, allow(t, lim, pair("192.0.2.1", "ada@example.org")).Allowed)
	require.False(t, allow(t, lim, pair("192.0.2.2", "ada@example.org")).Allowed)
}

// An error of a feature is the caller's, and has nothing of the text.
func TestTextThatIsNoFeature(t *testing.T) {
	lim := onMemory(t, by("ip", "9/d"), by("email", "9/d"))
	f := feature.Email("visitor@")
	for _, call := range []func() (limiter.Verdict, error){
		func() (limiter.Verdict, error) { return lim.Allow(ctx, "signup", ip("192.0.2.1"), f) },
		func() (limiter.Verdict, error) { return lim.Peek(ctx, "signup", 1, ip("192.0.2.1"), f) },
		func() (limiter.Verdict, error) { return limiter.Verdict{}, lim.Forget(ctx, "signup", f) },
	} {
		v, err := call()
		require.EqualError(t, err, `limiter: feature "email" is not an e-mail address, want local-part@domain, event "signup"`)
		require.ErrorIs(t, err, f.Err())
		require.Equal(t, limiter.Verdict{}, v)
	}
	require.EqualError(t, lim.Erase(ctx, f), `limiter: feature "email" is not an e-mail address, want local-part@domain`)
	require.True(t, allow(t, lim, ip("192.0.2.1"), feature.Email("visitor@example.org")).Allowed)
}

// All texts of a mailbox and of its networks, by the Forms of the Config.
func TestFormsAreTheConfigs(t *testing.T) {
	forms := feature.Forms{IPv4Bits: 24, IPv6Bits: 48, EmailIgnoreTags: true, EmailProviders: []feature.EmailProvider{feature.Gmail()}}
	for want, f := range map[string]feature.Feature{
		"ip:192.0.2.0/24":      ip("192.0.2.9"),
		"ip:2001:db8::/48":     ip("2001:db8:0:1::1"),
		"email:a.da@books.org": feature.Email("A.da+1@books.org"),
		"email:ada@gmail.com":  feature.Email("A.da+1@googlemail.com"),
	} {
		require.Equal(t, want, keyed(t, limiter.Config{Forms: forms}, f))
	}
	_, err := limiter.New(newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{
		Rules: []limiter.Rule{by("ip", "9/d")}, Forms: feature.Forms{IPv4Bits: 40},
	})
	require.EqualError(t, err, "feature: Forms.IPv4Bits is 40, want 1 to 32, or 0 for 32")
}
