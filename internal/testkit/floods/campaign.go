package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/page"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// campaign is a list of trials.
type campaign struct {
	short, long []*trial
	began       time.Time
	took        time.Duration
	versions    string // read when the campaign begins: the checkout may move on meanwhile
}

// newCampaign makes the trials of the scenarios whose names contain match, of one
// policy or of all policies.
func newCampaign(runs int, only, match string) *campaign {
	c := &campaign{}
	all := func(scenarios []scenario) (trials []*trial) {
		for i := range scenarios {
			for j := range policies {
				for _, store := range stores {
					t := &trial{scenario: &scenarios[i], policy: &policies[j], store: store, runs: scenarios[i].runs}
					if t.runs == 0 {
						t.runs = t.policy.runs(runs)
					}
					if (only == "" || only == t.policy.name) && strings.Contains(t.name, match) && t.policy.tries(t.scenario) {
						trials = append(trials, t)
					}
				}
			}
		}
		return trials
	}
	c.short, c.long = all(short), all(long)
	return c
}

// run makes all trials, and calls after when a trial is over, or several trials
// that were side by side.
func (c *campaign) run(ctx context.Context, after func(done ...*trial)) error {
	c.began, c.versions = time.Now(), page.Versions()
	defer func() { c.took = time.Since(c.began) }()
	for _, t := range c.short {
		if err := sideBySide(ctx, t); err != nil {
			return err
		}
		after(t)
	}
	if err := sideBySide(ctx, c.long...); err != nil {
		return err
	}
	after(c.long...)
	return nil
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
	for _, t := range append(c.short[:len(c.short):len(c.short)], c.long...) {
		breaks = append(breaks, t.broken()...)
	}
	return breaks
}

// summary says in a few words what a trial has found.
func (t *trial) summary() string {
	return fmt.Sprintf("%s: %s let through", t, t.letThrough())
}
