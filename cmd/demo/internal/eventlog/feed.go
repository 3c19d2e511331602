package replay

import (
	"context"
	"errors"
	"io"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
)

const (
	batchLen = 1024
	ahead    = 4 // batches that may be read before they are wanted
)

// batch is some events in the order of the log.
type batch struct {
	events   []eventlog.Event
	format   eventlog.Format
	bad      int64 // lines among them that were skipped
	firstBad error
	end      bool  // nothing comes after it
	err      error // why, if it is not the end of the log
	free     chan<- *batch
}

// done gives b back to be filled again.
func (b *batch) done() { b.free <- b }

// feed reads log in a goroutine of its own: decompressing and parsing go on
// while events are decided, and an interrupt need not wait for the next line
// of a slow pipe. What has been read is handed over before waiting for more.
// The goroutine ends with the log or, once it comes back from reading, with
// ctx.
func feed(ctx context.Context, log *eventlog.Reader, skipBad bool) <-chan *batch {
	out, free := make(chan *batch), make(chan *batch, ahead)
	for range ahead {
		free <- &batch{events: make([]eventlog.Event, 0, batchLen), free: free}
	}
	go func() {
		for {
			var b *batch
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
			if b.end {
				return
			}
		}
	}()
	return out
}

func (b *batch) fill(log *eventlog.Reader, skipBad bool) {
	b.events, b.bad, b.firstBad = b.events[:0], 0, nil
	for {
		e, err := log.Next()
		var wrong *eventlog.Error
		switch {
		case err == nil:
			b.events = append(b.events, e)
		case skipBad && errors.As(err, &wrong) && wrong.Bad:
			if b.bad++; b.firstBad == nil {
				b.firstBad = err
			}
		default:
			b.end = true
			if err != io.EOF {
				b.err = err
			}
		}
		b.format = log.Format()
		if b.end || len(b.events) == batchLen || log.Waits() {
			return
		}
	}
}
