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

// The plans of a file reach the middleware by the name of a plan, which the program
// finds in the context of a request.
func ExampleSet_PlansBy() {
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
	planOf := func(ctx context.Context, _ limiter.Call) string {
		name, _ := ctx.Value(planKey{}).(string)
		return name
	}

	set, err := rules.Parse("rules.yaml", []byte(file)) // or Load
	if err != nil {
		panic(err)
	}
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		panic(err)
	}
	lim, err := limiter.New(count, limiter.Config{Rules: set.PlansBy(planOf)})
	if err != nil {
		panic(err)
	}
	apply := func(set *rules.Set) error { return lim.Replace(set.PlansBy(planOf)...) }
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
