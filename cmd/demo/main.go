// Command demo tries abacus on real input and real stores: it replays a log
// through the counter and checks every decision, checks the promises on a store,
// shows what a store has of a key, forgets and erases keys, explains the cover of
// a window, compares the library with the limiters of the textbooks, serves a page
// on which limiters race, and without arguments shows on one screen what the
// library does.
//
// The exit code is 0 if all went well; 1 for bad or unreadable input, a failure
// of the store, or output that cannot be written; 2 for a mistake on the command
// line; 3 if a feature counts nothing; and 130 for an interrupt. After an error or
// an interrupt the report has all input read until then.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
)

const (
	exitInput       = 1
	exitUsage       = 2
	exitNothing     = 3
	exitInterrupted = 128 + int(syscall.SIGINT)
)

// cli is the command line.
type cli struct {
	Tour    tourCmd    `cmd:"" default:"1" help:"Show on one screen what the library does (this is the default)."`
	Serve   serveCmd   `cmd:"" help:"Open a page on which the rods move, and limiters race."`
	Replay  replayCmd  `cmd:"" help:"Send a log through the counter, the clock being the log's, and check every decision."`
	Compare compareCmd `cmd:"" help:"Send a log through abacus and the textbook limiters, and compare what they admit and cost."`
	Check   checkCmd   `cmd:"" help:"Try the promises on a store of yours, and look at how it is set up."`
	Inspect inspectCmd `cmd:"" help:"Show what a store has of a key: its buckets, and its counts by window."`
	Forget  forgetCmd  `cmd:"" help:"Forget keys in a store, and bans: a customer is let in again."`
	Erase   eraseCmd   `cmd:"" help:"Erase a person from a store: all keys of her features, and bans."`
	Cover   coverCmd   `cmd:"" help:"Explain which buckets a window is counted from."`
	Rules   rulesCmd   `cmd:"" help:"Check files of rules, compare them, and try them on the hits of a store."`
}

const description = `Try abacus: at most Max in any window, counted on a few rods of time.`

// env is the environment of a command.
type env struct {
	ctx    context.Context // done when the program is interrupted
	stdin  *os.File
	stdout io.Writer
	stderr *os.File
}

// errInterrupted is the error of a command that was interrupted.
var errInterrupted = errors.New("interrupted")

// cause is errInterrupted instead of an error that followed from an interrupt.
func (e *env) cause(err error) error {
	if err != nil && e.ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func main() {
	// A broken pipe is an error to report, not a reason to vanish.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt kills
	os.Exit(run(os.Args[1:], &env{ctx, os.Stdin, os.Stdout, os.Stderr}))
}

// run returns the exit code.
func run(args []string, e *env) int {
	parser, err := kong.New(&cli{}, kong.Name("demo"), kong.Description(description),
		kong.Vars{"skew": dur.Format(counter.DefaultSkew), "timeout": dur.Format(counter.DefaultPatience), "settle": dur.Format(counter.DefaultSettle)},
		kong.Writers(e.stdout, e.stderr), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 80, NoExpandSubcommands: true}))
	if err != nil {
		return e.fail(err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		return e.fail(usageError{errors.New(secret.ReplaceAllString(err.Error(), "(a URL)"))})
	}
	if err := e.cause(command.Run(e)); err != nil {
		return e.fail(err)
	}
	return 0
}

// secret matches a URL with a password, anywhere on the command line.
var secret = regexp.MustCompile(`[^\s"]*:[^\s"]*@[^\s"]*`)

// fail prints the error and returns the exit code.
func (e *env) fail(err error) int {
	fmt.Fprintln(e.stderr, "demo:", err)
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, new(nothingError)):
		return exitNothing
	case err == errInterrupted:
		return exitInterrupted
	}
	return exitInput
}

// columns is the width of the program's output.
const columns = 80

// printJSON writes v as one indented object.
func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
