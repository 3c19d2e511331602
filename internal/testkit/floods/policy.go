package main

import (
	"math"
	"slices"

	"github.com/abacus-go/abacus/limiter"
)

// policy is a limiter.OnFailure under trial.
type policy struct {
	name      string
	onFailure limiter.OnFailure
	inFlight  int // limiter.Config.MaxInFlight
	bounded   bool
}

// policies are all policies, in the order of the page.
var policies = []policy{
	{name: "open", onFailure: limiter.FailOpen},
	{name: "closed", onFailure: limiter.FailClosed, bounded: true},
	{name: "local", onFailure: limiter.FailLocal, bounded: true},
	{name: "local-64", onFailure: limiter.FailLocal, inFlight: 64, bounded: true},
}

// policyOf is the policy of a name.
func policyOf(name string) *policy {
	return &policies[slices.IndexFunc(policies, func(p policy) bool { return p.name == name })]
}

// tries reports whether a scenario says anything about p beside the other policies:
// a bound on calls under way matters where many calls for room are.
func (p *policy) tries(s *scenario) bool { return p.inFlight == 0 || s.services == 1 && !s.usedUp }

// runs is the number of runs of a short flood: all runs of the policy that claims
// most, and a few of each other policy, to compare with.
func (p *policy) runs(all int) int {
	if p.name == "local" {
		return all
	}
	return min(all, 3)
}

// most is the largest number of hits that services under the policy admit in a
// window, and Max without a bound.
func (p *policy) most(max int64, services int) int64 {
	if p.onFailure != limiter.FailLocal {
		return max
	}
	return max + int64(services-1)*int64(math.Ceil(shareOf(services)*float64(max)))
}

// shareOf is limiter.Config.Share of each of several services.
func shareOf(services int) float64 { return 1 / float64(services) }
