package feature_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// textOf returns the text of f, which stores keep.
func textOf(t testing.TB, forms feature.Forms, f feature.Feature) string {
	n := try.To(feature.NewNormalizer(forms))(t)
	text := string(n.Append([]byte("before "), &f))
	require.Equal(t, f.Kind(), feature.KindOf(strings.TrimPrefix(text, "before ")))
	return strings.TrimPrefix(text, "before ")
}

func ip(s string) feature.Feature   { return feature.IP(netip.MustParseAddr(s)) }
func user(s string) feature.Feature { return feature.New("user", s) }

// The texts in stores outlive a release of the package: another text would begin all
// counts anew.
func TestTextsThatStoresKeep(t *testing.T) {
	addr := netip.MustParseAddr("2001:db8:0:1::1")
	for _, row := range []struct {
		f           feature.Feature
		text, value string
	}{
		{feature.IP(netip.MustParseAddr("192.0.2.1")), "ip:192.0.2.1", "192.0.2.1"},
		{feature.IP(addr), "ip:2001:db8:0:1::/64", "2001:db8:0:1::1"},
		{feature.Network("net", addr, 24, 48), "net:2001:db8::/48", "2001:db8::/48"},
		{feature.Network("net", netip.MustParseAddr("192.0.2.1"), 24, 48), "net:192.0.2.0/24", "192.0.2.0/24"},
		{feature.Network("net", addr, 32, 128), "net:2001:db8:0:1::1", "2001:db8:0:1::1"},
		{feature.Email(" Ada.X+1@Bücher.example"), "email:ada.x+1@xn--bcher-kva.example", "ada.x+1@xn--bcher-kva.example"},
		{feature.Email(`"Ada X"@example.org`), "email:ada x@example.org", "ada x@example.org"},
		{feature.Domain("Ada@Example.org."), "domain:example.org", "example.org"},
		{feature.New("user", "Ada: 7,%\x00\xff"), "user:Ada: 7,%\x00\xff", "Ada: 7,%\x00\xff"},
		{feature.New("", "7"), ":7", "7"},
		{feature.Join(feature.IP(addr), feature.Email("Ada@example.org"), user("a,b%")), "ip+email+user:2001:db8:0:1::/64,ada@example.org,a%2Cb%25", "2001:db8:0:1::1,ada@example.org,a%2Cb%25"},
	} {
		require.Equal(t, row.text, textOf(t, feature.Forms{}, row.f))
		require.Equal(t, row.value, row.f.Value())
		require.Equal(t, row.text, textOf(t, feature.Forms{}, row.f.With(t)))
	}
}

func TestIPIsTheNetworkOfASubscriber(t *testing.T) {
	for _, row := range []struct {
		v4, v6 int
		want   string
		all    []string
	}{
		{0, 0, "ip:192.0.2.1", []string{"192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.1%eth0",
			"64:ff9b::192.0.2.1"}},
		{0, 0, "ip:192.0.2.2", []string{"192.0.2.2"}},
		// Translated by RFC 6052, also with a prefix of 64 bits; 6to4, 65,536 networks of one
		// sender; Teredo by two servers.
		{0, 0, "ip:192.0.2.9", []string{"64:ff9b::192.0.2.9%eth0", "64:ff9b:1::192.0.2.9",
			"64:ff9b:1:ffff:0:fffe:192.0.2.9", "64:ff9b:1:5:c0:2:900:0", "2002:c000:209::1",
			"2002:c000:209:ffff:1:2:3:4%eth0", "2001:0:cb00:7101:8000:63bf:3fff:fdf6",
			"2001:0:cb00:7102:0:1:3fff:fdf6"}},
		{0, 0, "ip:64:ff9b:2::/64", []string{"64:ff9b:2::192.0.2.9"}},
		// No 6to4 address: nobody becomes 127.0.0.1 by it.
		{0, 0, "ip:2002:7f00:1::/64", []string{"2002:7f00:1::1"}},
		{0, 0, "ip:2002:a01:203::/64", []string{"2002:a01:203::1"}},
		{0, 0, "ip:2001:0:cb00:7101::/64", []string{"2001:0:cb00:7101:8000:63bf:80ff:fffe"}},
		// ISATAP: its last 64 bits are the sender's choice.
		{0, 0, "ip:2001:db8::/64", []string{"2001:db8::5efe:192.0.2.9",
			"2001:db8::200:5efe:192.0.2.9", "2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"}},
		{0, 0, "ip:0.0.0.0", []string{"0.0.0.0"}},
		{0, 0, "ip:2001:db8:0:1::/64", []string{"2001:db8:0:1::1"}},
		{0, 0, "ip:fe80::/64", []string{"fe80::1%eth0", "fe80::2"}},
		{0, 0, "ip:::/64", []string{"::"}},
		{24, 48, "ip:192.0.2.0/24", []string{"192.0.2.1", "192.0.2.255", "::ffff:192.0.2.7",
			"2002:c000:209::1"}},
		{24, 48, "ip:192.0.3.0/24", []string{"192.0.3.1"}},
		{24, 48, "ip:2001:db8::/48", []string{"2001:db8:0:1::1"}},
		{32, 128, "ip:2001:db8::1", []string{"2001:db8::1", "2001:db8::1%eth0"}},
		{1, 1, "ip:128.0.0.0/1", []string{"255.0.0.1"}},
		{1, 1, "ip:8000::/1", []string{"ffff::1"}},
	} {
		for _, addr := range row.all {
			got := textOf(t, feature.Forms{IPv4Bits: row.v4, IPv6Bits: row.v6}, ip(addr))
			require.Equal(t, row.want, got, addr)
		}
	}
}

// The same text of two kinds makes two features. An address and its text make the same
// feature.
func TestKindsNeverMeet(t *testing.T) {
	for _, row := range []struct {
		a, b feature.Feature
		same bool
	}{
		{feature.New("user", "1.2.3.4"), feature.New("ip", "1.2.3.4"), false},
		{feature.New("user", "ada@example.org"), feature.New("email", "ada@example.org"), false},
		{feature.New("user", "ip:1.2.3.4"), feature.New("ip", "1.2.3.4"), false},
		{feature.New("net", "1.2.3.4"), feature.Network("net", netip.MustParseAddr("1.2.3.4"), 32, 128), true},
		{ip("1.2.3.4"), feature.New("ip", " ::ffff:1.2.3.4"), true},
		{feature.Email("Ada@example.org"), feature.New("email", " ada@Example.ORG"), true},
	} {
		require.Equal(t, row.same, textOf(t, feature.Forms{}, row.a) == textOf(t, feature.Forms{}, row.b), "%q and %q", row.a.Value(), row.b.Value())
	}
}

func TestFeaturesWithoutAValue(t *testing.T) {
	for _, row := range []struct {
		name    string
		f       feature.Feature
		kind    string
		missing bool
		err     bool
	}{
		{"the zero Feature", feature.Feature{}, "", true, false},
		{"an address", ip("192.0.2.1"), "ip", false, false},
		{"no address", feature.IP(netip.Addr{}), "ip", true, false},
		{"the unspecified address", ip("::"), "ip", false, false},
		{"an e-mail address", feature.Email("a@b.org"), "email", false, false},
		{"no e-mail address", feature.Email(""), "email", true, false},
		{"nothing to see", feature.Email(" \t\r\n "), "email", true, false},
		{"not an e-mail address", feature.Email("a"), "email", false, true},
		{"a user", user("7"), "user", false, false},
		{"a blank user", user(" "), "user", false, false},
		{"no user", user(""), "user", true, false},
		{"no kind", feature.New("", "7"), "", false, false},
		{"a blank address", feature.New("ip", " "), "ip", true, false},
		{"text that is no address", feature.New("ip", "garbage"), "ip", false, true},
		{"a network", feature.Network("net", netip.MustParseAddr("192.0.2.1"), 24, 48), "net", false, false},
		{"the network of no address", feature.Network("net", netip.Addr{}, 24, 48), "net", true, false},
		{"a domain", feature.Domain("b.org"), "domain", false, false},
		{"no domain", feature.New("domain", "\n"), "domain", true, false},
		{"nothing joined", feature.Join(), "", true, false},
		{"joined", feature.Join(user("7"), ip("192.0.2.1")), "user+ip", false, false},
		{"joined with a missing one", feature.Join(user("7"), user("")), "user+user", true, false},
		{"joined with an error", feature.Join(user(""), feature.Email("a")), "user+email", false, true},
		{"no text of joined ones", feature.New("user+ip", ""), "user+ip", true, false},
		{"text of joined ones, one missing", feature.New("user+ip", "7,"), "user+ip", true, false},
	} {
		require.Equal(t, row.kind, row.f.Kind(), row.name)
		require.Equal(t, row.missing, row.f.Missing(), row.name)
		require.Equal(t, row.err, row.f.Err() != nil, row.name)
		require.Equal(t, row.missing || row.err, row.f.Value() == "", row.name)
	}
}

func TestUnknownFeaturesAreMissing(t *testing.T) {
	for _, f := range []feature.Feature{feature.Unknown("user"), feature.Join(ip("192.0.2.1"), feature.Unknown("user"))} {
		require.True(t, f.Unknown())
		require.True(t, f.Missing())
		require.NoError(t, f.Err())
	}
	require.False(t, user("").Unknown())
	require.Equal(t, "ip+user", feature.Join(ip("192.0.2.1"), feature.Unknown("user")).Kind())
}

func TestKinds(t *testing.T) {
	for _, row := range []struct {
		kind, plain string
		is          bool
	}{
		{"ip", "ip", true}, {" IP", "ip", true}, {"Ip + EMAIL", "ip+email", true}, {"IP+User", "ip+User", true},
		{"User", "User", true}, {" user", " user", true}, {"a:b", "a:b", false}, {"é", "é", false}, {"a\n", "a\n", false}, {"", "", false},
	} {
		require.Equal(t, row.plain, feature.PlainKind(row.kind), "%q", row.kind)
		require.Equal(t, row.is, feature.IsKind(row.kind), "%q", row.kind)
	}
	require.Equal(t, "user", feature.KindOf("user:a:b"))
	require.Equal(t, "user", feature.KindOf("user"))
}

// A note goes with the feature, and is no part of it.
func TestNotes(t *testing.T) {
	f := ip("192.0.2.1")
	require.Nil(t, f.Note())
	noted := f.With("a note")
	require.Equal(t, "a note", noted.Note())
	require.Nil(t, f.Note())
	require.Equal(t, f, noted.With(nil))
	require.NotEqual(t, f, noted)
}

func TestAddrIsTheAddressThatIsCounted(t *testing.T) {
	for _, row := range []struct {
		f    feature.Feature
		want string
	}{
		{ip("2001:db8::1%eth0"), "2001:db8::1"}, {ip("2002:c000:209::1"), "192.0.2.9"},
		{feature.Network("net", netip.MustParseAddr("192.0.2.9"), 24, 48), "192.0.2.9"},
		{user("192.0.2.9"), "invalid IP"}, {feature.Unknown("ip"), "invalid IP"},
	} {
		require.Equal(t, row.want, row.f.Addr().String())
	}
}

func TestPrefixesThatStandForIPv4(t *testing.T) {
	for prefix, want := range map[string]bool{
		"64:ff9b::/96": true, "64:ff9b:1:2::/64": true, "2002:c000:200::/40": true, "2001::/32": true,
		"64:ff9b::/95": false, "2001::/31": false, "2001:db8::/32": false, "192.0.2.0/24": false, "::/0": false,
	} {
		require.Equal(t, want, feature.StandsForIPv4(netip.MustParsePrefix(prefix)), prefix)
	}
}

func TestBitsAreChecked(t *testing.T) {
	for _, row := range []struct {
		v4, v6 int
		want   []string
	}{
		{0, 0, nil},
		{1, 1, nil},
		{32, 128, nil},
		{33, 0, []string{"feature: Forms.IPv4Bits is 33, want 1 to 32, or 0 for 32"}},
		{-1, 0, []string{"feature: Forms.IPv4Bits is -1, want 1 to 32, or 0 for 32"}},
		{0, 129, []string{"feature: Forms.IPv6Bits is 129, want 1 to 128, or 0 for 64"}},
		{64, -64, []string{"feature: Forms.IPv4Bits is 64, want 1 to 32, or 0 for 32", "feature: Forms.IPv6Bits is -64, want 1 to 128, or 0 for 64"}},
	} {
		_, err := feature.NewNormalizer(feature.Forms{IPv4Bits: row.v4, IPv6Bits: row.v6})
		if row.want == nil {
			require.NoError(t, err, "%+v", row)
		} else {
			require.EqualError(t, err, strings.Join(row.want, "\n"), "%+v", row)
		}
	}
}
