package eventlog

import (
	"context"
	"errors"
	"io"
)

const (
	batchLen = 1024
	ahead    = 4 // batches that may be read in advance
)

// Batch is a number of events in the order of the log.
type Batch struct {
	Events   []Event
	Format   Format
	Bad      int64 // skipped lines of the batch
	FirstBad error // the first error of a skipped line, or nil
	End      bool  // the last batch
	Err      error // the reason, if not the end of the log
	free     chan<- *Batch
}

// Done gives b back to be filled again: nothing of b may be used any more.
func (b *Batch) Done() { b.free <- b }

// Feed reads log in a goroutine of its own: decompressing and parsing go on while
// events are decided, and an interrupt need not wait for the next line of a slow
// pipe. All events at hand are handed over before waiting for more. The goroutine
// ends with the log or, after the return of a pending read, with ctx. With
// skipBad bad lines are counted and passed over; otherwise the first bad line
// ends the log.
func Feed(ctx context.Context, log *Reader, skipBad bool) <-chan *Batch {
	out, free := make(chan *Batch), make(chan *Batch, ahead)
	for range ahead {
		free <- &Batch{Events: make([]Event, 0, batchLen), free: free}
	}
	go func() {
		for {
			var b *Batch
			select {
			case <-ctx.Done():
				return
			case b = <-free:
			}
			b.fill(log, skipBad)
			select {
			case <-ctx.Done():
				return
			case out <- b:
			}
			if b.End {
				return
			}
		}
	}()
	return out
}

func (b *Batch) fill(log *Reader, skipBad bool) {
	b.Events, b.Bad, b.FirstBad = b.Events[:0], 0, nil
	for {
		e, err := log.Next()
		var wrong *Error
		switch {
		case err == nil:
			b.Events = append(b.Events, e)
		case skipBad && errors.As(err, &wrong) && wrong.Bad:
			if b.Bad++; b.FirstBad == nil {
				b.FirstBad = err
			}
		default:
			b.End = true
			if err != io.EOF {
				b.Err = err
			}
		}
		b.Format = log.Format()
		if b.End || len(b.Events) == batchLen || log.Waits() {
			return
		}
	}
}
