// Package program has the parts that the programs of the kit share: a command line,
// further processes of the same program, and a line or a bar about the progress.
package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// Interrupted is the exit code after an interrupt.
const Interrupted = 128 + int(syscall.SIGINT)

// Parse reads the arguments of a program into cli, a struct for kong with a method
// Validate, whose help may use the values of vars. The exit code is below zero if the program may go on.
func Parse(name, about string, cli any, vars kong.Vars, args []string, stdout, stderr io.Writer) (exit int) {
	exit = -1
	parser, err := kong.New(cli, kong.Name(name), kong.Description(about), vars,
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
	return -1
}

// Interruptible returns a context that an interrupt ends.
func Interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// Again starts this program again, with the variable set in its environment: a
// process that ends with this process at the latest.
func Again(variable string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader, err error) {
	path, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.Command(path)
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, servertest.Start(cmd)
}

// Quiet is a logger of go-redis without a log, for faults that are meant.
type Quiet struct{}

// Printf does nothing.
func (Quiet) Printf(context.Context, string, ...any) {}

// Progress shows how far a program is: on a terminal by a bar, otherwise by lines.
type Progress struct {
	w   io.Writer
	bar *progressbar.ProgressBar // nil: lines
}

// NewProgress makes the Progress of so many steps.
func NewProgress(w *os.File, steps int) *Progress {
	p := &Progress{w: w}
	if term.IsTerminal(int(w.Fd())) {
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

// Bar reports whether there is a bar.
func (p *Progress) Bar() bool { return p.bar != nil }

// Clear takes the bar away.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
