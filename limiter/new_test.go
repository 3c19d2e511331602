package limiter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

func TestNewNamesWhatIsWrong(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	raw := func(l ...counter.Limit) limiter.Rule { return limiter.Rule{Event: "signup", Kind: "ip", Limits: l} }
	windows := func(from, n int) limiter.Rule {
		r := raw()
		for i := range n {
			r.Limits = append(r.Limits, counter.Limit{Max: 9, Per: time.Duration(from+i) * time.Minute})
		}
		return r
	}
	for _, row := range []struct {
		name, want string
		rules      []limiter.Rule
	}{
		{"nothing to limit by", "limiter: Config.Rules is empty, want at least one rule", nil},
		{"no event", `limiter: rule "" by "ip": Config.Rules[0].Event is empty, want a name such as "signup"`, []limiter.Rule{{Kind: "ip", Limits: counter.MustLimits("5/h")}}},
		{"no kind", `limiter: rule "signup" by "": Config.Rules[0].Kind is empty, want a name such as "ip"`, []limiter.Rule{by("", "5/h")}},
		{"a colon", `limiter: rule "signup" by "user:id": Config.Rules[0].Kind is "user:id", want printable ASCII without colon`, []limiter.Rule{by("user:id", "5/h")}},
		{"DEL", `limiter: rule "signup" by "ip\x7f": Config.Rules[0].Kind is "ip\x7f", want printable ASCII without colon`, []limiter.Rule{by("ip\x7f", "5/h")}},
		{"not ASCII", `limiter: rule "signup" by "gerät": Config.Rules[0].Kind is "gerät", want printable ASCII without colon`, []limiter.Rule{by("gerät", "5/h")}},
		{"capitals", `limiter: rule "signup" by "IP": Config.Rules[0].Kind is "IP", want "ip"`, []limiter.Rule{by("IP", "5/h")}},
		{"a space", `limiter: rule "signup" by "ip ": Config.Rules[0].Kind is "ip ", want "ip"`, []limiter.Rule{by("ip ", "5/h")}},
		{"a kind of ours in a joined one", `limiter: rule "signup" by "User+Email": Config.Rules[0].Kind is "User+Email", want "User+email"`, []limiter.Rule{by("User+Email", "5/h")}},
		{"another kind in capitals", `limiter: rule "signup" by "user": Config.Rules[0].Else is "IP", want "ip"`, []limiter.Rule{{Event: "signup", Kind: "user", Limits: counter.MustLimits("5/h"), Else: "IP", ElseLimits: counter.MustLimits("5/h")}}},
		{"the second is wrong", `limiter: rule "signup" by "": Config.Rules[1].Kind is empty, want a name such as "ip"`, []limiter.Rule{by("ip", "5/h"), by("", "5/h")}},

		{"no limits", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: `, []limiter.Rule{raw()}},
		{"longer than the ladder keeps", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 10/7d: `, []limiter.Rule{by("ip", "10/h, 10/7d")}},
		{"finer than the ladder", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 2/100ms: `, []limiter.Rule{by("ip", "2/100ms, 10/h")}},

		{"the same twice", `limiter: rule "signup" by "ip": Config.Rules[1].Limits repeats 5/h of Config.Rules[0], want one limit for each window`, []limiter.Rule{by("ip", "5/h"), by("ip", "5/h")}},
		{"with another max", `limiter: rule "signup" by "ip": Config.Rules[2].Limits has 6/h, but Config.Rules[0] has 5/h, want one limit for each window`, []limiter.Rule{by("ip", "5/h, 9/d"), by("user", "1/h"), by("ip", "8/m, 6/h")}},
		{"two limits of one window", `limiter: rule "signup" by "ip": Config.Rules[0].Limits has 5/h and 6/h, want one limit for each window`, []limiter.Rule{by("ip", "5/h, 9/d, 6/h")}},
		{"two of one window in a rule to be merged", `limiter: rule "signup" by "ip": Config.Rules[1].Limits has 8/d and 9/d, want one limit for each window`, []limiter.Rule{by("ip", "5/h"), by("ip", "8/d, 9/d")}},
		{"open and closed", `limiter: rule "signup" by "ip": Config.Rules[1].OnFailure is fail-open, but Config.Rules[0] has fail-closed, want one policy for an event and kind`,
			[]limiter.Rule{by("ip", "5/h"), onFailure(limiter.FailOpen, by("ip", "9/d"))}},
		{"skip and share", `limiter: rule "signup" by "ip": Config.Rules[1].IfMissing is share, but Config.Rules[0] has skip, want one policy for an event and kind`,
			[]limiter.Rule{ifMissing(limiter.MissingSkip, by("ip", "5/h")), ifMissing(limiter.MissingShare, by("ip", "9/d"))}},
		{"33 limits", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: 33 limits`, []limiter.Rule{windows(1, 33)}},
		{"33 limits, merged", `limiter: rule "signup" by "ip": the Limits of its rules together: counter: 33 limits`, []limiter.Rule{windows(1, 30), windows(31, 3)}},
		{"a share beyond the ladder", `limiter: rule "signup" by "ip": its Percent is 10, but the limits are to be judged by the counts of the enforced rule by "ip", and the soft rule: counter: limit 3/d: tiers: `,
			[]limiter.Rule{on("1s:1h", by("ip", "5/h")), soft(10, by("ip", "3/d"))}},

		{"no such policy", `limiter: rule "signup" by "ip": Config.Rules[0].OnFailure is 3, want FailClosed (0), FailOpen (1) or FailLocal (2)`, []limiter.Rule{onFailure(3, by("ip", "5/h"))}},
		{"nor such", `limiter: rule "signup" by "ip": Config.Rules[0].IfMissing is 3, want MissingDeny (0), MissingSkip (1) or MissingShare (2)`, []limiter.Rule{ifMissing(3, by("ip", "5/h"))}},
	} {
		lim, err := limiter.New(c, limiter.Config{Rules: row.rules})
		if strings.Contains(row.want, "counter: ") { // whose texts are the counter's
			require.ErrorContains(t, err, row.want, row.name)
		} else {
			require.EqualError(t, err, row.want, row.name)
		}
		require.Nil(t, lim, row.name)
	}
	require.EqualError(t, try.Err(limiter.New(nil, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}})), "limiter: the counter is nil, want a *counter.Counter, which counter.New makes")

	for _, rules := range [][]limiter.Rule{
		{by("user agent", "5/h"), by("~!{%}", "0/s")},
		{windows(1, 30), windows(31, 2)},
		{by("ip", "5/h"), {Event: "log in: \x00", Kind: "ip", Limits: counter.MustLimits("5/h")}},
	} {
		try.To(limiter.New(c, limiter.Config{Rules: rules}))(t)
	}
}

// Rules of an event and kind are merged: they cost one demand, and all kinds
// one step.
func TestRulesOfOneKindAreMerged(t *testing.T) {
	store := newCountingStore()
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{
		by("ip", "5/m"), by("user", "3/h"), by("ip", "20/h"), by("ip", "50/d"), by("user", "9/d"),
		{Event: "login", Kind: "ip", Limits: counter.MustLimits("1/s")},
	}})
	require.Equal(t, []limiter.Rule{onDefault(by("ip", "5/m, 20/h, 50/d")), onDefault(by("user", "3/h, 9/d"))}, lim.Rules("signup"))
	require.Empty(t, lim.Rules("logout"))
	require.Equal(t, []string{"login", "signup"}, lim.Events())
	for event, want := range map[string]bool{"login": true, "signup": true, "logout": false, "": false} {
		require.Equal(t, want, lim.Has(event), event)
	}

	require.True(t, allow(t, lim, user("7"), ip("192.0.2.1")).Allowed)
	steps, demands := store.asked()
	require.Equal(t, []int{1, 2}, []int{steps, demands}, "steps, and keys in them")

	v := allow(t, lim, user("7"), ip("192.0.2.1"))
	var limits counter.Limits
	for _, s := range v.All() {
		limits = append(limits, s.Limit)
	}
	require.Equal(t, counter.MustLimits("5/m, 20/h, 50/d, 3/h, 9/d"), limits)
}

// A caller who changes his rules afterwards, or the rules that Rules returns,
// changes nothing.
func TestNewCopiesTheRules(t *testing.T) {
	rules := []limiter.Rule{by("ip", "2/h"), by("ip", "9/d"), by("user", "5/h")}
	cfg := limiter.Config{Rules: slices.Clone(rules)}
	lim := newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), cfg)
	spoil := func(rules []limiter.Rule) {
		for i := range rules {
			for j := range rules[i].Limits {
				rules[i].Limits[j] = counter.Limit{Max: 0, Per: time.Second}
			}
			rules[i] = limiter.Rule{Event: "other", Kind: "other"}
		}
	}
	spoil(cfg.Rules)
	spoil(lim.Rules("signup"))
	require.Equal(t, []limiter.Rule{onDefault(by("ip", "2/h, 9/d")), onDefault(by("user", "5/h"))}, lim.Rules("signup"))
	for _, want := range []bool{true, true, false} {
		require.Equal(t, want, allow(t, lim, ip("192.0.2.1"), user("7")).Allowed)
	}

	// Merging does not write behind the caller's limits either.
	roomy := append(make(counter.Limits, 0, 9), counter.MustLimits("2/h")...)
	newLimiter(t, newCounter(t, memory.New(memory.Config{}), counter.Config{}), limiter.Config{Rules: []limiter.Rule{
		{Event: "signup", Kind: "ip", Limits: roomy}, by("ip", "9/d"),
	}})
	require.Equal(t, counter.Limit{}, roomy[:2][1])
}

// A rule in JSON is text throughout, and what is written is read again.
func TestRulesAreText(t *testing.T) {
	written := []limiter.Rule{
		by("ip", "5/h, 20/d"),
		ifMissing(limiter.MissingSkip, onFailure(limiter.FailOpen, by("user", "5/h"))),
		ifMissing(limiter.MissingShare, onFailure(limiter.FailLocal, by("email", "5/h"))),
	}
	text := try.To(json.Marshal(written))(t)
	require.JSONEq(t, `[
		{"Event": "signup", "Kind": "ip", "Limits": "5/h, 20/d", "OnFailure": "fail-closed", "IfMissing": "deny"},
		{"Event": "signup", "Kind": "user", "Limits": "5/h", "OnFailure": "fail-open", "IfMissing": "skip"},
		{"Event": "signup", "Kind": "email", "Limits": "5/h", "OnFailure": "fail-local", "IfMissing": "share"}
	]`, string(text))
	var read []limiter.Rule
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, written, read)

	for in, want := range map[string]string{
		`{"OnFailure": "FailOpen"}`: `limiter: OnFailure is "FailOpen", want one of "fail-closed", "fail-open" and "fail-local"`,
		`{"OnFailure": ""}`:         `limiter: OnFailure is "", want one of `,
		`{"IfMissing": "allow"}`:    `limiter: IfMissing is "allow", want one of "deny", "skip" and "share"`,
	} {
		rule := written[1]
		require.ErrorContains(t, json.Unmarshal([]byte(in), &rule), want)
		require.Equal(t, written[1], rule, "%s: unchanged", in)
	}
}

// Every number has a String; only the constants have a text to be read again.
func TestConstantsAreText(t *testing.T) {
	counts := map[limiter.Outcome]int{}
	for o := limiter.OutcomeOverLimit; o <= limiter.OutcomeForgotten; o++ {
		counts[o] = int(o)
	}
	text := try.To(json.Marshal(counts))(t)
	require.JSONEq(t, `{"over-limit": 0, "missing": 1, "failed-closed": 2, "admitted": 3, "skipped": 4, "failed-open": 5, "local-over-limit": 6, "local-admitted": 7, "banned": 8, "denied": 9, "exempt": 10, "forgotten": 11}`, string(text))
	var read map[limiter.Outcome]int
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, counts, read)
	require.ErrorContains(t, json.Unmarshal([]byte(`{"late": 1}`), &read), `limiter: Outcome is "late", want one of "over-limit", `)

	require.Equal(t, "OnFailure(3) IfMissing(3) Outcome(12)", limiter.OnFailure(3).String()+" "+limiter.IfMissing(3).String()+" "+limiter.Outcome(12).String())
	for want, wrong := range map[string]any{
		"limiter: OnFailure is 3, want 0 to 2": limiter.OnFailure(3),
		"limiter: IfMissing is 4, want 0 to 2": limiter.IfMissing(4),
		"limiter: Outcome is 12, want 0 to 11": limiter.Outcome(12),
	} {
		require.ErrorContains(t, try.Err(json.Marshal(wrong)), want)
	}
}

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
	c := derivingCounter(t, store, counter.Config{Now: clock.now})
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
		v := allow(t, lim, features...)
		require.Equal(t, want, v.Outcome(), "%v", v)
		require.Equal(t, want, seen.Outcome)
		steps, _ := store.asked()
		require.Equal(t, want == limiter.OutcomeAdmitted || want == limiter.OutcomeOverLimit, steps > 0)
		return v
	}
	v := decided(limiter.OutcomeExempt, ip("192.0.2.1"))
	require.Equal(t, []any{"office", `exempt "signup" by "ip"`}, []any{v.Override.Comment, v.String()})
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
	require.ErrorIs(t, try.Err(lim.Wait(ctx, "signup", ip("192.0.2.129"))), limiter.ErrNever)
	store.asked()
	clock.pass(time.Hour)
	decided(limiter.OutcomeExempt, ip("192.0.2.129"))

	require.Equal(t, "office", try.To(lim.Usage(ctx, "signup", ip("192.0.2.1")))(t)[0].Override.Comment)
}

func TestNewChecksOverrides(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	exempt := func(o limiter.Override) limiter.Override { o.Exempt = true; return o }
	for want, rule := range map[string]limiter.Rule{
		`.Overrides[0] has Value "7", Network "192.0.2.0/24" and Domain "", want one of them`:                                           except(by("ip", "1/h"), exempt(limiter.Override{Value: "7", Network: network("192.0.2.0/24")})),
		`.Overrides[0] of value "192.0.2.1" has Limits "", Exempt true and Denied true, want one of them`:                               except(by("ip", "1/h"), exempt(limiter.Override{Value: "192.0.2.1", Denied: true})),
		`.Overrides[0].Value is "192.0.2", want a value of kind "ip"`:                                                                   except(by("ip", "1/h"), exempt(limiter.Override{Value: "192.0.2"})),
		`.Overrides[0].Network is 192.0.2.1/24, want the first address of the network, 192.0.2.0/24, in a rule by "ip"`:                 except(by("ip", "1/h"), exempt(limiter.Override{Network: network("192.0.2.1/24")})),
		`.Overrides[0].Network is 2002::/16, whose addresses stand for IPv4 addresses and are limited as these, want a network of IPv4`: except(by("ip", "1/h"), exempt(limiter.Override{Network: network("2002::/16")})),
		`.Overrides[0].Network is 192.0.2.0/24, want the first address of the network, 192.0.2.0/24, in a rule by "ip"`:                 except(by("user", "1/h"), exempt(limiter.Override{Network: network("192.0.2.0/24")})),
		`.Overrides[0].Domain is "a b", want the domain of e-mail addresses, in a rule by "email"`:                                      except(by("email", "1/h"), exempt(limiter.Override{Domain: "a b"})),
		`.Overrides[1] is of value "::ffff:192.0.2.1", but an Override before is of value "192.0.2.1", which is the same, want one`:     except(by("ip", "1/h"), exempt(limiter.Override{Value: "192.0.2.1"}), exempt(limiter.Override{Value: "::ffff:192.0.2.1"})),
		`.Overrides[1] is of network 192.0.2.0/24, but an Override before is of network 192.0.2.0/24, which is the same, want one`:      except(by("ip", "1/h"), exempt(limiter.Override{Network: network("192.0.2.0/24")}), exempt(limiter.Override{Network: network("192.0.2.0/24")})),
		`.Overrides[0].Limits: counter: limit 1/2d: `:                                                                                   except(by("ip", "1/h"), limiter.Override{Value: "192.0.2.1", Limits: counter.MustLimits("1/2d")}),
		`.Percent is 10, but .Soft is not set, want a soft rule, which is enforced for the share`:                                       {Event: "signup", Kind: "ip", Limits: counter.MustLimits("1/h"), Percent: 10},
		`.Percent is 101, want 1 to 100, or 0 for none`:                                                                                 soft(101, by("ip", "1/h")),
		`.Ban is 1h, but .Soft is set, want no ban by a rule that denies nobody`:                                                        {Event: "signup", Kind: "ip", Limits: counter.MustLimits("1/h"), Ban: limiter.Bans{time.Hour}, Soft: true},
	} {
		require.ErrorContains(t, try.Err(limiter.New(c, limiter.Config{Rules: []limiter.Rule{rule}})), "Config.Rules[0]"+want)
	}
	require.ErrorContains(t, try.Err(limiter.New(c, limiter.Config{Rules: []limiter.Rule{by("ip", "1/h"), except(by("ip", "9/d"), exempt(limiter.Override{Value: "192.0.2.1"}))}})), "Config.Rules[1].Overrides is set here or in Config.Rules[0], want a single rule")
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
