package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/abacus-go/abacus/internal/words"
)

const (
	batchLen = 1024
	ahead    = 4 // batches that may be read in advance
)

// Seen describes the part of a log that was handed over.
type Seen struct {
	Format   Format `json:"format"`
	BadLines int64  `json:"bad_lines"`                // skipped lines
	FirstBad string `json:"first_bad,omitempty"`      // the error of the first skipped line
	Others   int64  `json:"other_requests,omitempty"` // lines left out: requests of no pattern
}

// WholeSeconds tells about a log whose stamps are all whole seconds.
const WholeSeconds = "all stamps are whole seconds: no window cuts a bucket of a second, so nothing is proved about such buckets"

// Notes are lines for people about what was skipped and left out.
func (s Seen) Notes() (lines []string) {
	if s.BadLines > 0 {
		lines = append(lines, fmt.Sprintf("%s skipped; the first: %s", words.Plural(s.BadLines, "bad line"), s.FirstBad))
	}
	if s.Others > 0 {
		lines = append(lines, words.Plural(s.Others, "other request")+" left out")
	}
	return lines
}

// batch is a number of events in the order of the log.
type batch struct {
	events []Event
	seen   Seen  // up to the end of the batch
	end    bool  // the last batch
	err    error // the reason, if not the end of the log
}

// Each calls f with each event of log in turn, and progress, unless nil, now and
// then. The log is read in a goroutine of its own: decompressing and parsing go on
// while f runs, and an interrupt need not wait for the next line of a slow pipe.
// All events at hand are handed over before waiting for more. The goroutine ends
// with the log or, after the return of a pending read, with ctx. With skipBad bad
// lines are counted and passed over; otherwise the first bad line ends the log.
// An error is an [Error], the error of f, or the error of ctx.
func Each(ctx context.Context, log *Reader, skipBad bool, progress func(), f func(e *Event) error) (seen Seen, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	batches := make(chan *batch, ahead)
	go func() {
		b := &batch{}
		for !b.end {
			b = log.batch(b.seen, skipBad)
			select {
			case <-ctx.Done():
				return
			case batches <- b:
			}
		}
	}()
	for {
		var b *batch
		select {
		case <-ctx.Done():
			return seen, ctx.Err()
		case b = <-batches:
		}
		seen.Format = b.seen.Format
		for i := range b.events {
			if err := f(&b.events[i]); err != nil {
				return seen, err
			}
		}
		seen = b.seen
		if progress != nil {
			progress()
		}
		if b.end {
			return seen, b.err
		}
	}
}

// batch reads the next lines; seen is the part of the log before the batch.
func (r *Reader) batch(seen Seen, skipBad bool) *batch {
	b := &batch{events: make([]Event, 0, batchLen), seen: seen}
	for range batchLen {
		e, err := r.Next()
		var wrong *Error
		switch {
		case err == nil && e.Event == "":
			b.seen.Others++
		case err == nil:
			b.events = append(b.events, e)
		case skipBad && errors.As(err, &wrong) && wrong.Bad:
			if b.seen.BadLines++; b.seen.BadLines == 1 {
				b.seen.FirstBad = err.Error()
			}
		case err == io.EOF:
			b.end = true
		default:
			b.end, b.err = true, err
		}
		if b.end || r.Waits() {
			break
		}
	}
	b.seen.Format = r.format
	return b
}
