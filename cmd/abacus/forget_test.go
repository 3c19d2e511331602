package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// Addresses are brought to the form of a limiter, networks in that form stay, and text
// that is no address is an error.
func TestFeatures(t *testing.T) {
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(t)
	p := program{IPv6Bits: 64, Gmail: true}
	cfg := p.limiter()
	for _, kind := range []string{"ip", "email", "domain", "user", "net", "ip+email", "user+user"} {
		cfg.Rules = append(cfg.Rules, limiter.Rule{Event: "signup", Kind: kind, Limits: counter.MustLimits("9/d")})
	}
	lim := try.To(limiter.New(c, cfg))(t)
	for _, row := range []struct{ given, want string }{
		{"email: Ada@Example.ORG", "email:ada@example.org"},
		{"ip:2001:db8::1", "ip:2001:db8::/64"},
		{"ip:2001:db8::/64", "ip:2001:db8::/64"},
		{"ip:::ffff:203.0.113.9", "ip:203.0.113.9"},
		{"user:Ada", "user:Ada"},
		{"net:203.0.113.0/24", "net:203.0.113.0/24"},
		{"domain:ada@Bücher.example", "domain:xn--bcher-kva.example"},
		{"ip+email:2001:db8::1,Ada.X+1@googlemail.com", "ip+email:2001:db8::/64,adax@gmail.com"},
		{"ip+email:2001:db8::/64,adax@gmail.com", "ip+email:2001:db8::/64,adax@gmail.com"},
		{"user+user:a%2cb,100%25", "user+user:a%2Cb,100%25"},
		{"203.0.113.9", `feature "203.0.113.9": want a kind, a colon and a value, such as email:ada@example.org`},
		{"ip:", `feature "ip:": want a kind, a colon and a value, such as email:ada@example.org`},
		{"email:ada", `feature "email" is not an e-mail address, want local-part@domain, in "email:ada"`},
		{"ip:203.0.113", `feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1, in "ip:203.0.113"`},
		{"ip:2001:db8::1/64", `feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1, in "ip:2001:db8::1/64"`},
		{"ip:2001:db8::/48", `feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1, in "ip:2001:db8::/48"`},
		{"ip+user:203.0.113.9", `feature "ip+user" has 1 value, want 2 with commas between, and %2C for a comma within, in "ip+user:203.0.113.9"`},
	} {
		f, err := p.feature(row.given)
		if err != nil {
			var exit cli.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, cli.ExitUsage, exit.Status)
			require.EqualError(t, err, row.want)
			continue
		}
		require.Equal(t, row.want, try.To(lim.Usage(t.Context(), "signup", f))(t)[0].Key.Feature)
	}
}
