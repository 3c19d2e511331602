// Package program has the parts that the programs of the kit share: a command line and a
// page, and goroutines that are left.
package program

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"
)

// Interrupted is the exit code after an interrupt.
const Interrupted = 128 + int(syscall.SIGINT)

// Options are the command line of a program: a pointer to a struct for kong.
type Options interface {
	// Validate refuses what cannot be run.
	Validate() error

	// Again returns the command line that does the same again.
	Again() string

	// File is the file to write the page to; "": the page is printed.
	File() string

	// Run does the work of the program until ctx is done, and returns a page about the
	// work so far. broken tells which promises were broken, err why the work could not
	// be done.
	Run(ctx context.Context, stderr io.Writer) (page string, broken, err error)
}

// Page is the option to write the page to a file.
type Page struct {
	Write string `type:"path" placeholder:"FILE" help:"Write the page to this file. Default: print it."`
}

// File returns the name of the file.
func (p Page) File() string { return p.Write }

// Run runs the program of a name with the arguments. The help of options may use
// ${names}, the possible values of an option that may also be empty. The exit code is 0,
// or 1 for broken promises and for work that could not be done, 2 for wrong arguments,
// and [Interrupted] after an interrupt.
func Run(name, about string, options Options, names, args []string, stdout, stderr io.Writer) (exit int) {
	exit = -1
	parser, err := kong.New(options, kong.Name(name), kong.Description(about), kong.Vars{"names": "," + strings.Join(names, ",")},
		kong.Writers(stdout, stderr), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 80}), kong.Exit(func(code int) { exit = code }))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if exit >= 0 {
		return exit // the help was asked for
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	page, broken, err := options.Run(ctx, stderr)
	if file := options.File(); err == nil && file != "" && ctx.Err() == nil {
		err = os.WriteFile(file, []byte(page), 0o644)
	} else {
		fmt.Fprint(stdout, page)
	}
	err = cmp.Or(err, broken)
	switch {
	case err != nil && ctx.Err() == nil:
		fmt.Fprintf(stderr, "%s: %v; again: %s\n", name, err, options.Again())
		return 1
	case ctx.Err() != nil:
		return Interrupted
	}
	return 0
}

// Sleep waits, at most until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Left says which goroutines are left of those that are not known, after a time that is
// enough for all to end; "": none.
func Left(known goleak.Option) (stacks string) {
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		err := goleak.Find(known) // waits
		if err == nil {
			return ""
		}
		stacks = err.Error()
	}
	return stacks
}
