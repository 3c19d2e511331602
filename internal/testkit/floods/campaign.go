package main

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/abacus-go/abacus/internal/testkit/page"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// stores are the kinds of stores, in the order of the page.
var stores = []string{"redis", "memcached"}

// campaign is a list of trials.
type campaign struct {
	page.Run
	trials []*trial
}

// newCampaign makes the trials of the scenarios whose names contain match, of one
// policy or of all policies.
func newCampaign(runs int, only, match string) *campaign {
	c := &campaign{}
	for i := range scenarios {
		for j := range policies {
			s, p := &scenarios[i], &policies[j]
			if only != "" && only != p.name || !strings.Contains(s.Name, match) || !p.tries(s) {
				continue
			}
			for _, store := range stores {
				t := &trial{scenario: s, policy: p, store: store, runs: 1}
				if !s.Long {
					t.runs = p.runs(runs)
				}
				c.trials = append(c.trials, t)
			}
		}
	}
	return c
}

// run makes all trials, the long ones side by side, and calls after when trials are
// over.
func (c *campaign) run(ctx context.Context, after func(done ...*trial)) error {
	c.Run = page.Begin()
	defer c.End()
	for _, t := range c.of(false) {
		if err := sideBySide(ctx, t); err != nil {
			return err
		}
		after(t)
	}
	long := c.of(true)
	if err := sideBySide(ctx, long...); err != nil {
		return err
	}
	after(long...)
	return nil
}

// of returns the trials of the long scenarios, or of the others.
func (c *campaign) of(long bool) []*trial {
	return slices.DeleteFunc(slices.Clone(c.trials), func(t *trial) bool { return t.Long != long })
}

// sideBySide runs trials all at once. The first failure ends all of them.
func sideBySide(ctx context.Context, trials ...*trial) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stage := &servertest.Stage{OnFailure: func(error) { cancel() }}
	defer stage.End()
	var all sync.WaitGroup
	for _, t := range trials {
		all.Go(func() { // which a failure of the stage ends
			if err := t.run(stage, ctx); err != nil {
				stage.Report(err)
			}
		})
	}
	all.Wait()
	return stage.Err()
}

// broken are the broken promises of all trials.
func (c *campaign) broken() (breaks []string) {
	for _, t := range c.trials {
		breaks = append(breaks, t.broken()...)
	}
	return breaks
}
