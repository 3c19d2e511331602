// Package child runs further processes of a program, or of a test binary.
package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// variable is set in the environment of further processes.
const variable = "ABACUS_TESTKIT_PROCESS"

// Process is a further process of this program, which is told lines of JSON and tells
// lines of JSON.
type Process struct {
	*exec.Cmd
	Lines *json.Decoder // of the process
	in    io.WriteCloser
	out   *os.File
}

// Start runs this program again, with other arguments, as a process that calls [Serve],
// and sends it the job. The process ends with this process at the latest. All that it
// prints goes to the standard error.
func Start(job any, args ...string) (*Process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// A pipe of their own for the lines: a test binary prints to its standard output.
	out, lines, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lines.Close()
	p := &Process{Cmd: exec.Command(path, args...), Lines: json.NewDecoder(out), out: out}
	p.Env, p.Stdout, p.Stderr, p.ExtraFiles = append(os.Environ(), variable+"=1"), os.Stderr, os.Stderr, []*os.File{lines}
	if p.in, err = p.StdinPipe(); err != nil {
		return nil, err
	}
	if err := servertest.Start(p.Cmd); err != nil {
		return nil, err
	}
	return p, p.Send(job)
}

// Send sends the process a line. The error is that of a dead or dying process.
func (p *Process) Send(line any) error { return json.NewEncoder(p.in).Encode(line) }

// Close ends the lines that are sent to the process.
func (p *Process) Close() error { return p.in.Close() }

// Wait waits until the process has ended, and no more of its lines are read.
func (p *Process) Wait() error { return errors.Join(p.Cmd.Wait(), p.out.Close()) }

// Serve does the job of the process that has started this process by [Start], serves the
// lines after the job, and ends this process. In a process that was started otherwise
// Serve does nothing.
func Serve[Job any](serve func(job Job, in *json.Decoder, out *os.File) error) {
	if os.Getenv(variable) == "" {
		return
	}
	var job Job
	in := json.NewDecoder(os.Stdin)
	err := in.Decode(&job)
	if err == nil {
		err = serve(job, in, os.NewFile(3, "lines"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a further process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
