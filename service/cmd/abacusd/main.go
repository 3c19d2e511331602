// Command abacusd limits requests for proxies and for programs in any language, by the
// rules and the promises of abacus. The page service/README.md sets it up.
//
// The exit status is 0 if all went well; 1 for a bad file, a store or a server that
// failed, or an answer that was none; 3 if the event that "ask" asks about is denied; and
// 80 for a mistake on the command line.
package main

import (
	"context"
	"errors"
	"fmt"
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt kills
	command := kong.Parse(&commands{}, kong.Name("abacusd"), kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Description("Limits for proxies and for programs in any language."),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 80, NoExpandSubcommands: true}))
	command.FatalIfErrorf(command.Run())
}

// checkCmd is "abacusd check".
type checkCmd struct {
	Files []string `arg:"" name:"file" help:"Configuration files."`
}

func (c *checkCmd) Run(ctx context.Context) error {
	var errs []error
	for _, file := range c.Files {
		s, err := load(file, options{})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is refused:\n%w", file, err))
			continue
		}
		fmt.Printf("%s: good, with %d doors\n", file, len(s.cfg.Doors))
		errs = append(errs, s.close(ctx))
	}
	return errors.Join(errs...)
}
