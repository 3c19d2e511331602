// Command faults lets callers count on real servers, lets faults come upon the
// servers, the links and the callers, and checks all calls and answers against the
// promises of docs/guarantees.md. The result goes into docs/reports/reliability.md.
//
//	go run ./internal/testkit/faults --for 10m
//	go run ./internal/testkit/faults --for 1h --write docs/reports/reliability.md   what make faults FOR=1h does
//	go run ./internal/testkit/faults --seed 7 --only redis                  faults and calls of a run, again
//
// The program starts memcached and Redis, which must be installed, and the callers,
// further processes of the same program. The exit code is 0 if all promises held, 1
// for a broken promise or a campaign that could not be run, 2 for wrong arguments,
// and 130 after an interrupt, with the findings so far printed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/page"
	"github.com/abacus-go/abacus/internal/testkit/program"
)

// cli is the command line.
type cli struct {
	For  time.Duration `default:"10m" help:"How long callers call. Default: ${default}."`
	Seed uint64        `help:"Which calls are made and which faults come, as far as real time allows. Default: one by chance, printed."`
	Only string        `enum:"${names}" default:"" help:"The one store to try, as the page names it. Default: all."`
	program.Page
}

func main() {
	child.Serve(serve)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var names []string
	for i := range theWorlds {
		names = append(names, theWorlds[i].name)
	}
	return program.Run("faults", "Try the promises of this library under faults, on real servers.", &cli{}, names, args, stdout, stderr)
}

// Run is the method of [program.Options].
func (c *cli) Run(interrupted context.Context, stderr io.Writer) (text string, broken, err error) {
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32()) + 1
	}
	fmt.Fprintln(stderr, "faults: seed", c.Seed)
	ctx, cancel := context.WithTimeout(interrupted, c.For)
	defer cancel()
	run := &campaign{seed: c.Seed, rate: 320, calm: 350 * time.Millisecond, only: c.Only}
	next := time.Minute
	err = run.run(ctx, func(*campaign) {
		if spent := time.Since(run.Began); spent >= next {
			next += time.Minute
			fmt.Fprintf(stderr, "%s of %s: %s\n", spent.Round(time.Second), c.For, run.summary())
		}
	})
	for _, w := range run.worlds {
		for _, f := range w.report().Findings {
			fmt.Fprintf(stderr, "\n%s: %s", w.name, &f)
		}
	}
	return run.page(c.Again()), run.verdict(), err
}

// Validate refuses what cannot be run.
func (c *cli) Validate() error {
	if c.For <= 0 {
		return fmt.Errorf("--for is %v, want more than zero", c.For)
	}
	return nil
}

// Again is the command line that does the same again.
func (c *cli) Again() string {
	return strings.TrimSuffix(fmt.Sprintf("go run ./internal/testkit/faults --for %v --seed %d --only %q", c.For, c.Seed, c.Only), ` --only ""`)
}

// summary says in a few words how far it is.
func (c *campaign) summary() string {
	calls, faults, breaks := c.sums()
	return fmt.Sprintf("%s calls, %s faults, %d breaks", page.Thousands(calls), page.Thousands(faults), breaks)
}

// verdict is an error if a promise was broken, or something was left behind.
func (c *campaign) verdict() error {
	var errs []error
	for _, w := range c.worlds {
		if w.hung > 0 {
			errs = append(errs, fmt.Errorf("%s: %d calls hung", w.name, w.hung))
		}
		if r := w.report(); r.Bad > 0 {
			errs = append(errs, fmt.Errorf("%s: %d breaks of the promises", w.name, r.Bad))
		}
		if w.left.processes > 0 || w.left.conns > 0 {
			errs = append(errs, fmt.Errorf("%s: goroutines in %d processes and %d connections are left\n%s", w.name, w.left.processes, w.left.conns, w.left.stacks))
		}
	}
	return errors.Join(errs...)
}
