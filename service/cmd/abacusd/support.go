package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/metrics/tally"
)

// status serves the page of the limiter that the query names, by default of the rules, or
// of Envoy's where there are no others.
func (s *service) status(w http.ResponseWriter, r *http.Request) {
	usual := "rules"
	if s.limiter == nil {
		usual = "envoy"
	}
	name := cmp.Or(r.URL.Query().Get("limiter"), usual)
	if l := s.limiters()[name]; l != nil {
		tally.Status(l, s.tallies[name]).ServeHTTP(w, r)
		return
	}
	httplimit.Problem{Title: "Not Found", Status: http.StatusNotFound, Detail: "There is no limiter of this name, or it has no rules yet."}.ServeHTTP(w, r)
}

// erase erases features, whose texts are kind:value, by all rules. Each must be of a kind
// by which a rule counts, or of a key of Envoy's rules.
func (s *service) erase(ctx context.Context, texts []string, features []feature.Feature) error {
	var own []feature.Feature
	gateways := false
	for _, f := range features {
		ofEnvoy := s.envoy != nil && s.envoy.HasKey(f.Kind())
		switch {
		case s.counts(f.Kind()):
			own = append(own, f)
		case !ofEnvoy:
			return errors.New("no rule is by the kind " + f.Kind())
		}
		gateways = gateways || ofEnvoy
	}
	var errs []error
	if len(own) > 0 {
		errs = append(errs, s.limiter.Erase(ctx, own...))
	}
	if gateways {
		errs = append(errs, s.envoy.Erase(ctx, texts...))
	}
	return errors.Join(errs...)
}

// counts reports whether a rule, not of Envoy's, is by the kind.
func (s *service) counts(kind string) bool {
	return s.limiter != nil && slices.ContainsFunc(s.limiter.Events(), func(event string) bool {
		return slices.ContainsFunc(s.limiter.Rules(event), func(r limiter.Rule) bool { return r.Kind == kind || r.Else == kind })
	})
}
