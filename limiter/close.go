package limiter

import (
	"context"
	"fmt"
	"sync"

	"github.com/abacus-go/abacus/limiter/turns"
)

// ErrClosed is the error of a call of a [Limiter] after Close.
var ErrClosed = turns.ErrClosed

// calls are the goroutines of a Limiter that Close waits for.
type calls struct {
	mu     sync.RWMutex
	closed bool
	all    sync.WaitGroup
}

// begin has Close wait until end. After Close it returns false.
func (c *calls) begin() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !c.closed {
		c.all.Add(1)
	}
	return !c.closed
}

func (c *calls) end() { c.all.Done() }

// Close ends the calls of Wait, which then return [ErrClosed], and carries the hits
// that were admitted locally to the store, as fast as the store answers, until none
// is left or ctx ends. Close returns when no goroutine of l is left: when all calls
// to the store under way have ended, at the latest by their Patience. While the
// store fails only the end of ctx ends a Close with such hits, so give ctx a
// deadline; with a ctx that has ended, nothing more is carried. The error tells the
// number of hits that are not known to be in the store, and wraps the error of ctx.
//
// Only a Limiter with Config.Local needs a Close; all of its calls return
// [ErrClosed] afterwards, and without Config.Local only the calls of Wait. Further
// calls of Close do nothing.
func (l *Limiter) Close(ctx context.Context) error {
	l.turns.Close()
	if l.local == nil {
		return nil
	}
	l.calls.mu.Lock()
	closed := l.calls.closed
	l.calls.closed = true
	l.calls.mu.Unlock()
	if closed {
		return nil
	}
	carrier := &l.local.carrier
	carrier.hasten()
	done := make(chan struct{})
	go func() {
		l.calls.all.Wait() // nobody else gives the carrier a first key
		carrier.all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	carrier.close()
	<-done
	if n := l.local.numbers.pending.Load(); n > 0 {
		return fmt.Errorf("limiter: Close: %d hits that were admitted locally are not known to be in the store: %w", n, ctx.Err())
	}
	return nil
}
