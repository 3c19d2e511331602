// Command abacusd limits requests for proxies and for programs in any language, by the
// rules and the promises of abacus. The page service/README.md sets it up.
//
// The exit status is 0 if all went well; 1 for a bad file, a store or a server that
// failed, or an answer that was none; 2 for a mistake on the command line; and 3 if the
// event that "ask" asks about is denied.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line.
type commands struct {
	Serve serveCmd `cmd:"" help:"Serve the doors and the calls of a configuration file; without one, an example in memory."`
	Check checkCmd `cmd:"" help:"Check configuration files and the files that they name. Nothing is connected to."`
	Ask   askCmd   `cmd:"" help:"Ask a running abacusd whether an event may happen, and count it."`
}

// env is the environment of a command.
type env struct {
	ctx    context.Context // done when the program is interrupted
	stdout io.Writer
}

var (
	errUsage  = errors.New("")
	errDenied = errors.New("denied")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt kills
	err := run(os.Args[1:], env{ctx, os.Stdout})
	if err != nil && !errors.Is(err, errDenied) {
		fmt.Fprintf(os.Stderr, "abacusd: %v\n", err)
	}
	switch {
	case err == nil:
	case errors.Is(err, errDenied):
		os.Exit(3)
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		os.Exit(1)
	}
}

func run(args []string, e env) error {
	parser, err := kong.New(&commands{}, kong.Name("abacusd"), kong.UsageOnError(),
		kong.Description("Limits for proxies and for programs in any language."),
		kong.Writers(e.stdout, os.Stderr), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 80, NoExpandSubcommands: true}))
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return fmt.Errorf("%w%w", err, errUsage)
	}
	return command.Run(e)
}

// checkCmd is "abacusd check".
type checkCmd struct {
	Files []string `arg:"" name:"file" help:"Configuration files."`
}

func (c *checkCmd) Run(e env) error {
	var errs []error
	for _, file := range c.Files {
		s, err := load(file, "", "")
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is refused:\n%w", file, err))
			continue
		}
		fmt.Fprintf(e.stdout, "%s: %d events, %d doors\n", file, len(s.limiter.Events()), len(s.cfg.Doors))
		errs = append(errs, s.close(context.Background()))
	}
	return errors.Join(errs...)
}
