// Package cli is the common part of the command lines of both programs: the run of a
// program and its exit status, the flags, the opening of stores, and the bar of progress.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"text/tabwriter"
	"text/template"

	"github.com/alecthomas/kong"

	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
)

// The exit statuses other than 0.
const (
	ExitInput       = 1 // bad or unreadable input, a store that failed, output that cannot be written
	ExitUsage       = 2 // a mistake on the command line
	ExitNothing     = 3 // a feature counts nothing
	ExitInterrupted = 128 + int(syscall.SIGINT)
)

// Columns is the width of a program's output.
const Columns = 80

// Program is a program with commands.
type Program struct {
	Name        string
	Description string
	Commands    any   // a struct as kong reads it
	Reports     fs.FS // of the templates reports/NAME.txt

	// Elsewhere names the command of the other program that is meant by a command.
	Elsewhere map[string]string
}

// Env is the environment of a command.
type Env struct {
	Ctx    context.Context // done when the program is interrupted
	Stdin  *os.File
	Stdout io.Writer
	Stderr *os.File

	reports *template.Template
}

// ErrInterrupted is the error of a command that was interrupted.
var ErrInterrupted error = ExitError{errors.New("interrupted"), ExitInterrupted}

// Cause is ErrInterrupted instead of an error that followed from an interrupt.
func (e *Env) Cause(err error) error {
	if err != nil && e.Ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// ExitError is an error with an exit status of its own.
type ExitError struct {
	error
	Status int
}

// Usage makes err a mistake on the command line.
func Usage(err error) error { return ExitError{err, ExitUsage} }

// Usagef is a mistake on the command line.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Nothingf is of features that count nothing.
func Nothingf(format string, args ...any) error {
	return ExitError{fmt.Errorf(format, args...), ExitNothing}
}

// Main runs the program as a process.
func (p Program) Main() {
	// A broken pipe is an error to report, not a reason to vanish.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt kills
	e := &Env{ctx, os.Stdin, os.Stdout, os.Stderr, template.Must(template.New("").Funcs(text.Funcs).ParseFS(p.Reports, "reports/*.txt"))}
	err := p.run(os.Args[1:], e)
	if err != nil {
		fmt.Fprintf(e.Stderr, "%s: %v\n", p.Name, err)
	}
	os.Exit(status(err))
}

func (p Program) run(args []string, e *Env) error {
	if len(args) > 0 {
		if other := p.Elsewhere[args[0]]; other != "" {
			return Usagef("%s is a command of another program: %s", args[0], other)
		}
	}
	parser, err := kong.New(p.Commands, kong.Name(p.Name), kong.Description(p.Description),
		kong.Vars{"skew": dur.Format(counter.DefaultSkew), "timeout": dur.Format(counter.DefaultPatience), "settle": dur.Format(counter.DefaultSettle)},
		kong.Writers(e.Stdout, e.Stderr), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: Columns, NoExpandSubcommands: true}))
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return Usagef("%s%s", secret.ReplaceAllString(err.Error(), "$1(not shown: it may hold a password)"), hint(err))
	}
	return e.Cause(command.Run(e))
}

// hint returns the form of a command that has an argument too many, or the first example in
// the help of a command that lacks a flag or an argument, on one line.
func hint(err error) string {
	var mistake *kong.ParseError
	if !errors.As(err, &mistake) || mistake.Context.Selected() == nil {
		return ""
	}
	command := mistake.Context.Selected()
	found := regexp.MustCompile(`(?m)^ +(` + command.FullPath() + ` (?:.*\\\n)*.*)$`).FindStringSubmatch(command.Detail)
	switch wrong := misfit.FindString(err.Error()); {
	case wrong == "unexpected argument" && command.Leaf():
		return "; want " + command.Summary()
	case found != nil && wrong != "":
		return "; example: " + continued.ReplaceAllString(found[1], " ")
	}
	return ""
}

var (
	misfit    = regexp.MustCompile(`^(missing flags|expected "<|unexpected argument)`)
	continued = regexp.MustCompile(` *\\\n *`)
)

// secret matches a URL with a password, anywhere on the command line, and its scheme. Without
// the slashes a user and a password look like an e-mail address behind its kind.
var secret = regexp.MustCompile(`([^\s":]*:)[^\s"]*@[^\s"]*`)

// status is the exit status after an error, or after none.
func status(err error) int {
	var own ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.Status
	}
	return ExitInput
}

// Print writes what a command tells at its end: v as one indented object of JSON, if
// the user asked for that, or else by a template of the program. Tabs in the text align
// columns of adjacent lines.
func (e *Env) Print(asJSON bool, report string, v any) error {
	if asJSON {
		out := json.NewEncoder(e.Stdout)
		out.SetIndent("", "  ")
		return out.Encode(v)
	}
	var b bytes.Buffer
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if err := errors.Join(e.reports.ExecuteTemplate(columns, report+".txt", v), columns.Flush()); err != nil {
		return err
	}
	_, err := e.Stdout.Write(trailing.ReplaceAll(b.Bytes(), nil))
	return err
}

var trailing = regexp.MustCompile(`(?m) +$`)
