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
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/abacus-go/abacus/internal/testkit/program"
)

// cli is the command line.
type cli struct {
	Runs  int    `default:"10" help:"How often each of the short floods comes under the policy local; under others thrice at most. Default: ${default}."`
	Only  string `enum:"${policies}" default:"" help:"The one policy to try: ${policies}. Default: all."`
	Match string `placeholder:"TEXT" help:"Only scenarios with this text in their names. Default: all."`
	Write string `type:"path" placeholder:"FILE" help:"Write the page to this file. Default: print it."`
}

func main() {
	if isService() {
		service()
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code.
func run(args []string, stdout io.Writer, stderr *os.File) int {
	var c cli
	if exit := program.Parse("floods", "Try the policies for a store that fails, under floods, on real servers.", &c, kong.Vars{"policies": policyNames()}, args, stdout, stderr); exit >= 0 {
		return exit
	}
	ctx, stop := program.Interruptible()
	defer stop()
	campaign := newCampaign(c.Runs, c.Only, c.Match)
	over, of := 0, len(campaign.short)+len(campaign.long)
	progress := program.NewProgress(stderr, of)
	err := campaign.run(ctx, func(done ...*trial) {
		for _, t := range done {
			over++
			progress.Show(over, fmt.Sprintf("%d of %d", over, of), t.summary())
		}
	})
	progress.Clear()
	if ctx.Err() != nil {
		return program.Interrupted
	}
	if err != nil {
		fmt.Fprintln(stderr, "floods:", err)
		return 1
	}
	text := campaign.page(c.command())
	if c.Write == "" {
		fmt.Fprint(stdout, text)
	} else if err := os.WriteFile(c.Write, []byte(text), 0o644); err != nil {
		fmt.Fprintln(stderr, "floods:", err)
		return 1
	}
	if broken := campaign.broken(); len(broken) > 0 {
		fmt.Fprintln(stderr, strings.Join(broken, "\n"))
		return 1
	}
	return 0
}

// Validate refuses what cannot be run.
func (c *cli) Validate() error {
	if c.Runs < 1 {
		return fmt.Errorf("--runs is %d, want 1 or more", c.Runs)
	}
	return nil
}

// command is the command line that does the same again.
func (c *cli) command() string {
	s := fmt.Sprintf("go run ./internal/testkit/floods --runs %d", c.Runs)
	if c.Only != "" {
		s += " --only " + c.Only
	}
	if c.Match != "" {
		s += fmt.Sprintf(" --match %q", c.Match)
	}
	return s
}

func policyNames() string {
	names := ""
	for i := range policies {
		names += "," + policies[i].name
	}
	return names
}
