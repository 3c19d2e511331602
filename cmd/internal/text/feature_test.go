package text

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The key of a feature gives the feature again, whatever the networks of the limiter.
func TestFeatureOf(t *testing.T) {
	for given, want := range map[string]feature.Feature{
		"user:7":                    feature.New("user", "7"),
		"email:ada@example.org":     feature.Email("ada@example.org"),
		"ip:203.0.113.9":            feature.New("ip", "203.0.113.9"),
		"ip:2001:db8::/48":          feature.New("ip", "2001:db8::"),
		"ip+user:2001:db8::/64,7":   feature.New("ip+user", "2001:db8::,7"),
		"user+ip:a%2Cb,203.0.113.0": feature.New("user+ip", "a%2Cb,203.0.113.0"),
	} {
		f, err := FeatureOf(counter.Key{Event: "signup", Feature: given})
		require.NoError(t, err, given)
		require.Equal(t, want, f, given)
	}
	for given, want := range map[string]string{
		"203.0.113.9": `feature "203.0.113.9": want a kind, a colon and a value`,
		"ip:x":        `feature "ip:x": feature "ip" is not an IP address, want one such as 203.0.113.9 or 2001:db8::1`,
	} {
		require.EqualError(t, try.Err(FeatureOf(counter.Key{Event: "signup", Feature: given})), want, given)
	}
}
