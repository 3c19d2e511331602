package httplimit_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// Text of the kinds "ip", "email" and "domain" counts in its canonical form, from
// any part of a request, and other text is the request's fault.
func TestSourcesAreCanonical(t *testing.T) {
	for _, row := range []struct {
		kind           string
		same           []string // of one limit
		wrong, problem string
	}{
		{"ip", []string{"2001:db8::1", "2001:DB8:0:0::2", "2001:db8::3"}, "garbage", "must be an IP address"},
		{"email", []string{"ada@example.org", "Ada@Example.ORG", `"ada"@example.org`}, "ada", "must be an e-mail address"},
		{"domain", []string{"example.org", "ada@EXAMPLE.org.", "bob@example.org"}, "exam_ple", "must be a domain or an e-mail address"},
		{"ip+email", []string{"192.0.2.1,ada@example.org", "::ffff:192.0.2.1,Ada@example.org"}, "192.0.2.1", "is not valid"},
	} {
		s := newSite(t, newLimit(t, httplimit.Config{
			Limiter: newLimiter(t, newClock(), by(row.kind, "1/d")), Event: "signup",
			Features: []httplimit.Source{httplimit.NewSource(row.kind, httplimit.Header("Text"))},
		})(welcome))
		for i, text := range row.same {
			require.Equal(t, map[bool]int{true: 200, false: 429}[i == 0], s.get("Text: "+text).status, text)
		}
		got := s.get("Text: " + row.wrong)
		require.Equal(t, 400, got.status)
		require.Contains(t, got.body, row.problem)
		require.NotContains(t, got.body, row.wrong)
	}
}

// Rules by an address, by its network and by the pair of an address and a name,
// each found once in a request.
func TestNetworksAndPairs(t *testing.T) {
	behind := httplimit.ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	s := newSite(t, newLimit(t, httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "2/d"), by("net", "4/d"), skipped(by("ip+user", "1/d"))), Event: "signup",
		Features: []httplimit.Source{httplimit.IP(behind), httplimit.Network("net", behind, 24, 48), httplimit.Join(httplimit.IP(behind), byUser)},
	})(welcome))
	for _, row := range []struct {
		from, user string
		want       int
	}{
		{"2001:db8::1", "ada", 200}, {"2001:db8::2", "ada", 429}, {"2001:db8::2", "bob", 200}, {"2001:db8::3", "eve", 429},
		{"2001:db8:0:1::1", "ada", 200}, {"2001:db8:0:2::1", "", 200}, {"2001:db8:0:3::1", "", 429}, {"2001:db8:1::1", "", 200},
		{"198.51.100.1", "ada", 200}, {"2002:c633:6402::1", "ada", 200}, {"198.51.100.2", "ada", 429},
	} {
		require.Equal(t, row.want, s.get("X-Forwarded-For: "+row.from, "User: "+row.user).status, "%v", row)
	}
}

// The answer names the field that has no text or malformed text, and otherwise the kind: of a
// header, which a proxy may have set, and of text that is not the field's.
func TestTheFieldIsNamed(t *testing.T) {
	email, field := httplimit.Email, `field \"e-mail\"`
	own := func(r *http.Request) (string, error) {
		text, err := httplimit.Form("e-mail")(r)
		return text + "_", err
	}
	for _, row := range []struct {
		kind, part, says string
		source           httplimit.Source
	}{
		{"email", "form " + field, "is required", email(httplimit.Form("e-mail"))},
		{"email", "JSON " + field, "is required", email(httplimit.JSON("e-mail"))},
		{"email", `cookie \"e-mail\"`, "is required", email(httplimit.Cookie("e-mail"))},
		{"email", `field \"email\"`, "is required", email(httplimit.Header("E-Mail"))},
		{"ip+email", "form " + field, "is required", httplimit.Join(byIP, email(httplimit.Form("e-mail")))},
		{"domain", `field \"domain\"`, "must be a domain", httplimit.NewSource("domain", own)},
	} {
		lim := newLimiter(t, newClock(), by(row.kind, "9/d"))
		s := newSite(t, newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{row.source}})(welcome))
		require.Contains(t, s.do("POST", "/", "{}").body, "The "+row.part+" "+row.says)
		require.Contains(t, s.do("POST", "/?e-mail=_", `{"e-mail":"_"}`, "Cookie: e-mail=_", "E-Mail: _").body, "The "+row.part+" must be a")
	}
}

func TestSourcesAreChecked(t *testing.T) {
	lim := newLimiter(t, newClock(), skipped(by("ip", "1/d")), skipped(by("net", "1/d")), skipped(by("ip+user", "1/d")))
	for want, source := range map[string]httplimit.Source{
		`kind "ip": feature: Network has kind "ip", want a kind of your own, such as "net"`:      httplimit.Network("ip", httplimit.ClientIP{}, 24, 48),
		`kind "net": feature: Network has 0 bits for IPv4, want 1 to 32`:                         httplimit.Network("net", httplimit.ClientIP{}, 0, 48),
		`kind "net": ClientIP.Hops is -1, want 1 or more, or 0 for none`:                         httplimit.Network("net", httplimit.ClientIP{Hops: -1}, 24, 48),
		`kind "ip+user": the Value is nil, want a function such as Form("user")`:                 httplimit.Join(httplimit.IP(httplimit.ClientIP{}), httplimit.NewSource("user", nil)),
		`kind "ip+": Join has the zero Source at 1, want one of IP, Network, Email or NewSource`: httplimit.Join(httplimit.IP(httplimit.ClientIP{}), httplimit.Source{}),
		`kind "ip": Join has 1 Source, want two or more`:                                         httplimit.Join(httplimit.IP(httplimit.ClientIP{})),
	} {
		require.EqualError(t, try.Err(httplimit.New(httplimit.Config{Limiter: lim, Event: "signup", Features: []httplimit.Source{source}})), "httplimit: Config.Features[0] has "+want)
	}
	for _, v := range []httplimit.Value{httplimit.Form(""), httplimit.Header(""), httplimit.Header("E-Mail:"), httplimit.Cookie(""), httplimit.Cookie("a b"), httplimit.JSON("")} {
		cfg := httplimit.Config{Limiter: lim, Event: "signup", Features: []httplimit.Source{httplimit.NewSource("ip", v)}}
		require.EqualError(t, try.Err(httplimit.New(cfg)), `httplimit: Config.Features[0] has kind "ip": the Value has an empty or malformed name, want one such as Form("ip")`)
	}
}

func TestOutgoingRefuses(t *testing.T) {
	by := func(kind string) *limiter.Limiter {
		return newLimiter(t, newClock(), limiter.Rule{Event: "pay", Kind: kind, Limits: counter.MustLimits("2/h")})
	}
	none := func(*http.Request) []feature.Feature { return nil }
	for _, row := range []struct {
		lim      *limiter.Limiter
		event    string
		features func(*http.Request) []feature.Feature
		want     string
	}{
		{nil, "pay", none, "httplimit: the Limiter of Outgoing is nil, want one of limiter.New"},
		{by("host"), "", nil, `httplimit: the event of Outgoing is "", but the Limiter has rules for "pay" only`},
		{by("host"), "paid", none, `httplimit: the event of Outgoing is "paid", but the Limiter has rules for "pay" only`},
		{by("user"), "pay", nil, `httplimit: Outgoing without features finds kind "host" only, but event "pay" has a rule by "user"`},
		{by("user"), "pay", none, ""},
		{by("host"), "pay", nil, ""},
	} {
		_, err := httplimit.Outgoing(row.lim, row.event, row.features)
		if row.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, row.want)
		}
	}
}
