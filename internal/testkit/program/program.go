// Package program has the parts that the programs of the kit share: a command line, a
// page, and a line or a bar about the progress; and further processes of the same
// program.
package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
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
	if err == nil {
		err = broken
	}
	switch {
	case err != nil && ctx.Err() == nil:
		fmt.Fprintf(stderr, "%s: %v; again: %s\n", name, err, options.Again())
		return 1
	case ctx.Err() != nil:
		return Interrupted
	}
	return 0
}

// Progress shows how far a program is: on a terminal by a bar, otherwise by lines.
type Progress struct {
	w    io.Writer
	bar  *progressbar.ProgressBar // nil: lines
	next time.Duration            // of the next line about the time
}

// NewProgress makes the Progress of so many steps.
func NewProgress(w io.Writer, steps int) *Progress {
	p := &Progress{w: w, next: time.Minute}
	if file, is := w.(*os.File); is && term.IsTerminal(int(file.Fd())) {
		p.bar = progressbar.NewOptions(steps, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(30),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	}
	return p
}

// Show says how far it is: by the number of steps that are done and what is said, or
// by a line that begins with the text at.
func (p *Progress) Show(done int, at, said string) {
	if p.bar == nil {
		fmt.Fprintf(p.w, "%s: %s\n", at, said)
		return
	}
	p.bar.Describe(said)
	_ = p.bar.Set(done)
}

// Time shows how far a program of a length is, whose steps are seconds: in a bar all the
// time, in a line each minute.
func (p *Progress) Time(spent, length time.Duration, said func() string) {
	if p.bar == nil && spent < p.next {
		return
	}
	p.next = spent.Truncate(time.Minute) + time.Minute
	p.Show(min(int(spent/time.Second), int(length/time.Second)-1), fmt.Sprintf("%s of %s", spent.Round(time.Second), length), said())
}

// Clear takes the bar away.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
