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
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/abacus-go/abacus/service/config"
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
		fmt.Printf("%s: good\n%s", file, s.summary())
		errs = append(errs, s.close(ctx))
	}
	return errors.Join(errs...)
}

// summary says what there is by the configuration, in lines for people.
func (s *service) summary() string {
	var at, callers []string
	for i, a := range []config.Address{s.cfg.Listen.HTTP, s.cfg.Listen.GRPC, s.cfg.Listen.Admin} {
		if a.Network != "" {
			at = append(at, []string{"http ", "grpc ", "admin "}[i]+a.Address)
		}
	}
	for _, c := range s.cfg.Callers {
		callers = append(callers, c.Name)
	}
	if callers == nil {
		callers = []string{"this machine alone"}
	}
	list := func(names []string) string { return strings.Join(names, ", ") }
	text := fmt.Sprintf("  store    %s\n  listen   %s\n  callers  %s\n", s.cfg.Store, list(at), list(callers))
	if s.set != nil {
		text += fmt.Sprintf("  doors    %d: %s\n", len(s.cfg.Doors), list(slices.Sorted(maps.Keys(s.cfg.Doors))))
		text += fmt.Sprintf("  rules    %d, of the events %s\n", len(s.set.Rules), list(s.limiter.Events()))
	}
	if l := s.limiters()["envoy"]; l != nil {
		text += fmt.Sprintf("  envoy    %d rules, of the domains %s\n", strings.Count(s.envoy.Text(), "\n"), list(l.Events()))
	}
	return text
}
