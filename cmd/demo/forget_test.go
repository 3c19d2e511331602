package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// The hits of a limiter are found however the feature is typed, are forgotten,
// and leave a marker and nothing else when the key is erased.
func TestForget(t *testing.T) {
	for kind, url := range storesToTry(t) {
		t.Run(kind, func(t *testing.T) {
			name, err := stores.Parse(url)
			require.NoError(t, err)
			store, err := stores.Open(name, 5*time.Second)
			require.NoError(t, err)
			defer store.Close()
			c, err := counter.New(store.Store, counter.Config{Patience: 5 * time.Second})
			require.NoError(t, err)
			lim, err := limiter.New(c, limiter.Config{EmailIgnoreTags: true, Rules: []limiter.Rule{
				{Event: "signup", Kind: "email", Limits: counter.MustLimits("2/h"), IfMissing: limiter.MissingSkip},
				{Event: "signup", Kind: "user", Limits: counter.MustLimits("2/h"), IfMissing: limiter.MissingSkip},
			}})
			require.NoError(t, err)
			for range 2 {
				v, err := lim.Allow(t.Context(), "signup", limiter.Email("ada@example.org"), limiter.NewFeature("user", "Ada"))
				require.NoError(t, err)
				require.True(t, v.Allowed)
			}
			demo := func(args ...string) string {
				cmd, stderr := command(t, args...)
				cmd.Env = append(cmd.Env, "ABACUS_STORE="+url)
				out, err := cmd.Output()
				require.NoError(t, err, stderr)
				return string(out)
			}
			require.Contains(t, demo("inspect", "--email-ignore-tags", "--limits", "2/h", "signup", "email:Ada+x@Example.org"), "of 2/h: full")
			require.Contains(t, demo("inspect", "--as-is", "signup", "email:Ada@example.org"), "Nothing is counted")
			require.Equal(t, "store   "+url+"\nforgot  signup of email:ada@example.org: 2 hits\nforgot  signup of user:ada: nothing was counted\n",
				demo("forget", "--limits", "2/h", "signup", "email:Ada@Example.org", "user:ada"))
			usage, err := lim.Usage(t.Context(), "signup", limiter.Email("ada@example.org"), limiter.NewFeature("user", "Ada"))
			require.NoError(t, err)
			require.Zero(t, usage[0].Total.High)
			require.EqualValues(t, 2, usage[1].Total.High)
			require.Equal(t, "store   "+url+"\nerased  signup of user:Ada: 2 hits\nerased  signup of email:ada@example.org: nothing was counted\n",
				demo("forget", "--limits", "2/h", "--erase", "signup", "user:Ada", "email:ada@example.org"))
			n, err := stored(url)
			require.NoError(t, err)
			require.EqualValues(t, map[string]int{"redis": 6, "memcached": 6}[kind], n, "the markers of three keys and of their soft keys")
			require.Contains(t, demo("forget", "--limits", "2/h", "signup", "user:Ada"), "nothing was counted\n\nLadder, prefix and secret")
		})
	}
}

// Addresses are brought to the form of a limiter, networks and what has no kind stay,
// and text that is no address is an error.
func TestKeys(t *testing.T) {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	require.NoError(t, err)
	for _, row := range []struct{ given, want string }{
		{"email: Ada@Example.ORG", "email:ada@example.org"},
		{"ip:2001:db8::1", "ip:2001:db8::/64"},
		{"ip:2001:db8::/64", "ip:2001:db8::/64"},
		{"ip:::ffff:203.0.113.9", "ip:203.0.113.9"},
		{"ip:", "ip:"},
		{"203.0.113.9", "203.0.113.9"},
		{"user:Ada", "user:Ada"},
		{"user:", "user:"},
		{"net:203.0.113.0/24", "net:203.0.113.0/24"},
		{"domain:ada@Bücher.example", "domain:xn--bcher-kva.example"},
		{"ip+email:2001:db8::1,Ada.X+1@googlemail.com", "ip+email:2001:db8::/64,adax@gmail.com"},
		{"ip+email:2001:db8::/64,adax@gmail.com", "ip+email:2001:db8::/64,adax@gmail.com"},
		{"user+user:a%2cb,100%25", "user+user:a%2Cb,100%25"},
		{"email:ada", `limiter: feature "email" is not an e-mail address, want local-part@domain, in "email:ada", or --as-is`},
		{"ip:203.0.113", `limiter: feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1, in "ip:203.0.113", or --as-is`},
		{"ip:2001:db8::1/64", `limiter: feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1, in "ip:2001:db8::1/64", or --as-is`},
		{"ip:2001:db8::/48", `limiter: feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1, in "ip:2001:db8::/48", or --as-is`},
		{"ip+user:203.0.113.9", `limiter: feature "ip+user" has 1 value, want 2 with commas between, and %2C for a comma within, in "ip+user:203.0.113.9", or --as-is`},
	} {
		key, err := (&keys{Program: program{IPv6Bits: 64, Gmail: true}}).key(c, "signup", row.given)
		if err != nil {
			require.ErrorAs(t, err, new(usageError))
			require.EqualError(t, err, row.want)
			continue
		}
		require.Equal(t, counter.Key{Event: "signup", Feature: row.want}, key)
		key, err = (&keys{AsIs: true}).key(c, "signup", row.given)
		require.NoError(t, err)
		require.Equal(t, row.given, key.Feature)
	}
}
