// Command floods lets floods of requests come upon small services, whose stores
// are late or stand still, under each policy of limiter.OnFailure, and counts what
// comes through. The result goes into docs/reports/floods.md.
//
//	go run ./internal/testkit/floods
//	go run ./internal/testkit/floods --write docs/reports/floods.md   what make floods does
//	go run ./internal/testkit/floods --only local --runs 1
//
// The program starts memcached and Redis, which must be installed, and the services,
// further processes of the same program. The exit code is 0 if all policies kept
// their promises, 1 for a broken promise or a campaign that could not be run, 2 for
// wrong arguments, and 130 after an interrupt.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/program"
)

// cli is the command line.
type cli struct {
	Runs  int    `default:"10" help:"How often each of the short floods comes under the policy local; under others thrice at most. Default: ${default}."`
	Only  string `enum:"${names}" default:"" help:"The one policy to try: ${names}. Default: all."`
	Match string `placeholder:"TEXT" help:"Only scenarios with this text in their names. Default: all."`
	program.Page
}

func main() {
	child.Serve(serve)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var names []string
	for i := range policies {
		names = append(names, policies[i].name)
	}
	return program.Run("floods", "Try the policies for a store that fails, under floods, on real servers.", &cli{}, names, args, stdout, stderr)
}

// Run is the method of [program.Options].
func (c *cli) Run(ctx context.Context, stderr io.Writer) (page string, broken, err error) {
	campaign, over := newCampaign(c.Runs, c.Only, c.Match), 0
	err = campaign.run(ctx, func(done ...*trial) {
		for _, t := range done {
			over++
			fmt.Fprintf(stderr, "%d of %d: %s: %s let through\n", over, len(campaign.trials), t, t.letThrough())
		}
	})
	if breaks := campaign.broken(); len(breaks) > 0 {
		broken = errors.New(strings.Join(breaks, "\n"))
	}
	return campaign.page(c.Again()), broken, err
}

// Validate refuses what cannot be run.
func (c *cli) Validate() error {
	if c.Runs < 1 {
		return fmt.Errorf("--runs is %d, want 1 or more", c.Runs)
	}
	return nil
}

// Again is the command line that does the same again.
func (c *cli) Again() string {
	return fmt.Sprintf("go run ./internal/testkit/floods --runs %d --only %q --match %q", c.Runs, c.Only, c.Match)
}
