package limiter_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

func TestNewNamesWhatIsWrong(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	raw := func(l ...counter.Limit) limiter.Rule {
		return limiter.Rule{Event: "signup", Kind: "ip", Limits: l}
	}
	windows := func(from, n int) limiter.Rule {
		r := raw()
		for i := range n {
			r.Limits = append(r.Limits, counter.Limit{Max: 9, Per: time.Duration(from+i) * time.Minute})
		}
		return r
	}
	for _, row := range []struct {
		name  string
		want  string
		rules []limiter.Rule
	}{
		{"nothing to limit by", "limiter: no rules, want at least one", nil},
		{"no event", `limiter: rule "" by "ip": the event is empty`, []limiter.Rule{{Kind: "ip", Limits: counter.MustLimits("5/h")}}},
		{"no kind", `limiter: rule "signup" by "": the kind is empty`, []limiter.Rule{by("", "5/h")}},
		{"a colon", `limiter: rule "signup" by "user:id": want a kind of printable ASCII without colon`, []limiter.Rule{by("user:id", "5/h")}},
		{"a tab", `limiter: rule "signup" by "user\tid": want a kind of printable ASCII`, []limiter.Rule{by("user\tid", "5/h")}},
		{"a newline", `limiter: rule "signup" by "ip\n": want a kind of printable ASCII`, []limiter.Rule{by("ip\n", "5/h")}},
		{"DEL", `limiter: rule "signup" by "ip\x7f": want a kind of printable ASCII`, []limiter.Rule{by("ip\x7f", "5/h")}},
		{"not ASCII", `limiter: rule "signup" by "gerät": want a kind of printable ASCII`, []limiter.Rule{by("gerät", "5/h")}},
		{"not even text", `limiter: rule "signup" by "\xff": want a kind of printable ASCII`, []limiter.Rule{by("\xff", "5/h")}},
		{"the second is wrong", `limiter: rule "signup" by "": the kind is empty`, []limiter.Rule{by("ip", "5/h"), by("", "5/h")}},

		{"no limits", `limiter: rule "signup" by "ip": counter: no limits, want at least one`, []limiter.Rule{raw()}},
		{"less than nothing", `limiter: rule "signup" by "ip": counter: limit -1/h: max -1`, []limiter.Rule{raw(counter.Limit{Max: -1, Per: time.Hour})}},
		{"too many", `limiter: rule "signup" by "ip": counter: limit 9007199254740992/h: max`, []limiter.Rule{raw(counter.Limit{Max: counter.MaxCount + 1, Per: time.Hour})}},
		{"a short window", `limiter: rule "signup" by "ip": counter: limit 1/ms: window 1ms`, []limiter.Rule{raw(counter.Limit{Max: 1, Per: time.Millisecond})}},
		{"a long window", `limiter: rule "signup" by "ip": counter: limit 1/367d: window 367d`, []limiter.Rule{raw(counter.Limit{Max: 1, Per: 367 * 24 * time.Hour})}},
		{"no window", `limiter: rule "signup" by "ip": counter: limit 1/0s: window 0s`, []limiter.Rule{raw(counter.Limit{Max: 1})}},
		{"beyond any", `limiter: rule "signup" by "ip": counter: limit 1/`, []limiter.Rule{raw(counter.Limit{Max: 1, Per: math.MaxInt64})}},
		{"longer than the ladder keeps", `limiter: rule "signup" by "ip": counter: limit 10/7d: tiers: a window of 7d is longer`, []limiter.Rule{by("ip", "10/h, 10/7d")}},
		{"finer than the ladder", `limiter: rule "signup" by "ip": counter: limit 2/100ms: tiers: a window of 100ms would be read in buckets of 1s`, []limiter.Rule{by("ip", "2/100ms, 10/h")}},

		{"the same twice", `limiter: rule "signup" by "ip" is there twice: 5/h and 5/h`, []limiter.Rule{by("ip", "5/h"), by("ip", "5/h")}},
		{"with another max", `limiter: rule "signup" by "ip" is there twice: 5/h and 6/h`, []limiter.Rule{by("ip", "5/h, 9/d"), by("user", "1/h"), by("ip", "8/m, 6/h")}},
		{"two limits of one window", `limiter: rule "signup" by "ip": two limits of one window: 5/h and 6/h`, []limiter.Rule{by("ip", "5/h, 9/d, 6/h")}},
		{"written otherwise", `limiter: rule "signup" by "ip": two limits of one window: 5/h and 6/h`, []limiter.Rule{by("ip", "5/60m, 6/h")}},
		{"two of one window in a rule to be merged", `limiter: rule "signup" by "ip": two limits of one window: 8/d and 9/d`, []limiter.Rule{by("ip", "5/h"), by("ip", "8/d, 9/d")}},
		{"open and closed", `limiter: rule "signup" by "ip" is there twice, with different policies: OnFailure Closed and Open, IfMissing Deny and Deny`,
			[]limiter.Rule{by("ip", "5/h"), onFailure(limiter.Open, by("ip", "9/d"))}},
		{"deny and share", `limiter: rule "signup" by "ip" is there twice, with different policies: OnFailure Closed and Closed, IfMissing Skip and Share`,
			[]limiter.Rule{ifMissing(limiter.Skip, by("ip", "5/h")), ifMissing(limiter.Share, by("ip", "9/d"))}},
		{"33 limits", `limiter: rule "signup" by "ip": counter: 33 limits, want at most 32`, []limiter.Rule{windows(1, 33)}},
		{"33 limits, merged", `limiter: rule "signup" by "ip": counter: 33 limits, want at most 32`, []limiter.Rule{windows(1, 30), windows(31, 3)}},

		{"no such policy", `limiter: rule "signup" by "ip": OnFailure is 2, want Open or Closed`, []limiter.Rule{onFailure(2, by("ip", "5/h"))}},
		{"nor such", `limiter: rule "signup" by "ip": IfMissing is 3, want Deny, Skip or Share`, []limiter.Rule{ifMissing(3, by("ip", "5/h"))}},
	} {
		lim, err := limiter.New(c, limiter.Config{Rules: row.rules})
		require.ErrorContains(t, err, row.want, row.name)
		require.Nil(t, lim, row.name)
	}
	_, err := limiter.New(nil, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}})
	require.EqualError(t, err, "limiter: the counter is nil")

	for _, rules := range [][]limiter.Rule{
		{by("user agent", "5/h"), by("~!{%}", "0/s")},
		{windows(1, 30), windows(31, 2)},
		{by("ip", "5/h"), {Event: "log in: \x00", Kind: "ip", Limits: counter.MustLimits("5/h")}},
	} {
		_, err := limiter.New(c, limiter.Config{Rules: rules})
		require.NoError(t, err)
	}
}

func TestNewNamesTheBitsThatAreWrong(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	for _, row := range []struct {
		v4, v6 int
		want   []string
	}{
		{0, 0, nil},
		{1, 1, nil},
		{32, 128, nil},
		{33, 0, []string{"limiter: IPv4Bits is 33, want 1 to 32"}},
		{-1, 0, []string{"limiter: IPv4Bits is -1, want 1 to 32"}},
		{0, 129, []string{"limiter: IPv6Bits is 129, want 1 to 128"}},
		{64, -64, []string{"limiter: IPv4Bits is 64, want 1 to 32", "limiter: IPv6Bits is -64, want 1 to 128"}},
	} {
		_, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}, IPv4Bits: row.v4, IPv6Bits: row.v6})
		if row.want == nil {
			require.NoError(t, err, "%+v", row)
		}
		for _, want := range row.want {
			require.ErrorContains(t, err, want, "%+v", row)
		}
	}
}

// Rules of one event and kind are one: they cost one demand, and all kinds one
// step.
func TestRulesOfOneKindAreMerged(t *testing.T) {
	store := newCountingStore()
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{
		by("ip", "5/m"), by("user", "3/h"), by("ip", "20/h"), by("ip", "50/d"), by("user", "9/d"),
		{Event: "login", Kind: "ip", Limits: counter.MustLimits("1/s")},
	}})
	require.Equal(t, []limiter.Rule{by("ip", "5/m, 20/h, 50/d"), by("user", "3/h, 9/d")}, lim.Rules("signup"))
	require.Empty(t, lim.Rules("logout"))

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

// What the caller does to his rules afterwards, or to those that he is shown,
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
	require.Equal(t, []limiter.Rule{by("ip", "2/h, 9/d"), by("user", "5/h")}, lim.Rules("signup"))
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

// The names of what is not there are no reason to panic.
func TestNamesOfPolicies(t *testing.T) {
	require.Equal(t, "Closed Open OnFailure(2)", limiter.Closed.String()+" "+limiter.Open.String()+" "+limiter.OnFailure(2).String())
	require.Equal(t, "Deny Skip Share IfMissing(3)",
		limiter.Deny.String()+" "+limiter.Skip.String()+" "+limiter.Share.String()+" "+limiter.IfMissing(3).String())
	require.Equal(t, `"signup" by "ip"`, by("ip", "5/h").String())
}
