package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// manyRules are n rules of an event, each by a kind of its own, none of which denies a
// call without a feature.
func manyRules(n int) []limiter.Rule {
	rules := make([]limiter.Rule, n)
	for i := range rules {
		rules[i] = ifMissing(limiter.MissingSkip, by(fmt.Sprintf("kind %04d", i), "1000000000/m, 1000000000/h"))
	}
	return rules
}

// A call meets the rules by its own kinds, however many rules its event has, and New
// compares rules of the same kind only.
func TestManyRulesAreFoundByKind(t *testing.T) {
	rules := manyRules(2000)
	rules[7].Else, rules[7].ElseLimits = "other", counter.MustLimits("5/h")
	for _, kind := range []string{"kind 0003", "kind 0009", "other"} {
		soft := ifMissing(limiter.MissingSkip, by(kind, "5/h"))
		soft.Soft = true
		rules = append(rules, soft)
	}
	rules = append(rules, ifMissing(limiter.MissingSkip, by("kind 0003", "9/d")), by("user", "5/h"), ifMissing(limiter.MissingShare, by("ip", "5/h")))
	lim := onMemory(t, rules...)
	f := func(kind string) feature.Feature { return feature.New(kind, "x") }
	for _, row := range []struct {
		features []feature.Feature
		want     int // the two rules that decide about a call without a feature are always met
	}{
		{nil, 2},
		{featuresOf(f("nothing")), 2},
		{featuresOf(f("kind 0004")), 3},
		{featuresOf(f("kind 0003")), 4},
		{featuresOf(f("other")), 4},
		{featuresOf(f("other"), f("kind 0007"), f("user"), f("kind 0003"), f("kind 0003")), 6},
	} {
		require.Equal(t, row.want, limiter.Steps(lim, "signup", row.features...), "%v", row.features)
	}
	require.Equal(t, 3, limiter.Steps(onMemory(t, manyRules(3)...), "signup"), "few rules are asked one by one")

	require.Equal(t, 1, limiter.Comparisons(rules), "of the two enforced rules by kind 0003")
	require.Zero(t, limiter.Comparisons(manyRules(10_000)))
}

// Many rules decide as few: rules by kinds that no call has change nothing, wherever
// they stand.
func TestManyRulesDecideAsFew(t *testing.T) {
	r := random(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 300 {
		few := randomRules(r)
		many := manyRules(20)
		for _, rule := range few { // in the same order, among the others
			many = append(many, manyRules(20 + len(many))[len(many)], rule)
		}
		var lims [2]*limiter.Limiter
		var errs [2]error
		for i, rules := range [][]limiter.Rule{few, many} {
			c := newCounter(t, memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
			lims[i], errs[i] = limiter.New(c, limiter.Config{Rules: rules})
		}
		if errs[0] != nil {
			require.Error(t, errs[1], "%v", few)
			continue
		}
		require.NoError(t, errs[1], "%v", few)
		for range 30 {
			var features []feature.Feature
			for range r.IntN(4) {
				kind := fewKinds[r.IntN(len(fewKinds))]
				if features = append(features, feature.New(kind, fmt.Sprint(r.IntN(3)))); r.IntN(9) == 0 {
					features[len(features)-1] = feature.Unknown(kind)
				}
			}
			n := r.Int64N(3) + 1
			want := try.To(lims[0].AllowN(ctx, "signup", n, features...))(t)
			have := try.To(lims[1].AllowN(ctx, "signup", n, features...))(t)
			require.Equal(t, says(want), says(have), "%v of %v", features, few)
			now = now.Add(time.Second)
		}
	}
}

// says is all that a Verdict says.
func says(v limiter.Verdict) string {
	s := fmt.Sprintf("%s; %v; missing %q; soft %v", v, v.All(), v.Missing, v.Soft)
	if v.Override != nil {
		s += "; " + v.Override.String()
	}
	return s
}

var fewKinds = []string{"user", "card", "tenant", "device", "token"}

// randomRules are at most eight rules by the kinds of fewKinds, which may contradict
// each other.
func randomRules(r *rand.Rand) []limiter.Rule {
	rules := make([]limiter.Rule, 1+r.IntN(5))
	for i := range rules {
		kinds := r.Perm(len(fewKinds))
		rule := &rules[i]
		*rule = by(fewKinds[kinds[0]], fmt.Sprintf("%d/%dm", 1+r.IntN(4), 1+i))
		rule.IfMissing = limiter.IfMissing(r.IntN(3))
		if r.IntN(4) == 0 {
			rule.Else, rule.ElseLimits = fewKinds[kinds[1]], counter.MustLimits("3/h")
		}
		if rule.Soft = r.IntN(3) == 0; rule.Soft {
			rule.Percent = r.IntN(2) * (1 + r.IntN(100))
		}
		if r.IntN(3) == 0 {
			rule.Overrides = []limiter.Override{{Value: "0", Denied: true}, {Value: "1", Exempt: true}}
		}
	}
	return rules
}

// BenchmarkAllowByManyRules is an admitted decision by one rule of an event with few
// rules and with many.
func BenchmarkAllowByManyRules(b *testing.B) {
	for _, rules := range []int{3, 2000} {
		b.Run(fmt.Sprintf("%d rules", rules), func(b *testing.B) {
			lim := onMemory(b, manyRules(rules)...)
			f := feature.New("kind 0001", "7")
			b.ReportAllocs()
			for b.Loop() {
				if v, err := lim.Allow(ctx, "signup", f); err != nil || !v.Allowed {
					b.Fatal(v, err)
				}
			}
		})
	}
}

// BenchmarkNew makes a Limiter with many rules of one event, and of as many events.
func BenchmarkNew(b *testing.B) {
	for _, n := range []int{2000, 10_000} {
		kinds, events := manyRules(n), manyRules(n)
		for i := range events {
			events[i].Event, events[i].Kind = events[i].Kind, "user"
		}
		for name, rules := range map[string][]limiter.Rule{"kinds": kinds, "events": events} {
			b.Run(fmt.Sprintf("%d %s", n, name), func(b *testing.B) {
				c := derivingCounter(b, memory.New(memory.Config{}), counter.Config{})
				b.ReportAllocs()
				for b.Loop() {
					_, err := limiter.New(c, limiter.Config{Rules: rules})
					require.NoError(b, err)
				}
			})
		}
	}
}

// BenchmarkAllow is an admitted decision on the embedded store by two features
// with three limits each, making the features included: random order over many
// visitors, every hit counted, which it checks.
func BenchmarkAllow(b *testing.B) {
	for _, visitors := range []int{1, 1_000, 100_000} {
		b.Run(fmt.Sprintf("%d visitors", visitors), func(b *testing.B) {
			store := memory.New(memory.Config{})
			c := derivingCounter(b, store, counter.Config{})
			limits := counter.MustLimits("1000000000/m, 1000000000/h, 1000000000/d")
			lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
				{Event: "signup", Kind: "ip", Limits: limits},
				{Event: "signup", Kind: "email", Limits: limits},
			}})
			require.NoError(b, err)
			addrs, mails := make([]netip.Addr, visitors), make([]string, visitors)
			for i := range visitors {
				addrs[i] = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
				mails[i] = fmt.Sprintf("Visitor.%d@example.org", i)
			}
			order := make([]int32, 1<<20)
			for i := range order {
				order[i] = int32(rand.IntN(visitors))
			}
			ctx, n := context.Background(), int64(0)
			for i := range visitors {
				_, err := lim.Allow(ctx, "signup", feature.IP(addrs[i]), feature.Email(mails[i]))
				require.NoError(b, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				i := order[n&(1<<20-1)]
				v, err := lim.Allow(ctx, "signup", feature.IP(addrs[i]), feature.Email(mails[i]))
				if err != nil || !v.Allowed {
					b.Fatal(v, err)
				}
				n++
			}
			b.StopTimer()
			var hits int64
			for i := range visitors {
				v, err := lim.Peek(ctx, "signup", 1, feature.IP(addrs[i]))
				require.NoError(b, err)
				require.Equal(b, "email", v.Missing)
				count, err := c.Count(ctx, counter.Key{Event: "signup", Feature: "ip:" + addrs[i].String()}, limits[2].Per)
				require.NoError(b, err)
				hits += count.High
			}
			require.Equal(b, n+int64(visitors), hits)
		})
	}
}
