package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/cmd/internal/cli"
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

// logFlags are the flags of a log.
type logFlags struct {
	Format  string   `help:"The form of the log: csv, clf (Common or Combined Log Format) or auto (the default)." default:"auto" enum:"auto,csv,clf" placeholder:"FORMAT"`
	Event   requests `help:"Of a web server's log: only the requests of this pattern, such as 'POST /login' or '/users/{id}', and under its name, or another: 'login=POST /login'. May be repeated." sep:"none" placeholder:"PATTERN"`
	SkipBad bool     `help:"Go on after a bad line, and count them."`
}

// requests is a flag of patterns.
type requests []string

// Validate is called by kong, after all flags are read.
func (r requests) Validate() error {
	_, err := eventlog.ParseRequests(r)
	return err
}

// log is the log of a file, or of standard input.
func (l *logFlags) log(in *input, bar *cli.Progress) *eventlog.Log {
	log := &eventlog.Log{Source: in, Name: in.name, Format: l.Format, SkipBad: l.SkipBad, Progress: func() { bar.Set(in.read.Load()) }}
	if len(l.Event) > 0 {
		log.Requests, _ = eventlog.ParseRequests(l.Event) // valid, see Validate
	}
	return log
}

// output is a file that is written next to the report. A file of the same name
// keeps its content until the first Write.
type output struct {
	file  *os.File
	flag  string
	fresh bool // created by this run
	begun bool
}

// createOutput opens the file of a flag before there is any work to lose, unless
// the name cannot be an output file beside in; in is nil without a log. The result
// is nil without a name.
func createOutput(flag, name string, in *input) (*output, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return nil, cli.Usagef("%s -: standard output is for the report, want the name of a file", flag)
	}
	there, missing := os.Stat(name)
	if missing == nil && in != nil {
		if log, err := in.Stat(); err == nil && os.SameFile(there, log) {
			return nil, cli.Usagef("%s %s: the file is the log itself, want another file", flag, name)
		}
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return &output{file: file, flag: flag, fresh: errors.Is(missing, os.ErrNotExist)}, nil
}

// failed makes an error of the file an error of the flag.
func (o *output) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", o.flag, err)
	}
	return err
}

func (o *output) Write(p []byte) (int, error) {
	if !o.begun {
		o.begun = true
		if info, err := o.file.Stat(); err == nil && info.Mode().IsRegular() {
			if err := o.file.Truncate(0); err != nil {
				return 0, o.failed(err)
			}
		}
	}
	n, err := o.file.Write(p)
	return n, o.failed(err)
}

// close removes the file if this run has created the file and has left it empty.
func (o *output) close() error {
	if o == nil {
		return nil
	}
	err := o.file.Close()
	if o.fresh && !o.begun {
		err = errors.Join(err, os.Remove(o.file.Name()))
	}
	return o.failed(err)
}

// decisions is the file of --decisions: a line of CSV for each event. Without a file
// it writes nothing.
type decisions struct {
	*csv.Writer
	file *output
}

// createDecisions begins the file.
func createDecisions(name string, in *input) (d decisions, err error) {
	if d.file, err = createOutput("--decisions", name, in); d.file == nil || err != nil {
		return d, err
	}
	d.Writer = csv.NewWriter(bufio.NewWriterSize(d.file, 1<<16)) // reused as a buffer by csv
	return d, d.Write([]string{"time_us", "event", "feature", "allowed"})
}

// decided writes a line, buffered.
func (d decisions) decided(e eventlog.Event, allowed bool) error {
	if d.file == nil {
		return nil
	}
	digit := map[bool]string{true: "1", false: "0"}[allowed]
	return d.Write([]string{strconv.FormatInt(e.At.UnixMicro(), 10), e.Event, e.Feature, digit})
}

// close writes out the buffered lines. An error says that the file is not whole.
func (d decisions) close() error {
	if d.file == nil {
		return nil
	}
	d.Flush()
	return cmp.Or(d.Error(), d.file.close())
}
