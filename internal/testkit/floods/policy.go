package main

import "github.com/abacus-go/abacus/limiter"

// policy is a limiter.OnFailure under trial, and the bound that its rules keep.
type policy struct {
	name      string
	onFailure limiter.OnFailure
	most      func(max int64, services int) int64 // of hits in a window; nil: no bound
}

// policies are all policies, in the order of the page.
var policies = []policy{
	{"open", limiter.FailOpen, nil},
	{"closed", limiter.FailClosed, func(max int64, _ int) int64 { return max }},
}

// policyOf is the policy of a name.
func policyOf(name string) *policy {
	for i := range policies {
		if policies[i].name == name {
			return &policies[i]
		}
	}
	return nil
}
