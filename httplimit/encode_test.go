package httplimit

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// The field RateLimit is written without httpsfv, and every byte is as httpsfv
// writes the same list.
func TestRateLimitIsAsTheLibraryWritesIt(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	kinds := []string{"ip", "e-mail", `odd \ "kind"`, "~", " "}
	numbers := []int64{0, 1, 9, 10, 99, 86_400, maxInteger - 1, maxInteger, maxInteger + 1, math.MaxInt64}
	number := func() int64 {
		if rng.IntN(2) == 0 {
			return numbers[rng.IntN(len(numbers))]
		}
		return rng.Int64N(1 << (1 + rng.IntN(62)))
	}
	for range 2000 {
		var policies []policy
		for _, kind := range kinds[:1+rng.IntN(len(kinds))] {
			for _, limit := range counter.MustLimits("5/500ms, 7/h, 100/d")[:1+rng.IntN(3)] {
				policies = append(policies, policy{kind: kind, limit: limit})
			}
		}
		f := (&middleware{}).newFields(policies, nil)
		var shown []balance
		var list httpsfv.List
		for i := range f.policies {
			if rng.IntN(3) == 0 {
				continue
			}
			b := balance{&f.policies[i], number(), time.Duration(rng.Int64N(int64(60 * 24 * time.Hour)))}
			shown = append(shown, b)
			item := httpsfv.NewItem(b.policy.name)
			item.Params.Add("r", min(b.remaining, maxInteger))
			item.Params.Add("t", int64(math.Ceil(b.until.Seconds())))
			list = append(list, item)
		}
		want := ""
		if len(list) > 0 {
			var err error
			want, err = httpsfv.Marshal(list)
			require.NoError(t, err)
		}
		require.Equal(t, want, string(appendRateLimit(nil, shown)))
	}
}

// The values of an answer share an allocation. A handler that appends to a field,
// or changes a value in place, changes nothing else: neither another field nor
// another answer.
func TestFieldsOfAnAnswerAreItsOwn(t *testing.T) {
	m := &middleware{Config: Config{Limiter: limiterBy(t, rule("9/h, 100/d")), Event: "signup", Show: []string{"ip"}}}
	f := m.derive(1)
	v := limiter.Verdict{}
	v.RetryAfter = time.Second
	states := []counter.State{{Key: counter.Key{Event: "signup", Feature: "ip:192.0.2.7"}, Limit: counter.MustLimits("9/h")[0], RetryAfter: time.Second}}
	want := http.Header{
		"Retry-After":      {"1"},
		"Ratelimit-Policy": {`"9/h";q=9;w=3600, "100/d";q=100;w=86400`},
		"Ratelimit":        {`"9/h";r=0;t=1`},
		"Content-Type":     {"application/problem+json"},
		"Cache-Control":    {"no-store"},
	}
	for range 2 {
		for _, room := range []int{0, 1, 2, 5} {
			h, l := http.Header{}, make(lines, 0, room)
			f.write(&l, h, &m.Config, &v, states)
			l.set(h, "Content-Type", "application/problem+json")
			l.set(h, "Cache-Control", "no-store")
			require.Equal(t, want, h)
			for name := range want {
				changed := h.Clone()
				changed[name] = append([]string{"changed"}, "added")
				h[name][0] = "changed"
				h.Add(name, "added")
				require.Equal(t, changed, h, name)
				h[name] = want[name]
			}
		}
	}
	h := http.Header{"Ratelimit": {`"outer";r=1`}}
	f.write(&lines{}, h, &m.Config, &v, states)
	require.Equal(t, []string{`"outer";r=1`, `"9/h";r=0;t=1`}, h["Ratelimit"], "an outer middleware has fields of its own")
}

// Whatever follows from the rules is derived again, once, when they are replaced. A
// soft rule is no policy, and a limit of an Override is one of the calls.
func TestRulesOfAnotherGeneration(t *testing.T) {
	m := &middleware{Config: Config{Limiter: limiterBy(t, rule("9/h")), Event: "signup"}}
	first := m.derive(1)
	m.fields.Store(first)
	require.Same(t, first, m.fieldsNow())
	soft, vip := rule("1/h"), rule("5/h, 7/d")
	soft.Soft = true
	require.NoError(t, m.Limiter.Replace(vip, soft))
	second := m.fieldsNow()
	require.Equal(t, `"5/h";q=5;w=3600, "7/d";q=7;w=86400`, second.policy)
	require.True(t, first.single)
	require.False(t, second.single)
	require.Same(t, second, m.fieldsNow())
	require.Nil(t, second.byCall)
	vip.Overrides = []limiter.Override{{Value: "192.0.2.1", Limits: counter.MustLimits("90/h")}}
	require.NoError(t, m.Limiter.Replace(vip))
	require.NotNil(t, m.fieldsNow().byCall)
	soft.Percent = 10
	require.NoError(t, m.Limiter.Replace(rule("5/h"), soft))
	require.NotNil(t, m.fieldsNow().byCall)
}

func rule(limits string) limiter.Rule {
	return limiter.Rule{Event: "signup", Kind: "ip", Limits: counter.MustLimits(limits)}
}

func limiterBy(t *testing.T, rules ...limiter.Rule) *limiter.Limiter {
	t.Helper()
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	require.NoError(t, err)
	l, err := limiter.New(c, limiter.Config{Rules: rules})
	require.NoError(t, err)
	return l
}
