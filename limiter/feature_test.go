package limiter_test

import (
	"net/netip"
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
