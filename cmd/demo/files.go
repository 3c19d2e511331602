package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
)

// input is the log, with the number of bytes read.
type input struct {
	*os.File
	name string
	size int64 // -1 unless a regular file
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
	// The name is added by the reporter of the error.
	if wrapped := (*os.PathError)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return n, err
}

func (in *input) close() {
	// Nothing is lost by a file that was only read.
	_ = in.Close()
}

// checkOutput refuses a name that cannot be an output file beside in; in is nil
// without a log. The error is a usageError.
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

// decisions is the file of --decisions. A nil *decisions stands for no file.
type decisions struct {
	*replay.Decisions
	file *os.File
}

// createDecisions overwrites the file; the result is nil without a name.
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

// close writes out the buffered lines. An error says that the file is not whole.
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
