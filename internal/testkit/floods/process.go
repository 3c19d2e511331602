package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// process is a service in a process of its own, seen from the outside.
type process struct {
	addr  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *json.Decoder
}

// start starts a service, which is killed at the end of t.
func start(t testing.TB, j job) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), serviceVariable+"=1")
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = json.NewDecoder(out)
	if err := servertest.Start(p.cmd); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails only if the process has ended
		_ = p.cmd.Wait()
	})
	if err := json.NewEncoder(p.in).Encode(j); err != nil {
		return nil, err
	}
	var r ready
	if err := p.lines.Decode(&r); err != nil {
		return nil, fmt.Errorf("a service does not begin: %w", err)
	}
	p.addr = r.Addr
	return p, nil
}

// end lets the service close all, and returns the last words of the service.
func (p *process) end() (*ending, error) {
	if err := p.in.Close(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(3*hang, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	e := &ending{}
	if err := p.lines.Decode(e); err != nil {
		return nil, fmt.Errorf("a service does not end: %w", err)
	}
	return e, nil
}
