package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// spelling is a spelling of a feature, and the feature.
type spelling struct {
	feature feature.Feature
	is      string
}

// spellings of three features of each kind.
var spellings = map[string][]spelling{
	"ip": {
		{ip("192.0.2.1"), "a"}, {ip("::ffff:192.0.2.1"), "a"}, {feature.New("ip", "192.0.2.1"), "a"},
		{ip("192.0.2.2"), "b"},
		{ip("2001:db8::1"), "c"}, {ip("2001:db8::2%eth0"), "c"},
	},
	"email": {
		{feature.Email("ada@example.org"), "a"}, {feature.Email(`"ADA"@Example.org.`), "a"},
		{feature.Email("a.da@example.org"), "b"},
		{feature.Email("ada@bücher.example"), "c"}, {feature.Email("Ada@xn--bcher-kva.example"), "c"},
	},
	"user": {{user("1"), "a"}, {user("2"), "b"}, {user("192.0.2.1"), "c"}},
}

// world is a Limiter on a clock of its own, beside the log of all hits.
type world struct {
	*testing.T
	r              *rand.Rand
	now            time.Time
	lim            *limiter.Limiter
	rules          []limiter.Rule
	judges         map[string]oracle.Judge   // of every kind
	logs           map[string]*oracle.Log    // of every feature
	under          map[string]counter.Limits // of the plan by which a kind is limited in the call that is made
	denied, passed int
}

func newWorld(t *testing.T, r *rand.Rand, on func() backend.Store) *world {
	skew := time.Duration(r.IntN(2)) * 150 * time.Millisecond
	w := &world{T: t, r: r, now: time.Unix(1_700_000_000+r.Int64N(1e6), r.Int64N(1e9)), logs: map[string]*oracle.Log{}, judges: map[string]oracle.Judge{}}
	cfg := counter.Config{Skew: skew, Settle: -1, Patience: -1, Now: func() time.Time { return w.now }}
	if skew == 0 {
		cfg.Skew = -1
	}
	if i := r.IntN(6); i < 3 { // else each rule derives its ladder
		cfg.Ladder = try.To(tiers.Parse([]string{"1s:1d, 1m:1d, 1h:1d", "100ms:1m, 1s:1h, 1m:1d", "10s:1d"}[i]))(t)
	}
	plans := r.IntN(2) * 2
	for _, kind := range []string{"ip", "email", "user"} {
		if r.IntN(4) == 0 {
			continue
		}
		rule := limiter.Rule{Event: "signup", Kind: kind, IfMissing: limiter.IfMissing(r.IntN(3))}
		if rule.Limits = randomLimits(r); len(rule.Limits) == 0 {
			continue
		}
		for range plans {
			if plan := randomLimits(r); len(plan) > 0 {
				rule.Plans = append(rule.Plans, plan)
			}
		}
		w.rules = append(w.rules, rule)
	}
	if len(w.rules) == 0 {
		w.rules = []limiter.Rule{by("ip", "2/10m")}
	}
	// A few rules come in pieces, and a few learn the limits of the call by a
	// function.
	var given []limiter.Rule
	for _, rule := range w.rules {
		piece := rule
		if k := r.IntN(len(rule.Limits)); k > 0 {
			piece.Limits = rule.Limits[:k]
			given = append(given, piece)
			piece.Limits, piece.Plans = rule.Limits[k:], nil
		} else if r.IntN(2) == 0 {
			piece.LimitsOf = func(_ context.Context, c limiter.Call) counter.Limits { return w.under[c.Feature.Kind()] }
		}
		given = append(given, piece)
	}
	c := derivingCounter(t, on(), cfg)
	w.lim = newLimiter(t, c, limiter.Config{Rules: given, DecideWithin: time.Minute})
	for i, rule := range w.lim.Rules("signup") {
		w.judges[rule.Kind] = oracle.Judge{Ladder: rule.Ladder, Skew: skew}
		w.rules[i].LimitsOf = rule.LimitsOf
	}
	return w
}

func randomLimits(r *rand.Rand) (limits counter.Limits) {
	for _, per := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour} {
		if r.IntN(2) == 0 {
			limits = append(limits, counter.Limit{Max: 1 + r.Int64N(6), Per: per})
		}
	}
	return limits
}

// limitsOf are the limits of a rule in the call that is made.
func (w *world) limitsOf(rule *limiter.Rule) counter.Limits {
	if limits := w.under[rule.Kind]; limits != nil {
		return limits
	}
	return rule.Limits
}

// pass advances the clock: not at all, a little, or to about the end of a
// window.
func (w *world) pass() {
	switch w.r.IntN(6) {
	case 0:
	case 1, 2:
		w.now = w.now.Add(time.Duration(w.r.Int64N(int64(20 * time.Second))))
	case 3, 4:
		w.now = w.now.Add(time.Duration(w.r.Int64N(int64(4 * time.Minute))))
	default:
		limits := w.rules[w.r.IntN(len(w.rules))].Limits
		w.now = w.now.Add(limits[w.r.IntN(len(limits))].Per + time.Duration(w.r.Int64N(int64(2*time.Second))) - time.Second)
	}
}

// visitor has features in a spelling, and in canonical form; and plans.
func (w *world) visitor() (features []feature.Feature, is map[string][]string) {
	is, w.under = map[string][]string{}, map[string]counter.Limits{}
	byFunction := map[string]bool{}
	for _, rule := range w.rules {
		if i := w.r.IntN(4); i < len(rule.Plans) {
			w.under[rule.Kind], byFunction[rule.Kind] = rule.Plans[i], rule.LimitsOf != nil
		}
	}
	for _, kind := range []string{"ip", "email", "user"} {
		for range []int{0, 1, 1, 1, 1, 1, 2, 3}[w.r.IntN(8)] {
			s := spellings[kind][w.r.IntN(len(spellings[kind]))]
			if !byFunction[kind] {
				s.feature = limiter.Under(s.feature, w.under[kind])
			}
			features = append(features, s.feature)
			if !slices.Contains(is[kind], s.is) {
				is[kind] = append(is[kind], s.is)
			}
		}
	}
	w.r.Shuffle(len(features), func(i, j int) { features[i], features[j] = features[j], features[i] })
	return features, is
}

// want is the expected answer of a call, and the hits to count if admitted.
func (w *world) want(is map[string][]string, n int64) (want limiter.Outcome, keys map[string]*limiter.Rule) {
	keys = map[string]*limiter.Rule{}
	for i := range w.rules {
		rule := &w.rules[i]
		values := is[rule.Kind]
		if values == nil {
			switch rule.IfMissing {
			case limiter.MissingDeny:
				return limiter.OutcomeMissing, nil
			case limiter.MissingShare:
				values = []string{"nobody"}
				delete(w.under, rule.Kind) // of a feature
			}
		}
		for _, value := range values {
			keys[rule.Kind+" "+value] = rule
		}
	}
	if len(keys) == 0 {
		return limiter.OutcomeSkipped, nil
	}
	want = limiter.OutcomeAdmitted
	for name, rule := range keys {
		if w.logs[name] == nil {
			w.logs[name] = &oracle.Log{}
		}
		if !w.judges[rule.Kind].Allowed(w.logs[name], w.now, n, w.limitsOf(rule)) {
			want = limiter.OutcomeOverLimit
		}
	}
	return want, keys
}

// call makes a call and compares the answer with the log of all hits.
func (w *world) call(features []feature.Feature, is map[string][]string, n int64) limiter.Verdict {
	want, keys := w.want(is, n)
	if w.r.IntN(3) == 0 {
		v, err := w.lim.Peek(ctx, "signup", n, features...)
		require.NoError(w, err)
		require.Equal(w, want, v.Outcome(), "a peek")
		w.tellsWhen(&v)
	}
	v, err := w.lim.AllowN(ctx, "signup", n, features...)
	require.NoError(w, err)
	require.Equal(w, want, v.Outcome(), "%d of %v at %s by %v", n, is, w.now, w.rules)
	require.Equal(w, want == limiter.OutcomeAdmitted || want == limiter.OutcomeSkipped, v.Allowed)
	w.tellsWhen(&v)
	switch want {
	case limiter.OutcomeAdmitted:
		w.passed++
		for name := range keys {
			w.logs[name].Add(w.now, n)
		}
	case limiter.OutcomeOverLimit:
		w.denied++
	}
	if keys != nil {
		limits := 0
		for _, rule := range keys {
			limits += len(w.limitsOf(rule))
		}
		require.Len(w, v.All(), limits)
		require.True(w, slices.ContainsFunc(w.rules, func(r limiter.Rule) bool { return r.Kind == v.Kind() }), v.Kind())
	}
	return v
}

// tellsWhen checks the RetryAfter of a Verdict: a denied Verdict has the
// longest wait of its limits, and an admitted Verdict has none.
func (w *world) tellsWhen(v *limiter.Verdict) {
	if v.Allowed {
		require.Zero(w, v.RetryAfter)
	} else {
		require.Positive(w, v.RetryAfter)
	}
	longest := v.RetryAfter
	for i, state := range v.All() {
		if i == 0 {
			longest = 0
		}
		longest = max(longest, state.RetryAfter)
	}
	require.Equal(w, longest, v.RetryAfter)
}

// Random rules, visitors and times: a call is admitted exactly if the log of all
// hits has room in every window of every feature, up to the bucket that the
// window begins in. So no true window ever holds more than Max.
func TestAgainstTheOracle(t *testing.T) {
	for name, on := range map[string]func() backend.Store{
		"in this process":         func() backend.Store { return memory.New(memory.Config{}) },
		"as if over a network":    func() backend.Store { return struct{ backend.Atomic }{memory.New(memory.Config{})} },
		"by ticket, over no wire": func() backend.Store { return struct{ backend.Store }{memory.New(memory.Config{})} },
	} {
		t.Run(name, func(t *testing.T) {
			r := random(t)
			passed, denied, refunded, retried := 0, 0, 0, 0
			for range 60 {
				w := newWorld(t, r, on)
				for range 60 {
					w.pass()
					features, is := w.visitor()
					n := 1 + r.Int64N(8)/5
					at := w.now
					v := w.call(features, is, n)
					switch {
					case v.Outcome() == limiter.OutcomeAdmitted && r.IntN(8) == 0:
						_, keys := w.want(is, n)
						used := r.Int64N(n+1) - 1 // below 0: refunded
						if used >= 0 {
							require.NoError(t, w.lim.Settle(ctx, &v, used))
						} else {
							require.NoError(t, w.lim.Refund(ctx, &v))
						}
						for name := range keys {
							w.logs[name].Remove(at, n-max(0, used))
						}
						refunded++
					case v.Outcome() == limiter.OutcomeOverLimit && v.RetryAfter < counter.Never && r.IntN(4) == 0:
						w.now = w.now.Add(v.RetryAfter)
						v = w.call(features, is, n)
						require.True(t, v.Allowed, "a lone caller who comes back in time")
						retried++
					}
				}
				for name, log := range w.logs {
					for _, rule := range w.rules {
						for _, limit := range rule.Limits {
							if strings.HasPrefix(name, rule.Kind+" ") && rule.Plans == nil {
								require.LessOrEqual(t, log.Worst(limit.Per), limit.Max, fmt.Sprint(name, limit))
							}
						}
					}
				}
				passed, denied = passed+w.passed, denied+w.denied
			}
			t.Logf("%d admitted, %d denied, %d refunded, %d came back", passed, denied, refunded, retried)
			require.Greater(t, passed, 300)
			require.Greater(t, denied, 300)
			require.Greater(t, refunded, 30)
			require.Greater(t, retried, 30)
		})
	}
}
