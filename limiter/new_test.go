package limiter_test

import (
	"math"
	"slices"
	"strings"
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
		{"nothing to limit by", "limiter: Config.Rules is empty, want at least one rule", nil},
		{"no event", `limiter: rule "" by "ip": Config.Rules[0].Event is empty, want a name such as "signup"`, []limiter.Rule{{Kind: "ip", Limits: counter.MustLimits("5/h")}}},
		{"no kind", `limiter: rule "signup" by "": Config.Rules[0].Kind is empty, want a name such as "ip"`, []limiter.Rule{by("", "5/h")}},
		{"a colon", `limiter: rule "signup" by "user:id": Config.Rules[0].Kind is "user:id", want printable ASCII without colon`, []limiter.Rule{by("user:id", "5/h")}},
		{"a tab", `limiter: rule "signup" by "user\tid": Config.Rules[0].Kind is "user\tid", want printable ASCII without colon`, []limiter.Rule{by("user\tid", "5/h")}},
		{"a newline", `limiter: rule "signup" by "ip\n": Config.Rules[0].Kind is "ip\n", want printable ASCII without colon`, []limiter.Rule{by("ip\n", "5/h")}},
		{"DEL", `limiter: rule "signup" by "ip\x7f": Config.Rules[0].Kind is "ip\x7f", want printable ASCII without colon`, []limiter.Rule{by("ip\x7f", "5/h")}},
		{"not ASCII", `limiter: rule "signup" by "gerät": Config.Rules[0].Kind is "gerät", want printable ASCII without colon`, []limiter.Rule{by("gerät", "5/h")}},
		{"not even text", `limiter: rule "signup" by "\xff": Config.Rules[0].Kind is "\xff", want printable ASCII without colon`, []limiter.Rule{by("\xff", "5/h")}},
		{"capitals", `limiter: rule "signup" by "IP": Config.Rules[0].Kind is "IP", want "ip"`, []limiter.Rule{by("IP", "5/h")}},
		{"a space", `limiter: rule "signup" by "ip ": Config.Rules[0].Kind is "ip ", want "ip"`, []limiter.Rule{by("ip ", "5/h")}},
		{"a kind of ours in a joined one", `limiter: rule "signup" by "User+Email": Config.Rules[0].Kind is "User+Email", want "User+email"`, []limiter.Rule{by("User+Email", "5/h")}},
		{"another kind in capitals", `limiter: rule "signup" by "user": Config.Rules[0].Else is "IP", want "ip"`, []limiter.Rule{{Event: "signup", Kind: "user", Limits: counter.MustLimits("5/h"), Else: "IP", ElseLimits: counter.MustLimits("5/h")}}},
		{"the second is wrong", `limiter: rule "signup" by "": Config.Rules[1].Kind is empty, want a name such as "ip"`, []limiter.Rule{by("ip", "5/h"), by("", "5/h")}},

		{"no limits", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: `, []limiter.Rule{raw()}},
		{"less than nothing", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit -1/h: `, []limiter.Rule{raw(counter.Limit{Max: -1, Per: time.Hour})}},
		{"too many", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 9007199254740992/h: `, []limiter.Rule{raw(counter.Limit{Max: counter.MaxCount + 1, Per: time.Hour})}},
		{"a short window", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 1/ms: `, []limiter.Rule{raw(counter.Limit{Max: 1, Per: time.Millisecond})}},
		{"a long window", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 1/367d: `, []limiter.Rule{raw(counter.Limit{Max: 1, Per: 367 * 24 * time.Hour})}},
		{"no window", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 1/0s: `, []limiter.Rule{raw(counter.Limit{Max: 1})}},
		{"beyond any", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 1/`, []limiter.Rule{raw(counter.Limit{Max: 1, Per: math.MaxInt64})}},
		{"longer than the ladder keeps", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 10/7d: `, []limiter.Rule{by("ip", "10/h, 10/7d")}},
		{"finer than the ladder", `limiter: rule "signup" by "ip": Config.Rules[0].Limits: counter: limit 2/100ms: `, []limiter.Rule{by("ip", "2/100ms, 10/h")}},

		{"the same twice", `limiter: rule "signup" by "ip": Config.Rules[1].Limits has 5/h, but Config.Rules[0] has 5/h, want one limit for each window`, []limiter.Rule{by("ip", "5/h"), by("ip", "5/h")}},
		{"with another max", `limiter: rule "signup" by "ip": Config.Rules[2].Limits has 6/h, but Config.Rules[0] has 5/h, want one limit for each window`, []limiter.Rule{by("ip", "5/h, 9/d"), by("user", "1/h"), by("ip", "8/m, 6/h")}},
		{"twice, both merged", `limiter: rule "signup" by "ip": Config.Rules[2].Limits has 6/h, but Config.Rules[1] has 5/h, want one limit for each window`, []limiter.Rule{by("ip", "9/d"), by("ip", "5/h"), by("ip", "6/h")}},
		{"two limits of one window", `limiter: rule "signup" by "ip": Config.Rules[0].Limits has 5/h and 6/h, want one limit for each window`, []limiter.Rule{by("ip", "5/h, 9/d, 6/h")}},
		{"written otherwise", `limiter: rule "signup" by "ip": Config.Rules[0].Limits has 5/h and 6/h, want one limit for each window`, []limiter.Rule{by("ip", "5/60m, 6/h")}},
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
	_, err := limiter.New(nil, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h")}})
	require.EqualError(t, err, "limiter: the counter is nil, want a *counter.Counter, which counter.New makes")

	for _, rules := range [][]limiter.Rule{
		{by("user agent", "5/h"), by("~!{%}", "0/s")},
		{windows(1, 30), windows(31, 2)},
		{by("ip", "5/h"), {Event: "log in: \x00", Kind: "ip", Limits: counter.MustLimits("5/h")}},
	} {
		_, err := limiter.New(c, limiter.Config{Rules: rules})
		require.NoError(t, err)
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
