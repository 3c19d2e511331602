package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
)

// input is the log that is read, and how much of it has been.
type input struct {
	*os.File
	name string
	size int64 // -1 if it is not a file
	read atomic.Int64
}

// openInput opens a file, or standard input for "-".
func openInput(name string, stdin *os.File) (*input, error) {
	in := &input{File: stdin, name: "standard input", size: -1}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		in.File, in.name = file, name
	}
	if info, err := in.Stat(); err == nil && info.Mode().IsRegular() {
		in.size = info.Size()
	}
	return in, nil
}

func (in *input) Read(p []byte) (int, error) {
	n, err := in.File.Read(p)
	in.read.Add(int64(n))
	// The name is told by whoever reports it.
	if wrapped := (*os.PathError)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return n, err
}

func (in *input) close() {
	// Nothing is lost by a file that was only read.
	_ = in.Close()
}

// checkOutput refuses a name that cannot be an output file beside in, which is nil
// for no log. The error is a usageError.
func checkOutput(flag, name string, in *input) error {
	if name == "-" {
		return usageError{fmt.Errorf("%s -: standard output is for the report, want the name of a file", flag)}
	}
	if there, err := os.Stat(name); err == nil && in != nil {
		if log, err := in.Stat(); err == nil && os.SameFile(there, log) {
			return usageError{fmt.Errorf("%s %s: the file is the log itself, want another file", flag, name)}
		}
	}
	return nil
}

// decisions is the file that --decisions names. A nil *decisions is none.
type decisions struct {
	*replay.Decisions
	file *os.File
}

// createDecisions overwrites the file; it is nil without a name.
func createDecisions(name string, in *input) (*decisions, error) {
	if name == "" {
		return nil, nil
	}
	if err := checkOutput("--decisions", name, in); err != nil {
		return nil, err
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("--decisions: %w", err)
	}
	written, err := replay.NewDecisions(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &decisions{written, file}, nil
}

// close writes out what is buffered. Its error says that the file is not whole.
func (d *decisions) close() error {
	if d == nil {
		return nil
	}
	err := d.Flush()
	if closed := d.file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("--decisions: %w", err)
	}
	return nil
}
