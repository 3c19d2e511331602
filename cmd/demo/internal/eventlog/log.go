// Package eventlog reads logs of events: who did what, and when.
//
// Two formats are read, plain or compressed by gzip:
//
//   - CSV with a header that names the columns time_us (microseconds since the
//     Unix epoch), event and feature, in any order; further columns are
//     ignored. One event a line: a quoted field must end on its line.
//   - The Common and the Combined Log Format of web servers. The event is the
//     request's method, or named by [Requests]; the feature is the client's
//     address. A request that is not HTTP has the method "-".
//
// A byte order mark, line ends of either kind, and empty lines are accepted.
package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/words"
)

// Event is a line of a log.
type Event struct {
	At      time.Time
	Event   string // what was done; empty for a request of no pattern
	Feature string // who did it; not empty
}

// Error tells the position and the fault of a log.
type Error struct {
	File string
	Line int64 // counted from 1; 0 for an error of the whole log
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// The formats of logs. Auto looks at the first line.
const (
	Auto = "auto"
	CSV  = "csv"
	CLF  = "clf"
)

// Log is a log to be read once.
type Log struct {
	Source   io.Reader // decompressed if its first bytes are those of gzip
	Name     string    // errors begin with it; if it ends in .gz the log must be compressed
	Format   string
	Requests *Requests // name the events of a web server's log; nil: the methods do
	SkipBad  bool      // count bad lines and go on; else the first ends the log
	Progress func()    // called now and then, unless nil
}

// Seen describes the part of a log that was read.
type Seen struct {
	Events       int64         `json:"events"`
	First, Last  time.Time     `json:"-"`                       // the oldest stamp, and the newest
	Back         time.Duration `json:"-"`                       // the largest distance of a stamp behind the newest one before
	WholeSeconds bool          `json:"whole_seconds,omitempty"` // all stamps are: windows that begin within a second are not tried
	Format       string        `json:"format"`
	BadLines     int64         `json:"bad_lines"`                // skipped lines
	FirstBad     string        `json:"first_bad,omitempty"`      // the error of the first skipped line
	Others       int64         `json:"other_requests,omitempty"` // lines left out: requests of no pattern
}

// Add notes the stamp of an event.
func (s *Seen) Add(at time.Time) {
	if s.Events++; s.Events == 1 {
		s.First, s.Last, s.WholeSeconds = at.UTC(), at.UTC(), true
	}
	s.WholeSeconds = s.WholeSeconds && at.Nanosecond() == 0
	if at.Before(s.First) {
		s.First = at.UTC()
	}
	if at.After(s.Last) {
		s.Last = at.UTC()
	}
	s.Back = max(s.Back, s.Last.Sub(at))
}

// Skipped are lines for people about what was skipped and left out.
func (s *Seen) Skipped() (lines []string) {
	if s.BadLines > 0 {
		lines = append(lines, fmt.Sprintf("%s skipped; the first: %s", words.Plural(s.BadLines, "bad line"), s.FirstBad))
	}
	if s.Others > 0 {
		lines = append(lines, words.Plural(s.Others, "other request")+" left out")
	}
	return lines
}

// Notes are lines for people who want to know what the log proves under a skew.
func (s *Seen) Notes(skew time.Duration) (lines []string) {
	if s.WholeSeconds {
		lines = append(lines, "all stamps are whole seconds: windows that begin within a second are not tried")
	}
	lines = append(lines, s.Skipped()...)
	if s.Back > skew {
		lines = append(lines, fmt.Sprintf("the stamps run back by up to %[1]s: --skew %[1]s allows for that", dur.Format(s.Back)))
	}
	return lines
}

const (
	batchLen = 1024
	ahead    = 4 // batches that may be read in advance
)

// batch is a number of events in the order of the log.
type batch struct {
	events []Event
	seen   Seen  // up to the end of the batch
	err    error // io.EOF after the last
}

// Each calls f with each event of the log in turn, and fills in what of seen is not of
// the events. The log is read in a goroutine of its own: decompressing and parsing go on
// while f runs, and an interrupt need not wait for the next line of a slow pipe. All
// events at hand are handed over before waiting for more. The goroutine ends with the log
// or, after the return of a pending read, with ctx. An error is an [Error], the error of
// f, or the error of ctx.
func (l *Log) Each(ctx context.Context, seen *Seen, f func(e *Event) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	batches := make(chan batch, ahead)
	go func() {
		r := &reader{Log: l}
		for b := (batch{}); b.err == nil; {
			b = r.batch(b.seen)
			select {
			case <-ctx.Done():
				return
			case batches <- b:
			}
		}
	}()
	for {
		var b batch
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b = <-batches:
		}
		seen.Format = b.seen.Format
		for i := range b.events {
			if err := f(&b.events[i]); err != nil {
				return err
			}
		}
		seen.BadLines, seen.FirstBad, seen.Others = b.seen.BadLines, b.seen.FirstBad, b.seen.Others
		if l.Progress != nil {
			l.Progress()
		}
		if b.err == io.EOF {
			return nil
		}
		if b.err != nil {
			return b.err
		}
	}
}

// batch reads the next lines; seen is the part of the log before the batch.
func (r *reader) batch(seen Seen) batch {
	b := batch{events: make([]Event, 0, batchLen), seen: seen}
	for i := 0; i < batchLen && b.err == nil && (i == 0 || !r.waits()); i++ {
		e, err := r.next()
		var bad *Error
		switch {
		case r.SkipBad && errors.As(err, &bad) && bad.Line > 0 && r.parse != nil:
			if b.seen.BadLines++; b.seen.BadLines == 1 {
				b.seen.FirstBad = err.Error()
			}
		case err != nil:
			b.err = err
		case e.Event == "":
			b.seen.Others++
		default:
			b.events = append(b.events, e)
		}
	}
	b.seen.Format = r.Format
	return b
}

// checkYear wants a time within the numbering of buckets.
func checkYear(at time.Time) error {
	if cover.CheckTime(at) != nil {
		return fmt.Errorf("year %d is out of range, want %d to %d", at.UTC().Year(), cover.MinTime.Year(), cover.MaxTime.Year()-1)
	}
	return nil
}
