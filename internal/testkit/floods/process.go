package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/program"
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
	cmd, in, out, err := program.Again(serviceVariable)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, lines: json.NewDecoder(out)}
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
