package limiter_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

func network(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func except(r limiter.Rule, overrides ...limiter.Override) limiter.Rule {
	r.Overrides = overrides
	return r
}

// A domain of a provider is all domains of the provider, as in the keys.
func TestOverrideOfAProvider(t *testing.T) {
	lim := newLimiter(t, localCounter(t), limiter.Config{Forms: feature.Forms{EmailProviders: []feature.EmailProvider{feature.Gmail()}}, Rules: []limiter.Rule{
		except(by("email", "1/h"), limiter.Override{Domain: "googlemail.com", Denied: true})}})
	for _, mail := range []string{"ada@googlemail.com", "a.da@GMAIL.com"} {
		require.Equal(t, limiter.OutcomeDenied, allow(t, lim, feature.Email(mail)).Outcome(), mail)
	}
	require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, feature.Email("ada@example.org")).Outcome())
}

// Overrides are exceptions by value, network and mail domain, the most particular
// first, until they end. Exempt and denied features are decided without the store.
func TestOverrides(t *testing.T) {
	clock, store := newClock(), newCountingStore()
	more := counter.MustLimits("2/h")
	var seen limiter.Decision
	c, err := counter.New(store, counter.Config{Now: clock.now})
	require.NoError(t, err)
	lim := newLimiter(t, c, limiter.Config{Observe: func(d limiter.Decision) { seen = d }, Rules: []limiter.Rule{
		except(by("ip", "1/h"),
			limiter.Override{Network: network("192.0.2.0/24"), Exempt: true, Comment: "office"},
			limiter.Override{Network: network("192.0.2.128/25"), Denied: true, Until: clock.now().Add(time.Hour)},
			limiter.Override{Value: "::ffff:192.0.2.130", Limits: more},
			limiter.Override{Network: network("2001:db8::/32"), Denied: true}),
		except(ifMissing(limiter.MissingSkip, by("email", "1/h")),
			limiter.Override{Domain: "Example.ORG", Denied: true},
			limiter.Override{Value: "Ada@example.org", Exempt: true}),
	}})
	decided := func(want limiter.Outcome, features ...feature.Feature) limiter.Verdict {
		t.Helper()
		v := allow(t, lim, features...)
		require.Equal(t, want, v.Outcome(), "%v", v)
		require.Equal(t, want, seen.Outcome)
		steps, _ := store.asked()
		require.Equal(t, want == limiter.OutcomeAdmitted || want == limiter.OutcomeOverLimit, steps > 0)
		return v
	}
	v := decided(limiter.OutcomeExempt, ip("192.0.2.1"))
	require.Equal(t, "office", v.Override.Comment)
	require.Equal(t, `exempt "signup" by "ip"`, v.String())
	v = decided(limiter.OutcomeDenied, ip("192.0.2.129"))
	require.Equal(t, "ip", seen.Kind)
	require.InDelta(t, time.Hour, v.RetryAfter, float64(time.Minute))
	require.Equal(t, counter.Never, decided(limiter.OutcomeDenied, ip("2001:db8::1")).RetryAfter)
	decided(limiter.OutcomeDenied, ip("192.0.2.1"), feature.Email("eve@EXAMPLE.org"))
	decided(limiter.OutcomeExempt, ip("192.0.2.1"), feature.Email("ADA@example.org"))
	decided(limiter.OutcomeAdmitted, ip("192.0.2.1"), feature.Email("eve@mail.example.org"))
	decided(limiter.OutcomeOverLimit, ip("192.0.2.1"), feature.Email("eve@mail.example.org"))
	decided(limiter.OutcomeAdmitted, limiter.Under(ip("192.0.2.130"), counter.MustLimits("9/h")))
	require.Equal(t, more[0], decided(limiter.OutcomeAdmitted, ip("192.0.2.130")).Limit)
	decided(limiter.OutcomeOverLimit, ip("192.0.2.130"))
	_, err = lim.Wait(ctx, "signup", ip("192.0.2.129"))
	require.ErrorIs(t, err, limiter.ErrNever)
	store.asked()
	clock.pass(time.Hour)
	decided(limiter.OutcomeExempt, ip("192.0.2.129"))

	of, err := lim.Usage(ctx, "signup", ip("192.0.2.1"))
	require.NoError(t, err)
	require.Equal(t, "office", of[0].Override.Comment)
}

func TestNewChecksOverrides(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	exempt := func(o limiter.Override) limiter.Override { o.Exempt = true; return o }
	for want, rule := range map[string]limiter.Rule{
		`.Overrides[0] has Value "7", Network "192.0.2.0/24" and Domain "", want one of them`:                                                       except(by("ip", "1/h"), exempt(limiter.Override{Value: "7", Network: network("192.0.2.0/24")})),
		`.Overrides[0] of value "192.0.2.1" has Limits "", Exempt true and Denied true, want one of them`:                                           except(by("ip", "1/h"), exempt(limiter.Override{Value: "192.0.2.1", Denied: true})),
		`.Overrides[0].Value is "192.0.2", want a value of kind "ip"`:                                                                               except(by("ip", "1/h"), exempt(limiter.Override{Value: "192.0.2"})),
		`.Overrides[0].Network is 192.0.2.1/24, want the first address of the network, 192.0.2.0/24, in a rule by "ip"`:                             except(by("ip", "1/h"), exempt(limiter.Override{Network: network("192.0.2.1/24")})),
		`.Overrides[0].Network is 2002::/16, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4`:             except(by("ip", "1/h"), exempt(limiter.Override{Network: network("2002::/16")})),
		`.Overrides[0].Network is 64:ff9b::/96, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4`:          except(by("ip", "1/h"), exempt(limiter.Override{Network: network("64:ff9b::/96")})),
		`.Overrides[0].Network is 64:ff9b:1::/48, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4`:        except(by("ip", "1/h"), exempt(limiter.Override{Network: network("64:ff9b:1::/48")})),
		`.Overrides[0].Network is 2001::/32, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4`:             except(by("ip", "1/h"), exempt(limiter.Override{Network: network("2001::/32")})),
		`.Overrides[0].Network is 2002:c000:204::/48, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4`:    except(by("ip", "1/h"), exempt(limiter.Override{Network: network("2002:c000:204::/48")})),
		`.Overrides[0].Network is 64:ff9b::c000:200/120, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4`: except(by("ip", "1/h"), exempt(limiter.Override{Network: network("64:ff9b::c000:200/120")})),
		`.Overrides[0].Network is 192.0.2.0/24, want the first address of the network, 192.0.2.0/24, in a rule by "ip"`:                             except(by("user", "1/h"), exempt(limiter.Override{Network: network("192.0.2.0/24")})),
		`.Overrides[0].Domain is "a b", want the domain of e-mail addresses, in a rule by "email"`:                                                  except(by("email", "1/h"), exempt(limiter.Override{Domain: "a b"})),
		`.Overrides[1] is of value "::ffff:192.0.2.1", but an Override before is of value "192.0.2.1", which is the same, want one`:                 except(by("ip", "1/h"), exempt(limiter.Override{Value: "192.0.2.1"}), exempt(limiter.Override{Value: "::ffff:192.0.2.1"})),
		`.Overrides[1] is of network 192.0.2.0/24, but an Override before is of network 192.0.2.0/24, which is the same, want one`:                  except(by("ip", "1/h"), exempt(limiter.Override{Network: network("192.0.2.0/24")}), exempt(limiter.Override{Network: network("192.0.2.0/24")})),
		`.Overrides[0].Limits: counter: limit 1/2d: `:                                                                                               except(by("ip", "1/h"), limiter.Override{Value: "192.0.2.1", Limits: counter.MustLimits("1/2d")}),
		`.Percent is 10, but .Soft is not set, want a soft rule, which is enforced for the share`:                                                   {Event: "signup", Kind: "ip", Limits: counter.MustLimits("1/h"), Percent: 10},
		`.Percent is 101, want 1 to 100, or 0 for none`:                                                                                             soft(101, by("ip", "1/h")),
		`.Ban is 1h0m0s, but .Soft is set, want no ban by a rule that denies nobody`:                                                                {Event: "signup", Kind: "ip", Limits: counter.MustLimits("1/h"), Ban: time.Hour, Soft: true},
	} {
		_, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{rule}})
		require.ErrorContains(t, err, "Config.Rules[0]"+want)
	}
	_, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{by("ip", "1/h"), except(by("ip", "9/d"), exempt(limiter.Override{Value: "192.0.2.1"}))}})
	require.ErrorContains(t, err, "Config.Rules[1].Overrides is set here or in Config.Rules[0], want a single rule")
}

// BenchmarkOverrides is a decision that 10,000 overrides do not change, beside the
// same decision without overrides.
func BenchmarkOverrides(b *testing.B) {
	for _, overrides := range []int{0, 10_000} {
		b.Run(fmt.Sprint(overrides), func(b *testing.B) {
			rule := by("ip", "1000000000/h")
			for i := range overrides {
				o := limiter.Override{Exempt: true, Value: fmt.Sprintf("10.1.%d.%d", i>>8, i&255)}
				if i%2 == 0 {
					o = limiter.Override{Exempt: true, Network: network(fmt.Sprintf("10.2.%d.%d/%d", i>>8, i&255, 31))}
				}
				rule.Overrides = append(rule.Overrides, o)
			}
			lim := onMemory(b, rule)
			addr := ip("192.0.2.1")
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if v, err := lim.Allow(ctx, "signup", addr); err != nil || v.Outcome() != limiter.OutcomeAdmitted {
					b.Fatal(v, err)
				}
			}
		})
	}
}

// A Network is no address: all of its addresses are decided alike.
func TestOverrideOfANetworkIsOfAddresses(t *testing.T) {
	rule := except(by("net", "1/h"), limiter.Override{Network: network("192.0.2.0/25"), Denied: true})
	rule.Else, rule.ElseLimits = feature.KindIP, rule.Limits
	lim := onMemory(t, rule)
	addr := netip.MustParseAddr("192.0.2.1")
	require.Equal(t, limiter.OutcomeAdmitted, allow(t, lim, feature.Network("net", addr, 24, 48)).Outcome())
	require.Equal(t, limiter.OutcomeDenied, allow(t, lim, feature.IP(addr)).Outcome())
}
