package limiter

import (
	"errors"
	"fmt"
	"sync"
)

// ErrClosed is the error of a call of a [Limiter] after Close.
var ErrClosed = errors.New("limiter: the Limiter is closed")

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

// Close ends the calls of Wait, stops carrying hits to the store, and returns
// when no goroutine of l is left: when all calls to the store under way have
// ended, at the latest by their Patience. A call of Wait then returns
// [ErrClosed]. Only a Limiter with Config.Local needs a Close; all of its calls
// return [ErrClosed] afterwards, and without Config.Local only the calls of Wait.
// The error tells of hits that were admitted locally and are not in the store.
// Further calls of Close do nothing.
func (l *Limiter) Close() error {
	l.waits.close()
	if l.local == nil {
		return nil
	}
	l.calls.mu.Lock()
	closed := l.calls.closed
	l.calls.closed = true
	l.calls.mu.Unlock()
	l.local.carrier.close()
	l.calls.all.Wait()
	if n := l.local.numbers.pending.Load(); n > 0 && !closed {
		return fmt.Errorf("limiter: Close: %d hits that were admitted locally are not known to be in the store", n)
	}
	return nil
}
