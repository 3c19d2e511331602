package program

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
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
}

// Again starts this program again, for its [Serve]. The process ends with this process at
// the latest.
func Again() (*Process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Cmd: exec.Command(path)}
	p.Env, p.Stderr = append(os.Environ(), variable+"=1"), os.Stderr
	if p.in, err = p.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Lines = json.NewDecoder(out)
	return p, servertest.Start(p.Cmd)
}

// Tell tells the process a line. The error is that of a dead or dying process.
func (p *Process) Tell(line any) error { return json.NewEncoder(p.in).Encode(line) }

// Close ends the lines that the process is told.
func (p *Process) Close() error { return p.in.Close() }

// Serve serves the lines of the process that has started this process by [Again], and
// ends this process. In a process that was started otherwise Serve does nothing.
func Serve(serve func(in *json.Decoder, out *os.File) error) {
	if os.Getenv(variable) == "" {
		return
	}
	goredis.SetLogger(quiet{})
	if err := serve(json.NewDecoder(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "a further process:", err)
		os.Exit(1)
	}
	os.Exit(0)
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

// quiet is a logger of go-redis without a log, for faults that are meant.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Opened returns a store, if there is one, with the function that closes the store.
func Opened[S interface {
	backend.Store
	Close() error
}](s S, err error) (backend.Store, func() error, error) {
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
