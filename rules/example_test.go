package rules_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// The plans of a file reach the middleware by LimitsOf, which each new Set gets before
// its rules are used.
func ExampleSet_Plan() {
	const file = `
events:
  mail:
    user:
      limits: 1/h
      plans:
        pro: 3/h
`
	// In a program the name of the plan is in the user's session.
	type planKey struct{}
	planOf := func(ctx context.Context) string { name, _ := ctx.Value(planKey{}).(string); return name }

	withPlans := func(set *rules.Set) []limiter.Rule {
		for i := range set.Rules {
			if r := &set.Rules[i]; len(r.Plans) > 0 {
				kind := r.Kind
				r.LimitsOf = func(ctx context.Context, c limiter.Call) counter.Limits {
					return set.Plan(c.Event, kind, planOf(ctx)) // nil: the limits of the rule
				}
			}
		}
		return set.Rules
	}

	set, err := rules.Parse("rules.yaml", []byte(file)) // or Load
	if err != nil {
		panic(err)
	}
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		panic(err)
	}
	lim, err := limiter.New(count, limiter.Config{Rules: withPlans(set)})
	if err != nil {
		panic(err)
	}
	apply := func(set *rules.Set) error { return lim.Replace(withPlans(set)...) } // for rules.WatchConfig
	if err := apply(set); err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: lim, Event: "mail", Features: []httplimit.Source{
		httplimit.NewSource("user", httplimit.Header("X-User")),
	}})
	if err != nil {
		panic(err)
	}
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, plan := range []string{"", "pro"} {
		var statuses []int
		for range 4 {
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("X-User", "ada "+plan)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), planKey{}, plan)))
			statuses = append(statuses, w.Code)
		}
		fmt.Printf("%q %v\n", plan, statuses)
	}
	// Output:
	// "" [200 429 429 429]
	// "pro" [200 200 200 429]
}
