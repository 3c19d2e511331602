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

// keyed is the stored name of a feature, by a limiter with this Config.
func keyed(t testing.TB, cfg limiter.Config, feature limiter.Feature) string {
	t.Helper()
	cfg.Rules = []limiter.Rule{by(feature.Kind(), "9/d")}
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), cfg)
	v, err := lim.Allow(ctx, "signup", feature)
	require.NoError(t, err)
	require.True(t, v.Allowed)
	require.Equal(t, "signup", v.Key.Event)
	require.Equal(t, feature.Kind(), limiter.KindOf(v.Key))
	return v.Key.Feature
}

func TestIPIsTheNetworkOfASubscriber(t *testing.T) {
	for _, row := range []struct {
		v4, v6 int
		addr   string
		want   string
	}{
		{0, 0, "192.0.2.1", "ip:192.0.2.1"},
		{0, 0, "192.0.2.2", "ip:192.0.2.2"},
		{0, 0, "::ffff:192.0.2.1", "ip:192.0.2.1"},
		{0, 0, "::ffff:192.0.2.1%eth0", "ip:192.0.2.1"},
		{0, 0, "64:ff9b::192.0.2.1", "ip:192.0.2.1"},
		{0, 0, "64:ff9b::192.0.2.9%eth0", "ip:192.0.2.9"},
		{0, 0, "64:ff9b:1::192.0.2.9", "ip:192.0.2.9"},
		{0, 0, "64:ff9b:1:ffff:0:fffe:192.0.2.9", "ip:192.0.2.9"},
		{0, 0, "64:ff9b:1:5:c0:2:900:0", "ip:192.0.2.9"}, // a prefix of 64 bits
		{0, 0, "64:ff9b:2::192.0.2.9", "ip:64:ff9b:2::/64"},
		{0, 0, "2002:c000:209::1", "ip:192.0.2.9"}, // 6to4: 65,536 networks, one sender
		{0, 0, "2002:c000:209:ffff:1:2:3:4%eth0", "ip:192.0.2.9"},
		{0, 0, "2002:7f00:1::1", "ip:2002:7f00:1::/64"}, // no 6to4 address: nobody becomes 127.0.0.1 by it
		{0, 0, "2002:a01:203::1", "ip:2002:a01:203::/64"},
		{0, 0, "2001:0:cb00:7101:8000:63bf:3fff:fdf6", "ip:192.0.2.9"}, // Teredo by two servers
		{0, 0, "2001:0:cb00:7102:0:1:3fff:fdf6", "ip:192.0.2.9"},
		{0, 0, "2001:0:cb00:7101:8000:63bf:80ff:fffe", "ip:2001:0:cb00:7101::/64"},
		{0, 0, "2001:db8::5efe:192.0.2.9", "ip:2001:db8::/64"}, // ISATAP: its last 64 bits are the sender's choice
		{0, 0, "2001:db8::200:5efe:192.0.2.9", "ip:2001:db8::/64"},
		{0, 0, "0.0.0.0", "ip:0.0.0.0"},
		{0, 0, "2001:db8::1", "ip:2001:db8::/64"},
		{0, 0, "2001:db8::ffff:ffff:ffff:ffff", "ip:2001:db8::/64"},
		{0, 0, "2001:db8:0:1::1", "ip:2001:db8:0:1::/64"},
		{0, 0, "fe80::1%eth0", "ip:fe80::/64"},
		{0, 0, "fe80::2", "ip:fe80::/64"},
		{0, 0, "::", "ip:::/64"},
		{24, 48, "192.0.2.1", "ip:192.0.2.0/24"},
		{24, 48, "192.0.2.255", "ip:192.0.2.0/24"},
		{24, 48, "::ffff:192.0.2.7", "ip:192.0.2.0/24"},
		{24, 48, "192.0.3.1", "ip:192.0.3.0/24"},
		{24, 48, "2001:db8:0:1::1", "ip:2001:db8::/48"},
		{24, 48, "2002:c000:209::1", "ip:192.0.2.0/24"},
		{32, 128, "2001:db8::1", "ip:2001:db8::1"},
		{32, 128, "2001:db8::1%eth0", "ip:2001:db8::1"},
		{1, 1, "255.0.0.1", "ip:128.0.0.0/1"},
		{1, 1, "ffff::1", "ip:8000::/1"},
	} {
		got := keyed(t, limiter.Config{IPv4Bits: row.v4, IPv6Bits: row.v6}, ip(row.addr))
		require.Equal(t, row.want, got, "%+v", row)
	}
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
		feature limiter.Feature
		want    bool
	}{
		{"user 7", user("7"), true},
		{"user 7 again", user("7"), false},
		{"an address", ip("1.2.3.4"), true},
		{"its text", limiter.NewFeature("ip", " ::ffff:1.2.3.4"), false},
		{"a user of that name", user("1.2.3.4"), true},
		{"a user that looks like an address feature", user("ip:5.6.7.8"), true},
		{"that address", ip("5.6.7.8"), true},
		{"an e-mail address", limiter.Email("Ada@example.org"), true},
		{"its canonical text", limiter.NewFeature("email", "ada@example.org"), false},
		{"another text of it", limiter.NewFeature("email", " Ada@Example.ORG"), false},
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
		v := allow(t, lim, limiter.NewFeature(p.kind, p.value))
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

func TestTraits(t *testing.T) {
	for _, row := range []struct {
		name    string
		feature limiter.Feature
		kind    string
		missing bool
		err     bool
	}{
		{"the zero Trait", limiter.Feature{}, "", true, false},
		{"an address", ip("192.0.2.1"), "ip", false, false},
		{"no address", limiter.IP(netip.Addr{}), "ip", true, false},
		{"the unspecified address", ip("::"), "ip", false, false},
		{"an e-mail address", limiter.Email("a@b.org"), "email", false, false},
		{"no e-mail address", limiter.Email(""), "email", true, false},
		{"nothing to see", limiter.Email(" \t\r\n "), "email", true, false},
		{"not an e-mail address", limiter.Email("a"), "email", false, true},
		{"a user", user("7"), "user", false, false},
		{"a blank user", user(" "), "user", false, false},
		{"no user", user(""), "user", true, false},
		{"no kind", limiter.NewFeature("", "7"), "", false, false},
		{"a blank address", limiter.NewFeature("ip", " "), "ip", true, false},
		{"text that is no address", limiter.NewFeature("ip", "garbage"), "ip", false, true},
		{"a network", limiter.Network("net", netip.MustParseAddr("192.0.2.1"), 24, 48), "net", false, false},
		{"the network of no address", limiter.Network("net", netip.Addr{}, 24, 48), "net", true, false},
		{"a domain", limiter.Domain("b.org"), "domain", false, false},
		{"no domain", limiter.NewFeature("domain", "\n"), "domain", true, false},
		{"nothing joined", limiter.Join(), "", true, false},
		{"joined", limiter.Join(user("7"), ip("192.0.2.1")), "user+ip", false, false},
		{"joined with a missing one", limiter.Join(user("7"), user("")), "user+user", true, false},
		{"joined with an error", limiter.Join(user(""), limiter.Email("a")), "user+email", false, true},
		{"no text of joined ones", limiter.NewFeature("user+ip", ""), "user+ip", true, false},
		{"text of joined ones, one missing", limiter.NewFeature("user+ip", "7,"), "user+ip", true, false},
	} {
		require.Equal(t, row.kind, row.feature.Kind(), row.name)
		require.Equal(t, row.missing, row.feature.Missing(), row.name)
		require.Equal(t, row.err, row.feature.Err() != nil, row.name)
		require.Equal(t, row.missing || row.err, row.feature.Value() == "", row.name)
	}
}
